"""Each statement of the pipeline changes exactly the rows that it is for: in a table with a row of
every kind, all of them named, those and no others are different afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import product
from typing import Any, NamedTuple

import pytest

from support import OpenStore, dialects
from support.clock import Clock
from support.rows import a_dead_letter, a_job, a_saga, a_subscription, an_event
from surehook.model.records import JobId, JobReport, Lane, PickedSaga, SagaId, Share
from surehook.model.retry import Policy
from surehook.model.states import LEASE_EXPIRIES_MAX, JobStatus, SagaStatus
from surehook.store import store_of
from surehook.store.cleaner import CleanerStore
from surehook.store.deadletters import DeadLetterStore
from surehook.store.orchestrator import OrchestratorStore
from surehook.store.worker import WorkerStore

pytestmark = pytest.mark.parametrize("buckets", [4])
HERE, THERE = 1, 2
MINE, ANOTHERS = 7, 8


async def rows_of(owner: Any, table: str) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: tuple(row) for row in await owner.fetch(f"SELECT * FROM {table}")}


async def changed(owner: Any, table: str, before: Mapping[int, Any]) -> set[int]:
    after = await rows_of(owner, table)
    assert after.keys() == before.keys()
    return {number for number, row in after.items() if row != before[number]}


# ── Jobs ──────────────────────────────────────────────────────────────────────────────────────

JOBS = "webhook_delivery_jobs"


class Job(NamedTuple):
    id: int
    bucket: int
    status: JobStatus
    token: int


async def jobs_of_every_kind(owner: Any) -> list[Job]:
    return [
        Job(
            await a_job(owner, status=status, bucket=bucket, lease_token=token),
            bucket,
            status,
            token,
        )
        for bucket, status, token in product((HERE, THERE), JobStatus, (MINE, ANOTHERS))
    ]


@pytest.mark.parametrize("resets", [0, -1], ids=["not reset", "reset since"])
@pytest.mark.parametrize("says", [JobStatus.COMPLETED, JobStatus.FAILED])
async def test_a_result_ends_the_leases_of_its_token_and_a_success_every_open_job_reset_since(
    owner: Any, open_store: OpenStore, says: JobStatus, resets: int
) -> None:
    jobs = await jobs_of_every_kind(owner)
    unnamed = await a_job(owner, status=JobStatus.LEASED, bucket=HERE, lease_token=MINE)
    before = await rows_of(owner, JOBS)
    store = store_of(WorkerStore, await open_store("worker"), "w")
    what = (says, 200, None, None, None, None, MINE, resets)
    reports = [JobReport(JobId(job.id), *what) for job in jobs]
    written = await store.finish_jobs(HERE, reports)
    leased = {job for job in jobs if job.status is JobStatus.LEASED and job.token == MINE}
    still_open = {job for job in jobs if job.status in (JobStatus.PENDING, JobStatus.LEASED)}
    meant = still_open if says is JobStatus.COMPLETED and resets < 0 else leased
    expected = {job.id for job in meant if job.bucket == HERE}
    assert await changed(owner, JOBS, before) == expected == {number for number, _ in written}
    assert unnamed not in expected
    after = await owner.fetch(f"SELECT id, status FROM {JOBS}")
    assert {row["status"] for row in after if row["id"] in expected} == {says}


async def test_jobs_are_given_back_by_token(owner: Any, open_store: OpenStore) -> None:
    jobs = await jobs_of_every_kind(owner)
    await a_job(owner, status=JobStatus.LEASED, bucket=HERE, lease_token=MINE)
    before = await rows_of(owner, JOBS)
    store = store_of(WorkerStore, await open_store("worker"), "w")
    given_back = await store.give_back_jobs(HERE, [(JobId(job.id), MINE) for job in jobs])
    expected = {job.id for job in jobs if job[1:] == (HERE, JobStatus.LEASED, MINE)}
    assert await changed(owner, JOBS, before) == expected == set(given_back)


@pytest.mark.parametrize("which", ["of lanes", "known", "suspect"])
async def test_waiting_jobs_are_leased_by_lane_or_by_name_and_suspect_ones_apart(
    owner: Any, open_store: OpenStore, which: str
) -> None:
    jobs = await jobs_of_every_kind(owner)
    pending = {job.id for job in jobs if (job.bucket, job.status) == (HERE, JobStatus.PENDING)}
    lanes = {lane: await a_job(owner, bucket=HERE, lane=lane) for lane in Lane}
    suspects = [await a_job(owner, bucket=HERE), await a_job(owner, bucket=THERE)]
    named = [*(job.id for job in jobs), *lanes.values(), *suspects]
    await a_job(owner, bucket=HERE)  # in lane 0, and not named
    await dialects.without_guards(owner)
    await owner.execute(f"UPDATE {JOBS} SET lease_resets = 1 WHERE id = ANY($1)", suspects)
    before = await rows_of(owner, JOBS)
    store = store_of(WorkerStore, await open_store("worker"), "w")
    match which:
        case "of lanes":
            leased = await store.lease_jobs(HERE, (1, 3), 99, 1 << 20, 30.0, MINE)
            expected = {lanes[lane] for lane in (Lane.BULK, Lane.UNPROVEN, Lane.SLOW)}
        case "known":
            leased = await store.lease_known_jobs(HERE, named, 1 << 20, 30.0, MINE)
            expected = {*pending, *lanes.values()}
        case _:
            leased = await store.lease_known_jobs(HERE, named, 1 << 20, 30.0, MINE, suspect=True)
            expected = {suspects[0]}
    assert await changed(owner, JOBS, before) == expected == {job.job_id for job in leased}
    tokens = await owner.fetch(f"SELECT DISTINCT lease_token FROM {JOBS} WHERE worker_id = 'w'")
    assert [row[0] for row in tokens] == [MINE]


async def test_expired_leases_are_reset_whatever_their_lane_and_end_the_sixth_time(
    owner: Any, open_store: OpenStore, clock: Clock
) -> None:
    jobs = await jobs_of_every_kind(owner)
    leased = {job.id for job in jobs if job[1:3] == (HERE, JobStatus.LEASED)}
    for lane in Lane:
        leased.add(await a_job(owner, status=JobStatus.LEASED, bucket=HERE, lane=lane))
    for earlier in (LEASE_EXPIRIES_MAX - 2, LEASE_EXPIRIES_MAX - 1):
        number = await a_job(owner, status=JobStatus.LEASED, bucket=HERE)
        leased.add(number)
        await dialects.without_guards(owner)
        await owner.execute(f"UPDATE {JOBS} SET lease_resets = $1 WHERE id = $2", earlier, number)
    await a_job(owner, status=JobStatus.LEASED, bucket=HERE, lease_seconds=600)
    await clock.shift(60)
    before = await rows_of(owner, JOBS)
    store = store_of(CleanerStore, await open_store("cleaner"))
    expired = await store.reset_expired_leases(HERE, 99, "LEASE_EXPIRED")
    assert await changed(owner, JOBS, before) == leased == {one.job_id for one in expired}
    rows = await owner.fetch(
        f"SELECT id, status, error_code, finished_at IS NOT NULL AS ended, lease_resets FROM {JOBS}"
    )
    ends = {row["id"]: (row["status"], row["error_code"], bool(row["ended"])) for row in rows}
    failed = ("Failed", "LEASE_EXPIRED", True)
    assert [ends[number] for number in sorted(leased)] == [
        *[("Pending", None, False)] * (len(leased) - 1),
        failed,
    ]
    resets = {row["id"]: row["lease_resets"] for row in rows}
    assert {one.job_id: one.lease_resets for one in expired} == {
        number: resets[number] for number in leased
    }
    assert [resets[number] for number in sorted(leased)][-3:] == [1, 5, 6]


# ── Sagas ─────────────────────────────────────────────────────────────────────────────────────

SAGAS = "webhook_delivery_sagas"
TICK = timedelta(microseconds=1)


async def attempt_of(owner: Any, saga_id: int) -> datetime:
    attempt: datetime = await owner.fetchval(
        f"SELECT next_attempt_at FROM {SAGAS} WHERE id = $1", saga_id
    )
    return attempt


async def test_waiting_sagas_are_started_for_the_attempt_that_they_have(
    owner: Any, open_store: OpenStore
) -> None:
    sagas = {
        (bucket, status, same): await a_saga(owner, status=status, bucket=bucket)
        for bucket, status, same in product((HERE, THERE), SagaStatus, (True, False))
    }
    await a_saga(owner, bucket=HERE)  # not named
    picked = [
        PickedSaga(
            SagaId(number),
            await attempt_of(owner, number) - TICK * (not same),
            await owner.fetchval(f"SELECT event_id FROM {SAGAS} WHERE id = $1", number),
            await owner.fetchval(f"SELECT subscription_id FROM {SAGAS} WHERE id = $1", number),
            None,
        )
        for (_, _, same), number in sagas.items()
    ]
    before = await rows_of(owner, SAGAS)
    store = store_of(OrchestratorStore, await open_store("orchestrator"))
    await store.start_sagas(HERE, picked)
    waiting = (SagaStatus.PENDING, SagaStatus.PENDING_RETRY)
    expected = {sagas[HERE, status, True] for status in waiting}
    assert await changed(owner, SAGAS, before) == expected
    assert {
        (await owner.fetchval(f"SELECT status FROM {SAGAS} WHERE id = $1", number))
        for number in expected
    } == {"InProgress"}


async def test_results_are_applied_to_sagas_in_progress_with_the_same_attempt(
    owner: Any, open_store: OpenStore
) -> None:
    """Their jobs' attempts are as old as each other's: only its own job is a saga's."""
    kinds = list(product((HERE, THERE), SagaStatus, JobStatus, (True, False)))
    subscription = await a_subscription(owner)
    attempt_at = await owner.fetchval("SELECT surehook_now()")
    await dialects.without_guards(owner)
    sagas = {}
    for kind in kinds:
        bucket, saga_status, job_status, same = kind
        event = await an_event(owner, bucket=bucket)
        sagas[kind] = number = await owner.fetchval(
            f"INSERT INTO {SAGAS} (event_id, subscription_id, status, next_attempt_at, bucket) "
            "VALUES ($1, $2, $3, $4, $5) RETURNING id",
            event, subscription, saga_status, attempt_at, bucket,
        )  # fmt: skip
        await owner.execute(
            f"INSERT INTO {JOBS} (saga_id, event_id, subscription_id, status, attempt_at, bucket) "
            "VALUES ($1, $2, $3, $4, $5, $6)",
            number, event, subscription, job_status, attempt_at - TICK * (not same), bucket,
        )  # fmt: skip
    before = await rows_of(owner, SAGAS)
    store = store_of(OrchestratorStore, await open_store("orchestrator"))
    unnamed = sagas[HERE, SagaStatus.IN_PROGRESS, JobStatus.COMPLETED, True]
    named = [SagaId(number) for number in sagas.values() if number != unnamed]
    applied = await store.apply_results(HERE, named, Policy(), ())
    expected = {sagas[HERE, SagaStatus.IN_PROGRESS, JobStatus.FAILED, True]}
    assert await changed(owner, SAGAS, before) == expected == {one.saga_id for one in applied}
    applied = await store.apply_results(HERE, [SagaId(unnamed)], Policy(), ())
    assert [(one.saga_id, one.status) for one in applied] == [(unnamed, "Completed")]


