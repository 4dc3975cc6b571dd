"""check: each invariant broken on purpose is found; a healthy, busy database gives nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import Configure, OpenStore, dialects
from support.clock import Clock
from support.pipeline import DELIVERED, FakeSender, broken_invariants, failed, running
from support.rows import a_dead_letter, a_job, a_saga, a_subscription, an_event
from surehook.delivery import Outcome, Request
from surehook.model.states import JobStatus, SagaStatus
from surehook.process.check import INVARIANTS, check
from surehook.store import store_of
from surehook.store.logins import DatabaseAccess
from surehook.store.observer import ObserverStore

Break = Callable[[Any], Awaitable[object]]
COPY = (
    "INSERT INTO webhook_delivery_sagas (event_id, subscription_id, requeued_from, bucket, "
    "status) SELECT event_id, subscription_id, requeued_from, bucket, status "
    "FROM webhook_delivery_sagas WHERE id = $1"
)


async def duplicate_deliveries(owner: Any) -> None:
    await dialects.drop_unique_key(owner, "webhook_delivery_sagas", "uniq_saga_event_subscription")
    await owner.execute(COPY, await a_saga(owner))


async def missing_deliveries(owner: Any) -> None:
    await a_subscription(owner, eligible_from=datetime.now(UTC) - timedelta(hours=1))
    await an_event(owner)


async def missing_saga_of_an_earlier_interval(owner: Any) -> None:
    """Switched off and on again since; nothing is said to be unknown."""
    now = await owner.fetchval("SELECT surehook_now()")
    event = await an_event(owner)
    number = await a_subscription(
        owner, eligible_from=now + timedelta(seconds=30), eligible_first=now
    )
    await owner.execute(
        "INSERT INTO subscription_eligibility (subscription_id, tenant, pattern, eligible_from, "
        "eligible_until) VALUES ($1, '', 'order.paid', $2, $3)",
        number,
        now,
        now + timedelta(seconds=20),
    )
    assert event


async def saga_of_an_event_before_its_time(owner: Any) -> None:
    event = await an_event(owner)
    later = await owner.fetchval("SELECT surehook_now() + interval '1 second'")
    number = await a_subscription(owner, eligible_from=later)
    await a_saga(owner, event_id=event, subscription_id=number)


async def saga_of_an_event_after_its_time(owner: Any) -> None:
    now = await owner.fetchval("SELECT surehook_now()")
    number = await a_subscription(
        owner,
        active=False,
        eligible_from=now - timedelta(hours=2),
        eligible_until=now - timedelta(minutes=2),
    )
    await a_saga(owner, subscription_id=number)


async def saga_of_another_type(owner: Any) -> None:
    event = await an_event(owner, event_type="order.sent")
    number = await a_subscription(owner, eligible_from=datetime.now(UTC) - timedelta(hours=1))
    await a_saga(owner, event_id=event, subscription_id=number)


async def stray_saga_without_event(owner: Any) -> None:
    await a_saga(owner, event_id=10**9)


async def stray_saga_of_another_tenant(owner: Any) -> None:
    await a_saga(owner, subscription_id=await a_subscription(owner, tenant="another"))


async def two_active_attempts(owner: Any) -> None:
    await dialects.drop_index(owner, "webhook_delivery_jobs", "idx_job_open")
    saga_id = await a_saga(owner, status=SagaStatus.IN_PROGRESS)
    await owner.execute(
        "INSERT INTO webhook_delivery_jobs (saga_id, event_id, subscription_id, attempt_at) "
        "SELECT id, event_id, subscription_id, next_attempt_at + interval '1 second' "
        "FROM webhook_delivery_sagas WHERE id = $1",
        saga_id,
    )


async def too_many_attempts(owner: Any) -> None:
    saga_id = await a_saga(owner, status=SagaStatus.COMPLETED)
    await owner.execute(
        "UPDATE webhook_delivery_sagas SET attempt_count = 2 WHERE id = $1", saga_id
    )


async def too_few_attempts(owner: Any) -> None:
    saga_id = await a_saga(owner, status=SagaStatus.PENDING_RETRY)
    await owner.execute(
        "UPDATE webhook_delivery_sagas SET attempt_count = 0 WHERE id = $1", saga_id
    )
    await a_job(owner, saga_id=saga_id, status=JobStatus.FAILED)


async def completed_without_delivery(owner: Any) -> None:
    await a_saga(owner, status=SagaStatus.COMPLETED)
    await owner.execute("UPDATE webhook_delivery_jobs SET status = 'Failed'")


async def completed_without_any_job(owner: Any) -> None:
    await a_saga(owner, status=SagaStatus.COMPLETED)
    await owner.execute("DELETE FROM webhook_delivery_jobs")
    await owner.execute("UPDATE webhook_delivery_sagas SET attempt_count = 0")


async def active_attempt_of_finished_delivery(owner: Any) -> None:
    await a_saga(owner, status=SagaStatus.COMPLETED)
    await owner.execute("UPDATE webhook_delivery_jobs SET status = 'Leased'")


async def dead_letter_missing(owner: Any) -> None:
    await a_saga(owner, status=SagaStatus.DEAD_LETTERED)


async def dead_letter_without_dead_delivery(owner: Any) -> None:
    await a_dead_letter(owner, saga_id=await a_saga(owner, status=SagaStatus.PENDING_RETRY))


async def dead_letter_of_nobody(owner: Any) -> None:
    await a_dead_letter(owner)
    await owner.execute("DELETE FROM webhook_delivery_jobs")
    await owner.execute("DELETE FROM webhook_delivery_sagas")


async def requeued_twice(owner: Any) -> None:
    for _ in range(2):
        await a_saga(owner, requeued_from=7)


async def in_progress_without_attempt(owner: Any) -> None:
    await a_saga(owner, status=SagaStatus.IN_PROGRESS)
    await owner.execute("DELETE FROM webhook_delivery_jobs")


CASES: list[tuple[str, Break]] = [
    ("duplicate_deliveries", duplicate_deliveries),
    ("missing_deliveries", missing_deliveries),
    ("missing_deliveries", missing_saga_of_an_earlier_interval),
    ("unowed_deliveries", saga_of_an_event_before_its_time),
    ("unowed_deliveries", saga_of_an_event_after_its_time),
    ("unowed_deliveries", saga_of_another_type),
    ("stray_deliveries", stray_saga_without_event),
    ("stray_deliveries", stray_saga_of_another_tenant),
    ("two_active_attempts", two_active_attempts),
    ("attempt_counts", too_many_attempts),
    ("attempt_counts", too_few_attempts),
    ("completed_without_delivery", completed_without_delivery),
    ("completed_without_delivery", completed_without_any_job),
    ("active_attempt_of_finished_delivery", active_attempt_of_finished_delivery),
    ("dead_letter_missing", dead_letter_missing),
    ("dead_letter_without_dead_delivery", dead_letter_without_dead_delivery),
    ("dead_letter_without_dead_delivery", dead_letter_of_nobody),
    ("requeued_twice", requeued_twice),
    ("in_progress_without_attempt", in_progress_without_attempt),
]


def test_the_rules_speak_of_deliveries_and_attempts() -> None:
    assert not [rule for _, rule in INVARIANTS.values() if re.search(r"saga|\bjob", rule)]


def test_every_invariant_is_broken_here() -> None:
    assert {name for name, _ in CASES} == set(INVARIANTS)


@pytest.mark.parametrize(
    ("invariant", "breaking"), CASES, ids=[breaking.__name__ for _, breaking in CASES]
)
async def test_a_broken_invariant_is_found(
    owner: Any, open_store: OpenStore, clock: Clock, invariant: str, breaking: Break
) -> None:
    await dialects.without_guards(owner)
    await breaking(owner)
    await clock.shift(120)
    found = await broken_invariants(open_store, margin=60)
    assert invariant in found, found
    # Breaking one may break its neighbours, but not all of them.
    assert len(found) <= 4, found
    # People know deliveries and attempts; the tables' words stay inside.
    assert not re.search(r"saga|\bjob", " ".join([*found, *map(str, found.values())]))


@pytest.mark.parametrize("buckets", [4])
async def test_a_saga_that_is_doubled_across_buckets_is_found(
    owner: Any, open_store: OpenStore
) -> None:
    saga_id = await a_saga(owner)
    await owner.execute(
        "INSERT INTO webhook_delivery_sagas (event_id, subscription_id, bucket) "
        "SELECT event_id, subscription_id, 2 FROM webhook_delivery_sagas WHERE id = $1",
        saga_id,
    )
    assert "duplicate_deliveries" in await broken_invariants(open_store, margin=60)


async def test_what_two_tables_are_briefly_apart_is_not_told(
    owner: Any, open_store: OpenStore
) -> None:
    await a_subscription(owner)
    await an_event(owner)
    await a_saga(owner, status=SagaStatus.DEAD_LETTERED)
    assert await broken_invariants(open_store, margin=60) == {}


async def test_what_is_older_than_wanted_is_not_looked_at(
    owner: Any, open_store: OpenStore, clock: Clock
) -> None:
    await a_saga(owner, status=SagaStatus.DEAD_LETTERED)
    await clock.shift(3600)
    store = store_of(ObserverStore, await open_store("observer"))
    since = await clock.now() - timedelta(minutes=30)
    assert not [f for f in await check(store, since=since) if f.broken]
    assert [f.invariant for f in await check(store) if f.broken] == ["dead_letter_missing"]


async def test_how_old_something_is_goes_by_the_database(
    open_store: OpenStore, clock: Clock
) -> None:
    await clock.shift(-7 * 86_400)
    store = store_of(ObserverStore, await open_store("observer"))
    before, now, after = await clock.now(), await store.now(), await clock.now()
    assert before <= now <= after


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_busy_healthy_database_gives_nothing(
    owner: Any, configure: Configure, access: DatabaseAccess, open_store: OpenStore, buckets: int
) -> None:
    """Looked at again and again while everything is at work."""
    for number in range(4):
        await a_subscription(
            owner, callback_url=f"https://receiver.example/{number}", max_attempts=2
        )
    store = store_of(ObserverStore, await open_store("observer"))

    def answer(request: Request) -> Outcome:
        return failed() if request.url.endswith("/0") else DELIVERED

    config = configure({"retry.base_delay": 0.01})
    looks = 0
    async with running(config, access, sender=FakeSender(answer)):

        async def publish() -> None:
            for number in range(60):
                await an_event(owner, bucket=number % buckets)

        publishing = asyncio.ensure_future(publish())
        while not publishing.done() or looks < 5:
            findings = await check(store, margin=30)
            assert not [f for f in findings if f.broken]
            looks += 1
        await publishing
