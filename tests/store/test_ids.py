"""Ids are 64 bits wide: in every statement, and all the way through."""

from __future__ import annotations

from typing import Any

import pytest

from support import Configure, OpenStore, dialects
from support.pipeline import DELIVERED, UNFINISHED, FakeSender, broken_invariants, failed, running
from support.rows import a_subscription, an_event, many_events
from support.waiting import until_row
from surehook.actions.requeue import Requeue
from surehook.model import statements
from surehook.model.resources.dead_letter import DeadLetterFilter
from surehook.model.roles import ROLES
from surehook.store import store_of
from surehook.store.deadletters import DeadLetterStore
from surehook.store.logins import DatabaseAccess

# What is a small number wherever it stands. Nothing else may be narrower than an id.
SMALL = {"bucket", "cap", "max_attempts", "exponent_max", "expiries_max", "attempts_max"}
SMALL |= {"concurrency_cap", "response_statuses", "retry_afters", "buckets", "pid"}
SMALL |= {"cap_max", "ramp", "ramps", "ramp_growth", "steps", "lane", "lanes"}
SMALL |= {"first_lane", "last_lane", "lease_resets"}
NARROW = {"int2", "int4", "_int2", "_int4", "int2[]", "int4[]"}
TABLES = (
    *("events", "subscriptions", "subscription_secrets", "webhook_delivery_sagas"),
    *("webhook_delivery_jobs", "dead_letters"),
)


@pytest.mark.only_on("postgres", reason="MySQL infers no types: each value brings its own")
async def test_no_statement_takes_an_id_for_a_small_number(owner: Any) -> None:
    """PostgreSQL infers what a parameter is: beside a bare 0 it becomes an int4."""
    narrow = []
    for role in ROLES:
        for statement in statements.load("postgres", role.login).values():
            prepared = await owner.prepare(statement.numbered())
            narrow += [
                f"{role.login}.{statement.name}: {parameter} is {kind.name}"
                for parameter, kind in zip(
                    statement.parameters, prepared.get_parameters(), strict=True
                )
                if kind.name in NARROW and parameter not in SMALL
            ]
    assert narrow == []


@pytest.mark.parametrize("buckets", [1, 4])
async def test_ids_may_grow_past_what_fits_in_32_bits(
    owner: Any, configure: Configure, access: DatabaseAccess, open_store: OpenStore, buckets: int
) -> None:
    """Across the border within one transaction larger than a page, then delivered, retried, dead,
    requeued and looked up."""
    border = 2**31
    for number, table in enumerate(TABLES):
        await dialects.number_from(owner, table, border - 9 + number)
    subscription = await a_subscription(owner, max_attempts=1)
    sender = FakeSender(lambda r: failed() if len(sender.requests) <= 8 else DELIVERED)
    config = configure({"orchestrator.batch": 5})
    async with running(config, access, sender=sender) as process:
        for bucket in range(buckets):  # a router's first look is of another kind
            await an_event(owner, bucket=bucket)
        await until_row(owner, "SELECT count(*) FROM webhook_delivery_sagas", wanted=buckets)
        async with owner.transaction():
            await many_events(owner, 16, buckets=range(buckets))
            await many_events(owner, 4, buckets=range(buckets))
        late = await an_event(owner, bucket=buckets - 1)
        assert late > border
        await until_row(owner, "SELECT count(*) FROM dead_letters", wanted=8)
        await until_row(owner, UNFINISHED, wanted=0)
        store = store_of(DeadLetterStore, await open_store("deadletters"))
        requeue = Requeue(store, process.hints, range(buckets))
        assert len(await requeue.matching(DeadLetterFilter(subscription_id=subscription), 100)) == 8
        await until_row(
            owner,
            "SELECT count(*) FROM webhook_delivery_sagas WHERE status = 'Completed'",
            wanted=21 + buckets,
        )
        await until_row(owner, UNFINISHED, wanted=0)
    assert len(sender.requests) == 21 + buckets + 8
    assert await broken_invariants(open_store) == {}
