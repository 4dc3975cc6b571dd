"""Cleaner: expired leases go back, the sixth time they fail; nothing else is touched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support import Configure, OpenStore, servers
from support.clock import Clock
from support.pipeline import facts, running
from support.rows import a_job, a_saga, a_subscription, many_sagas
from support.waiting import PATIENCE, until_row
from surehook.model.records import Lane
from surehook.model.states import LEASE_EXPIRIES_MAX, JobStatus
from surehook.pipeline import cleaner as cleaner_module
from surehook.pipeline.cleaner import POLL_MAX_SECONDS, Cleaner
from surehook.store import store_of
from surehook.store.cleaner import CleanerStore
from surehook.store.hints import Channel, Hints
from surehook.store.logins import DatabaseAccess

JOB = (
    "SELECT status, lease_resets, lease_until, lease_token, error_code, finished_at IS NOT NULL "
    "FROM webhook_delivery_jobs WHERE id = $1"
)


@pytest.fixture
async def store(open_store: OpenStore) -> CleanerStore:
    return store_of(CleanerStore, await open_store("cleaner"))


@pytest.fixture
def hints() -> Hints:
    return Hints()


@pytest.fixture
def cleaner(store: CleanerStore, hints: Hints, buckets: int) -> Cleaner:
    return Cleaner(store, hints, range(buckets))


@pytest.mark.parametrize("buckets", [1, 4])
async def test_only_expired_leases_are_reset(
    owner: Any, cleaner: Cleaner, clock: Clock, buckets: int
) -> None:
    bucket = buckets - 1
    kept = {
        status: await a_job(owner, status=status, lease_seconds=60, bucket=bucket)
        for status in JobStatus
    }
    expired = await a_job(owner, status=JobStatus.LEASED, lease_seconds=5, bucket=bucket)
    before = {job: tuple(await owner.fetchrow(JOB, job)) for job in kept.values()}
    await cleaner.step()
    assert (await owner.fetchrow(JOB, expired))[0] == "Leased"
    await clock.shift(6)
    with facts() as reported:
        await cleaner.step()
    assert tuple(await owner.fetchrow(JOB, expired)) == ("Pending", 1, None, None, None, False)
    assert {job: tuple(await owner.fetchrow(JOB, job)) for job in kept.values()} == before
    ((name, fields),) = reported
    assert name == "lease.expired"
    assert fields["job_id"] == expired and fields["worker_id"] == "worker-1"
    assert fields["lease_expiration"] is not None and fields["lease_resets"] == 1


@pytest.mark.parametrize("lane", Lane)
async def test_a_lease_that_expires_is_reset_in_whichever_lane_its_job_is(
    owner: Any, cleaner: Cleaner, clock: Clock, lane: Lane
) -> None:
    job_id = await a_job(owner, status=JobStatus.LEASED, lease_seconds=5, lane=lane)
    await clock.shift(6)
    await cleaner.step()
    assert tuple(await owner.fetchrow(JOB, job_id))[:2] == ("Pending", 1)


async def test_the_sixth_expiry_fails_the_job_and_hints_its_saga(
    owner: Any, cleaner: Cleaner, hints: Hints
) -> None:
    results: list[int] = []
    jobs: list[int] = []
    hints.on(Channel.RESULTS, lambda _, ids: results.extend(ids))
    hints.on(Channel.JOBS, lambda bucket, _: jobs.append(bucket))
    saga_id = await a_saga(owner)
    job_id = await a_job(owner, saga_id=saga_id)
    for number in range(1, LEASE_EXPIRIES_MAX + 1):
        await owner.execute(
            "UPDATE webhook_delivery_jobs SET status = 'Leased', lease_token = $1, "
            "lease_until = surehook_now() - interval '1 second'",
            number,
        )
        with facts() as reported:
            await cleaner.step()
        status, resets, *_ = await owner.fetchrow(JOB, job_id)
        assert (status, resets) == ("Failed" if number == 6 else "Pending", number)
        ((_, fields),) = reported
        assert fields["error_code"] == ("LEASE_EXPIRED" if number == 6 else None)
    assert tuple(await owner.fetchrow(JOB, job_id)) == (
        "Failed",
        6,
        None,
        None,
        "LEASE_EXPIRED",
        True,
    )
    assert results == [saga_id]
    assert jobs == [0] * 5


async def test_a_job_that_is_being_written_is_left_for_the_next_time(
    owner: Any, cleaner: Cleaner, database_url: str
) -> None:
    """Its worker's result and the cleaner meet: whoever is first wins, nobody waits."""
    busy = await a_job(owner, status=JobStatus.LEASED, lease_seconds=-5)
    free = await a_job(owner, status=JobStatus.LEASED, lease_seconds=-5)
    async with servers.connected(database_url) as worker, worker.transaction():
        await worker.execute(
            "UPDATE webhook_delivery_jobs SET status = 'Completed' WHERE id = $1", busy
        )
        async with asyncio.timeout(PATIENCE):
            await cleaner.step()
        assert (await owner.fetchrow(JOB, free))[0] == "Pending"
    await cleaner.step()
    assert tuple(await owner.fetchrow(JOB, busy))[:2] == ("Completed", 0)


async def test_cleaners_side_by_side_count_each_expiry_once(
    owner: Any, open_store: OpenStore
) -> None:
    for _ in range(40):
        await a_job(owner, status=JobStatus.LEASED, lease_seconds=-1)
    several = [
        Cleaner(store_of(CleanerStore, await open_store("cleaner")), Hints(), [0]) for _ in range(4)
    ]
    await asyncio.gather(*(cleaner.step() for cleaner in several * 3))
    rows = await owner.fetch("SELECT status, lease_resets FROM webhook_delivery_jobs")
    assert {tuple(row) for row in rows} == {("Pending", 1)}


async def test_more_expired_leases_than_one_batch_are_all_reset(
    owner: Any, cleaner: Cleaner
) -> None:
    await many_sagas(owner, await a_subscription(owner), 1200)
    await owner.execute(
        "INSERT INTO webhook_delivery_jobs (saga_id, event_id, subscription_id, attempt_at, "
        "status, lease_until) SELECT id, event_id, subscription_id, next_attempt_at, 'Leased', "
        "now() - interval '1 minute' FROM webhook_delivery_sagas"
    )
    rests = [await cleaner.step() for _ in range(3)]
    assert rests[:2] == [0, 0] and rests[2] > 0
    assert (
        await owner.fetchval("SELECT count(*) FROM webhook_delivery_jobs WHERE status = 'Pending'")
        == 1200
    )


async def test_it_rests_until_the_next_lease_expires(
    owner: Any, cleaner: Cleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await cleaner.step() == POLL_MAX_SECONDS
    await a_job(owner, status=JobStatus.LEASED, lease_seconds=300)
    assert await cleaner.step() == POLL_MAX_SECONDS
    monkeypatch.setattr(cleaner_module, "POLL_MAX_SECONDS", 900.0)
    assert 0 < await cleaner.step() <= 300


async def test_an_expired_lease_is_reset_soon_after(
    owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    async with running(configure(), access, ["cleaner"]):
        await a_job(owner, status=JobStatus.LEASED, lease_seconds=0.2)
        await until_row(owner, "SELECT status FROM webhook_delivery_jobs", wanted="Pending")
