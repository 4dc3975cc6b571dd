"""Upgrades: what was written under any older schema is delivered under the newest."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from support import Configure, OpenStore
from support.connections import migrate
from support.pipeline import UNFINISHED, FakeSender, broken_invariants, running, statuses
from support.rows import a_dead_letter, a_job, a_saga, a_subscription, an_event, move_saga
from support.servers import Server
from support.waiting import until_row
from surehook.model.states import JobStatus, SagaStatus
from surehook.store.logins import DatabaseAccess
from surehook.store.migrations import migrations

# The migrations up to this one have always come together: no program has worked without them.
FIRST = {"postgres": 3, "mysql": 2}
OPEN = (SagaStatus.PENDING, SagaStatus.IN_PROGRESS, SagaStatus.PENDING_RETRY)
LETTERS = "SELECT count(*) FROM dead_letters"


@pytest.fixture
def database_url(empty_url: str) -> str:
    return empty_url


async def rows_of(owner: Any, version: int) -> set[str]:
    """A subscription and deliveries in every state; returns what is still to be sent."""
    event_type = f"schema.{version}"
    hook = await a_subscription(owner, event_type=event_type)
    await a_subscription(owner, event_type=event_type, active=False)
    await a_subscription(owner, event_type=event_type, verified=False)

    async def an_own_event() -> int:
        return await an_event(owner, event_type=event_type)

    async def a_delivery(status: SagaStatus) -> int:
        event_id = await an_own_event()
        return await a_saga(owner, status=status, event_id=event_id, subscription_id=hook)

    to_send = [await an_own_event()]  # not routed yet
    leased = await a_delivery(SagaStatus.PENDING)
    await a_job(owner, saga_id=leased, status=JobStatus.LEASED, lease_seconds=0)
    await move_saga(owner, leased, SagaStatus.IN_PROGRESS)
    for saga_id in (leased, *[await a_delivery(status) for status in OPEN]):
        to_send.append(
            await owner.fetchval(
                "SELECT event_id FROM webhook_delivery_sagas WHERE id = $1", saga_id
            )
        )
    await a_delivery(SagaStatus.COMPLETED)
    await a_delivery(SagaStatus.DEAD_LETTERED)  # the sweep has not seen it yet
    await a_dead_letter(owner, saga_id=await a_delivery(SagaStatus.DEAD_LETTERED))
    return {f"{event_id}_{hook}" for event_id in to_send}


async def test_rows_of_every_older_schema_survive_all_later_migrations_and_are_delivered(
    server: Server, owner: Any, access: DatabaseAccess, configure: Configure, open_store: OpenStore
) -> None:
    """One database goes through every migration, and each finds the rows of all before it."""
    to_send: set[str] = set()
    known = [one for one in migrations(server.engine) if one.version >= FIRST[server.engine]]
    for migration in known:
        await migrate(access.url, until=migration.version)
        to_send |= await rows_of(owner, migration.version)
    await migrate(access.url, role_secret=server.role_secret)
    assert (await statuses(owner))[SagaStatus.PENDING] == len(known)

    sender = FakeSender()
    async with running(configure(), access, sender=sender):
        await until_row(owner, "SELECT count(*) FROM webhook_delivery_sagas", wanted=8 * len(known))
        await until_row(owner, UNFINISHED, wanted=0)
        await until_row(owner, LETTERS, wanted=2 * len(known))
    sent = Counter(
        dict(request.headers)["webhook-id"].split("_", 2)[2] for request in sender.requests
    )
    assert sent == dict.fromkeys(to_send, 1)
    assert await statuses(owner) == {
        SagaStatus.COMPLETED: 6 * len(known),
        SagaStatus.DEAD_LETTERED: 2 * len(known),
    }
    assert await broken_invariants(open_store) == {}