async def test_due_sagas_get_jobs_and_those_that_have_one_are_named(
    owner: Any, open_store: OpenStore, clock: Clock
) -> None:
    subscription, other = await a_subscription(owner), await a_subscription(owner)
    sagas = {
        (bucket, status, whose): await a_saga(
            owner, status=status, subscription_id=whose, bucket=bucket
        )
        for bucket, status, whose in product((HERE, THERE), SagaStatus, (subscription, other))
    }
    await clock.shift(10)
    with_job = await a_saga(owner, subscription_id=subscription, bucket=HERE)
    job = await a_job(owner, saga_id=with_job, bucket=HERE)
    await clock.shift(10)
    due = {sagas[HERE, SagaStatus.PENDING, subscription], with_job}
    due.add(sagas[HERE, SagaStatus.PENDING_RETRY, subscription])
    later = await a_saga(owner, subscription_id=subscription, bucket=HERE)
    await dialects.without_guards(owner)
    await owner.execute(
        f"UPDATE {SAGAS} SET next_attempt_at = surehook_now() + interval '1 minute' WHERE id = $1",
        later,
    )
    before = await rows_of(owner, JOBS)
    store = store_of(OrchestratorStore, await open_store("orchestrator"))
    picked = await store.create_jobs(HERE, [Share(subscription, 99)], set())
    new = (await rows_of(owner, JOBS)).keys() - before.keys()
    assert {one.saga_id for one in picked} == due
    assert len(picked) == len(due)
    assert {one.saga_id: one.job_id for one in picked}[SagaId(with_job)] is None
    assert {one.job_id for one in picked} - {None} == new and job not in new and len(new) == 2
    for one in picked:
        assert one.attempt_at == await attempt_of(owner, one.saga_id)
        assert one.subscription_id == subscription


