"""The five scenarios: duplicate event, duplicate routing, killed worker, dead letter, requeue."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support import Configure, OpenStore, certificates, dialects
from support.clock import Clock
from support.pipeline import (
    ALL,
    DELIVERED,
    UNFINISHED,
    FakeSender,
    broken_invariants,
    failed,
    running,
    statuses,
)
from support.processes import children, environment
from support.receiver import Answer, Receiver
from support.rows import a_subscription, an_event
from support.waiting import LEASE_SECONDS, until, until_row
from surehook.actions.ingest import Ingest
from surehook.actions.requeue import Requeue
from surehook.model.error_codes import ErrorCode
from surehook.model.records import NewEvent, Requeued
from surehook.model.resources.dead_letter import DeadLetterFilter
from surehook.model.retry import Policy, delay_seconds
from surehook.store import store_of
from surehook.store.deadletters import DeadLetterStore
from surehook.store.hints import Hints
from surehook.store.ingest import IngestStore
from surehook.store.logins import DatabaseAccess

pytestmark = pytest.mark.parametrize("buckets", [1, 4])

COMPLETED = "SELECT count(*) FROM webhook_delivery_sagas WHERE status = 'Completed'"
RESTING = (
    "SELECT count(*) FROM webhook_delivery_sagas WHERE status = 'PendingRetry' "
    "AND attempt_count = $1"
)
PAYLOAD = '{"b": 1,  "a":[1.0, 2e3], "a": "é\\u0000"}'


def local(**flags: object) -> dict[str, object]:
    """Settings with which the real sender reaches a receiver on this machine."""
    return {
        "delivery.allow_networks": "127.0.0.0/8",
        "delivery.ca_file": str(Path(certificates.ca_file())),
        **flags,
    }


async def test_a_duplicate_event_is_delivered_once(
    owner: Any, configure: Configure, access: DatabaseAccess, open_store: OpenStore, buckets: int
) -> None:
    await a_subscription(owner)
    store = store_of(IngestStore, await open_store("ingest"))
    sender = FakeSender()
    event = NewEvent("order.paid", PAYLOAD, external_id="order-1")
    async with running(configure(), access, sender=sender):
        doors = [Ingest(store, Hints(), buckets) for _ in range(3)]
        answers = await asyncio.gather(*(doors[n % 3].publish(event) for n in range(30)))
        assert len({answer.id for answer in answers}) == 1
        await until_row(owner, COMPLETED, wanted=1)
        late = await doors[0].publish(event)
        assert late.duplicate and late.id == answers[0].id
    assert len(sender.requests) == 1
    assert await statuses(owner) == {"Completed": 1}
    assert await broken_invariants(open_store) == {}


async def test_routing_an_event_twice_makes_one_saga(
    owner: Any, configure: Configure, access: DatabaseAccess, open_store: OpenStore, buckets: int
) -> None:
    """Also after the first one has died: a repeated routing revives nothing."""
    await a_subscription(owner, callback_url="https://receiver.example/good")
    await a_subscription(owner, callback_url="https://receiver.example/gone", max_attempts=1)
    sender = FakeSender(lambda r: failed() if r.url.endswith("gone") else DELIVERED)
    for number in range(8):
        await an_event(owner, bucket=number % buckets)
    async with running(configure(), access, sender=sender):
        await until_row(owner, "SELECT count(*) FROM dead_letters", wanted=8)
        await until_row(owner, UNFINISHED, wanted=0)
    before = await owner.fetch("SELECT * FROM webhook_delivery_sagas ORDER BY id")
    await owner.execute("DELETE FROM router_cursor")
    async with (
        running(configure(), access, sender=sender),
        running(configure(), access, ["router"]),
    ):
        await until_row(owner, "SELECT count(*) FROM router_cursor", wanted=buckets)
        await until(lambda: dialects.router_has_read_everything(owner))
        marker = await an_event(owner)
        await until_row(
            owner, "SELECT count(*) FROM dead_letters WHERE event_id = $1", marker, wanted=1
        )
    after = await owner.fetch(
        "SELECT * FROM webhook_delivery_sagas WHERE event_id <> $1 ORDER BY id", marker
    )
    assert before == after and len(after) == 16
    assert await broken_invariants(open_store) == {}


async def test_a_worker_killed_before_writing_its_result_costs_a_second_send_only(
    owner: Any, access: DatabaseAccess, clock: Clock, open_store: OpenStore, buckets: int
) -> None:
    async with Receiver() as receiver:
        subscription = await a_subscription(owner, callback_url=f"{receiver.url}/")
        # One that has answered before: a new one begins with two.
        known = "INSERT INTO orchestrator_subscriptions (subscription_id) VALUES ($1)"
        await owner.execute(known, subscription)
        env = environment(access)
        armed = {**env, "SUREHOOK_TEST_CRASHPOINT": "worker.after_send=kill"}
        with children() as start:
            others = ",".join(name for name in ALL if name != "worker")
            rest = start(["serve", others], env)
            for number in range(8):
                await an_event(owner, bucket=number % buckets)
            await until_row(owner, "SELECT count(*) FROM webhook_delivery_jobs", wanted=8)
            worker = start(["serve", "worker"], armed)
            assert await worker.exit() == -signal.SIGKILL
            sent = receiver.count
            assert sent >= 1
            assert await owner.fetchval(UNFINISHED) == 8
            await clock.shift(LEASE_SECONDS)
            second = start(["serve", "worker"], env)
            await until_row(owner, UNFINISHED, wanted=0)
            await second.stop()
            await rest.stop()
        counts = Counter(request.headers["webhook-id"] for request in receiver.requests)
    assert len(counts) == 8 and receiver.count == 8 + sent
    assert max(counts.values()) <= 2
    assert await statuses(owner) == {"Completed": 8}
    assert await owner.fetchval("SELECT max(attempt_count) FROM webhook_delivery_sagas") == 1
    assert await broken_invariants(open_store) == {}


async def test_retry_until_dead_letter_then_requeue(
    owner: Any,
    configure: Configure,
    access: DatabaseAccess,
    clock: Clock,
    open_store: OpenStore,
    buckets: int,
) -> None:
    """Exactly as many sends as allowed, never early, spaced by the formula, one dead letter;
    then a hundred requeues at once make one new saga, which is delivered."""
    attempts, policy = 4, Policy(4, 0.15, 0.5)
    config = configure(
        local(
            **{
                "retry.base_delay": policy.base_delay_seconds,
                "retry.max_delay": policy.max_delay_seconds,
                "retry.max_attempts": attempts,
            }
        )
    )
    async with Receiver() as receiver:
        receiver.script("/down", *[Answer(status=503)] * attempts, Answer())
        await a_subscription(owner, callback_url=f"{receiver.url}/down")
        await clock.stop()  # so that the machine's speed is in none of the times
        async with running(config, access, https=True):
            event = await an_event(owner, payload=PAYLOAD, bucket=buckets - 1)
            for number in range(1, attempts):
                await until_row(owner, RESTING, number, wanted=1)
                assert receiver.count == number, "sent early"
                await clock.shift(delay_seconds(policy, number, None) + 0.001)
            await until_row(owner, "SELECT count(*) FROM dead_letters", wanted=1)
            assert receiver.count == attempts
            await _spaced_by_the_formula(owner, policy)
            letter = await owner.fetchrow("SELECT * FROM dead_letters")
            old = await owner.fetchrow("SELECT * FROM webhook_delivery_sagas")
            assert (letter["event_id"], letter["payload_snapshot"]) == (event, PAYLOAD)
            assert letter["failed_at"] == old["updated_at"]
            assert (old["status"], old["attempt_count"]) == ("DeadLettered", attempts)

            store = store_of(DeadLetterStore, await open_store("deadletters"))
            doors = [Requeue(store, Hints(), range(buckets)) for _ in range(4)]
            answers = await asyncio.gather(
                *(doors[n % 4].by_id([letter["id"]]) for n in range(100))
            )
            assert len({answer.saga_id for (answer,) in answers}) == 1
            await until_row(owner, UNFINISHED, wanted=0)
        assert {request.body for request in receiver.requests} == {PAYLOAD.encode()}
        assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
        assert receiver.count == attempts + 1
    assert await owner.fetchrow("SELECT * FROM webhook_delivery_sagas ORDER BY id LIMIT 1") == old
    assert await statuses(owner) == {"DeadLettered": 1, "Completed": 1}
    assert await broken_invariants(open_store) == {}


async def _spaced_by_the_formula(owner: Any, policy: Policy) -> None:
    jobs = await owner.fetch(
        "SELECT attempt_at, started_at, finished_at FROM webhook_delivery_jobs ORDER BY id"
    )
    assert len(jobs) == policy.max_attempts
    for job in jobs:
        assert job["started_at"] >= job["attempt_at"], "sent early"
    for number, (job, following) in enumerate(pairwise(jobs), start=1):
        spaced = (following["attempt_at"] - job["finished_at"]).total_seconds()
        wanted = delay_seconds(policy, number, None)
        assert spaced == pytest.approx(wanted, abs=5e-6), number


async def test_a_requeue_of_a_disabled_subscription_waits_until_it_is_enabled(
    owner: Any, configure: Configure, access: DatabaseAccess, open_store: OpenStore, buckets: int
) -> None:
    """Disabled with deliveries under way: they die unsent, and are all requeued in one call."""
    subscription = await a_subscription(owner)
    sender = FakeSender()
    async with running(configure(), access, ["router"]):
        for number in range(8):
            await an_event(owner, bucket=number % buckets)
        await until_row(owner, "SELECT count(*) FROM webhook_delivery_sagas", wanted=8)
    await owner.execute("UPDATE subscriptions SET active = false")
    store = store_of(DeadLetterStore, await open_store("deadletters"))
    async with running(configure(), access, sender=sender) as process:
        await until_row(owner, "SELECT count(*) FROM dead_letters", wanted=8)
        assert sender.requests == []
        requeue = Requeue(store, process.hints, range(buckets))
        wanted = DeadLetterFilter(
            subscription_id=subscription, error_code=ErrorCode.SUBSCRIPTION_INACTIVE
        )
        refused = await requeue.matching(wanted, 100)
        assert not any(answer.created for answer in refused if isinstance(answer, Requeued))
        await owner.execute("UPDATE subscriptions SET active = true")
        assert len(await requeue.matching(wanted, 100)) == 8
        await until(lambda: len(sender.requests) == 8)
        await until_row(owner, UNFINISHED, wanted=0)
    assert await statuses(owner) == {"DeadLettered": 8, "Completed": 8}
    assert await broken_invariants(open_store) == {}
