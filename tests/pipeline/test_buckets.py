"""A component that is given some of the buckets leaves the others alone: they are another's."""

from __future__ import annotations

from typing import Any

import pytest

from support import OpenStore
from support.clock import Clock
from support.rows import a_job, a_saga, a_subscription, an_event
from surehook.model.records import SagaId
from surehook.model.retry import Policy
from surehook.model.states import JobStatus, SagaStatus
from surehook.pipeline.cleaner import Cleaner
from surehook.pipeline.deadletters import DeadLetters
from surehook.pipeline.orchestrator import Orchestrator
from surehook.pipeline.router import Router
from surehook.store import store_of
from surehook.store.cleaner import CleanerStore
from surehook.store.deadletters import DeadLetterStore
from surehook.store.hints import Hints
from surehook.store.orchestrator import OrchestratorStore
from surehook.store.router import RouterStore
from surehook.store.worker import WorkerStore

pytestmark = pytest.mark.parametrize("buckets", [4])
MINE, OTHER = 1, 2


async def status_of(owner: Any, table: str, number: int) -> str:
    status: str = await owner.fetchval(f"SELECT status FROM {table} WHERE id = $1", number)
    return status


async def test_a_router_routes_the_events_of_its_buckets(owner: Any, open_store: OpenStore) -> None:
    subscription = await a_subscription(owner)
    mine = await an_event(owner, bucket=MINE)
    await an_event(owner, bucket=OTHER)
    router = Router(store_of(RouterStore, await open_store("router")), Hints(), [MINE])
    for _ in range(4):
        await router.step()
    rows = await owner.fetch("SELECT event_id, subscription_id, bucket FROM webhook_delivery_sagas")
    assert [tuple(row) for row in rows] == [(mine, subscription, MINE)]


async def test_a_router_holds_and_lets_go_in_its_buckets(owner: Any, open_store: OpenStore) -> None:
    await a_subscription(owner)
    events = {bucket: await an_event(owner, bucket=bucket) for bucket in (MINE, OTHER)}
    await owner.execute("UPDATE subscriptions SET active = false")
    store = store_of(RouterStore, await open_store("router"))
    for bucket in (MINE, OTHER):
        router = Router(store, Hints(), [bucket])
        for _ in range(4):
            await router.step()
    held = "SELECT bucket, event_id FROM router_held ORDER BY bucket"
    assert [tuple(row) for row in await owner.fetch(held)] == sorted(events.items())
    await owner.execute("UPDATE subscriptions SET active = true")
    router = Router(store_of(RouterStore, await open_store("router")), Hints(), [MINE])
    for _ in range(4):
        await router.step()
    assert [tuple(row) for row in await owner.fetch(held)] == [(OTHER, events[OTHER])]
    sagas = await owner.fetch("SELECT event_id FROM webhook_delivery_sagas")
    assert [row[0] for row in sagas] == [events[MINE]]


@pytest.mark.parametrize("status", [SagaStatus.PENDING, SagaStatus.PENDING_RETRY])
async def test_an_orchestrator_starts_the_sagas_of_its_buckets(
    owner: Any, open_store: OpenStore, clock: Clock, status: SagaStatus
) -> None:
    subscription = await a_subscription(owner)
    sagas = {
        bucket: await a_saga(owner, status=status, subscription_id=subscription, bucket=bucket)
        for bucket in (MINE, OTHER)
    }
    await clock.shift(1)
    store = store_of(OrchestratorStore, await open_store("orchestrator"))
    await Orchestrator(store, Hints(), [MINE], policy=Policy()).step()
    assert await status_of(owner, "webhook_delivery_sagas", sagas[MINE]) == "InProgress"
    assert await status_of(owner, "webhook_delivery_sagas", sagas[OTHER]) == status
    jobs = await owner.fetch(
        "SELECT saga_id, bucket FROM webhook_delivery_jobs WHERE status = 'Pending'"
    )
    assert [tuple(row) for row in jobs] == [(sagas[MINE], MINE)]