# ── Dead letters ──────────────────────────────────────────────────────────────────────────────


async def test_dead_sagas_are_written_down_once(owner: Any, open_store: OpenStore) -> None:
    sagas = {
        (bucket, status): await a_saga(owner, status=status, bucket=bucket)
        for bucket, status in product((HERE, THERE), SagaStatus)
    }
    await a_saga(owner, status=SagaStatus.DEAD_LETTERED, bucket=HERE)  # not named
    known = await a_saga(owner, status=SagaStatus.DEAD_LETTERED, bucket=HERE)
    await a_dead_letter(owner, saga_id=known, bucket=HERE)
    before = await rows_of(owner, "dead_letters")
    store = store_of(DeadLetterStore, await open_store("deadletters"))
    named = [SagaId(number) for number in (*sagas.values(), known)]
    written = await store.write_dead_letters(HERE, named)
    dead = sagas[HERE, SagaStatus.DEAD_LETTERED]
    assert [letter.saga_id for letter in written] == [dead]
    rows = await owner.fetch("SELECT d.id, d.saga_id, d.event_id, s.event_id AS its, "
        f"j.id AS job_id FROM dead_letters d JOIN {SAGAS} s ON s.id = d.saga_id "
        f"JOIN {JOBS} j ON j.saga_id = d.saga_id")  # fmt: skip
    (new,) = (row for row in rows if row["id"] not in before)
    assert (new["saga_id"], new["event_id"]) == (dead, new["its"])
    assert written[0].job_id == new["job_id"]


async def test_dead_letters_of_who_is_active_and_verified_are_requeued_once(
    owner: Any, open_store: OpenStore
) -> None:
    letters = {}
    for bucket, active, verified in product((HERE, THERE), (True, False), (True, False)):
        subscription = await a_subscription(owner)
        saga = await a_saga(
            owner,
            status=SagaStatus.DEAD_LETTERED,
            subscription_id=subscription,
            bucket=bucket,
        )
        letters[bucket, active, verified] = await a_dead_letter(owner, saga_id=saga, bucket=bucket)
        await owner.execute(
            "UPDATE subscriptions SET active = $1, verified = $2 WHERE id = $3",
            active, verified, subscription,
        )  # fmt: skip
    await a_dead_letter(owner, bucket=HERE)  # not named
    before = await rows_of(owner, SAGAS)
    store = store_of(DeadLetterStore, await open_store("deadletters"))
    for once_more in (False, True):
        answers = {
            one.dead_letter_id: one for one in await store.requeue(HERE, [*letters.values()])
        }
        assert set(answers) == {
            letter for (bucket, *_), letter in letters.items() if bucket == HERE
        }
        created = [number for number, one in answers.items() if one.created]
        assert created == ([] if once_more else [letters[HERE, True, True]])
        deliverable = [number for number, one in answers.items() if one.deliverable]
        assert deliverable == [letters[HERE, True, True]]
    after = await rows_of(owner, SAGAS)
    assert len(after.keys() - before.keys()) == 1
    new = await owner.fetchrow(f"SELECT * FROM {SAGAS} WHERE requeued_from <> 0")
    assert (new["requeued_from"], new["status"]) == (letters[HERE, True, True], "Pending")