async def test_an_orchestrator_applies_the_results_of_its_buckets(
    owner: Any, open_store: OpenStore, clock: Clock
) -> None:
    sagas = {}
    for bucket in (MINE, OTHER):
        sagas[bucket] = await a_saga(owner, status=SagaStatus.IN_PROGRESS, bucket=bucket)
    await owner.execute("UPDATE webhook_delivery_jobs SET status = 'Leased', lease_token = 1")
    await owner.execute("UPDATE webhook_delivery_jobs SET status = 'Completed'")
    await clock.shift(1)
    store = store_of(OrchestratorStore, await open_store("orchestrator"))
    await Orchestrator(store, Hints(), [MINE], policy=Policy()).step()
    assert await status_of(owner, "webhook_delivery_sagas", sagas[MINE]) == "Completed"
    assert await status_of(owner, "webhook_delivery_sagas", sagas[OTHER]) == "InProgress"
    assert await store.apply_results(MINE, [sagas[OTHER]], Policy(), ()) == []
    assert await status_of(owner, "webhook_delivery_sagas", sagas[OTHER]) == "InProgress"


@pytest.mark.parametrize("suspect", [False, True], ids=["fresh", "suspect"])
async def test_a_worker_leases_the_jobs_of_its_buckets(
    owner: Any, open_store: OpenStore, clock: Clock, suspect: bool
) -> None:
    jobs = {}
    for bucket in (OTHER, MINE):  # the other's would be first
        status = JobStatus.LEASED if suspect else JobStatus.PENDING
        jobs[bucket] = await a_job(owner, status=status, bucket=bucket)
    if suspect:
        await clock.shift(60)
        cleaner = store_of(CleanerStore, await open_store("cleaner"))
        for bucket in jobs:
            assert len(await cleaner.reset_expired_leases(bucket, 10, "LEASE_EXPIRED")) == 1
    store = store_of(WorkerStore, await open_store("worker"), "w")
    if suspect:
        assert await store.suspect_job(MINE) == jobs[MINE]
        both = list(jobs.values())
        leased = await store.lease_known_jobs(MINE, both, 1 << 20, 30.0, 7, suspect=True)
        assert await store.suspect_job(MINE) is None
    else:
        leased = await store.lease_jobs(MINE, (0, 4), 10, 1 << 20, 30.0, 7)
    assert [job.job_id for job in leased] == [jobs[MINE]]
    assert await status_of(owner, "webhook_delivery_jobs", jobs[OTHER]) == "Pending"


async def test_a_cleaner_resets_the_leases_of_its_buckets(
    owner: Any, open_store: OpenStore, clock: Clock
) -> None:
    jobs = {}
    for bucket in (MINE, OTHER):
        jobs[bucket] = await a_job(owner, status=JobStatus.LEASED, lease_seconds=5, bucket=bucket)
    await clock.shift(6)
    await Cleaner(store_of(CleanerStore, await open_store("cleaner")), Hints(), [MINE]).step()
    assert await status_of(owner, "webhook_delivery_jobs", jobs[MINE]) == "Pending"
    assert await status_of(owner, "webhook_delivery_jobs", jobs[OTHER]) == "Leased"


async def test_a_sweep_writes_the_dead_letters_of_its_buckets(
    owner: Any, open_store: OpenStore
) -> None:
    sagas = {}
    for bucket in (MINE, OTHER):
        sagas[bucket] = await a_saga(owner, status=SagaStatus.DEAD_LETTERED, bucket=bucket)
    store = store_of(DeadLetterStore, await open_store("deadletters"))
    await DeadLetters(store, Hints(), [MINE]).step()
    assert await store.write_dead_letters(MINE, [SagaId(sagas[OTHER])]) == []
    rows = await owner.fetch("SELECT saga_id, bucket FROM dead_letters")
    assert [tuple(row) for row in rows] == [(sagas[MINE], MINE)]
    letter = await owner.fetchval("SELECT id FROM dead_letters")
    assert await store.requeue(OTHER, [letter]) == []
    assert len(await store.requeue(MINE, [letter])) == 1
