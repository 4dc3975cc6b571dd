"""Worker: leases what it can send, writes what is its own, harms nobody else."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support import Configure, OpenStore, certificates, servers
from support.clock import Clock
from support.pipeline import DELIVERED, FakeSender, facts, failed, running
from support.processes import children, environment
from support.receiver import Answer, Receiver
from support.rows import a_job, a_saga, a_secret, a_subscription, an_event
from support.servers import ENCRYPTION_KEY, Server
from support.waiting import LEASE_SECONDS, PATIENCE, until, until_row
from surehook.delivery import Outcome, Request
from surehook.delivery.compose import Composer
from surehook.delivery.outcome import EXCERPT_CHARACTERS
from surehook.delivery.secrets import Sealer, parse_keys
from surehook.errors import ConfigError, DatabaseUnreachable
from surehook.model.error_codes import ErrorCode
from surehook.model.records import JobId, JobReport, Lane
from surehook.model.states import JobStatus, SagaStatus
from surehook.pipeline import worker as worker_module
from surehook.pipeline.worker import Worker
from surehook.process.serve import Process
from surehook.store import store_of
from surehook.store.hints import Channel, Hints
from surehook.store.logins import DatabaseAccess
from surehook.store.worker import WorkerStore

Make = Callable[..., Awaitable[Worker]]
JOBS = "SELECT status, count(*) FROM webhook_delivery_jobs GROUP BY status"


@pytest.fixture
def worker(open_store: OpenStore, buckets: int) -> Make:
    async def make(sender: FakeSender, *, request_seconds: float = 10, **how: Any) -> Worker:
        how = {"lease_seconds": 30.0, **how}
        store = how.pop("store", None) or store_of(WorkerStore, await open_store("worker"), "w")
        sealer = Sealer(parse_keys(ENCRYPTION_KEY))
        composer = Composer(sealer, "0123456789", request_seconds, how["lease_seconds"])
        made = Worker(
            store,
            how.pop("hints", Hints()),
            range(buckets),
            sender=sender,
            composer=composer,
            worker_id="w",
            **how,
        )
        await made.start()
        return made

    return make


async def jobs_for(
    owner: Any,
    count: int,
    *,
    subscription_id: int | None = None,
    payload: str = "{}",
    lease_resets: int = 0,
    bucket: int = 0,
    lane: Lane = Lane.BULK,
) -> list[int]:
    subscription_id = subscription_id or await a_subscription(owner)
    ids = []
    for _ in range(count):
        saga_id = await a_saga(
            owner,
            event_id=await an_event(owner, payload=payload, bucket=bucket),
            subscription_id=subscription_id,
            bucket=bucket,
        )
        ids.append(await a_job(owner, saga_id=saga_id, bucket=bucket, lane=lane))
        await owner.execute(
            "UPDATE webhook_delivery_sagas SET status = 'InProgress' WHERE id = $1", saga_id
        )
    if lease_resets:
        for _ in range(lease_resets):
            await owner.execute(
                "UPDATE webhook_delivery_jobs SET status = 'Leased' WHERE id = ANY($1)", ids
            )
            await owner.execute(
                "UPDATE webhook_delivery_jobs SET status = 'Pending', "
                "lease_resets = lease_resets + 1 WHERE id = ANY($1)",
                ids,
            )
    return ids


async def counted(owner: Any) -> dict[str, int]:
    return {row[0]: row[1] for row in await owner.fetch(JOBS)}


class Gate:
    """Holds every request until it is opened."""

    def __init__(self, outcome: Outcome = DELIVERED) -> None:
        self.opened = asyncio.Event()
        self._outcome = outcome

    async def __call__(self, request: Request) -> Outcome:
        await self.opened.wait()
        return self._outcome


# ── Leasing ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
async def test_only_as_many_jobs_are_leased_as_there_are_free_slots(
    owner: Any, worker: Make, buckets: int
) -> None:
    for bucket in range(buckets):
        await jobs_for(owner, 20 // buckets, bucket=bucket)
    gate = Gate()
    sender = FakeSender(gate)
    each = await worker(sender, concurrency=4)
    for _ in range(5):
        await each.step()
    assert await counted(owner) == {"Leased": 4, "Pending": 16}
    shown = {(metric, *labels): value for metric, labels, value in each.figures()}
    assert shown["surehook_worker_requests", "under_way"] == 4
    assert shown["surehook_worker_requests", "most"] >= 4
    gate.opened.set()

    async def all_done() -> bool:
        await each.step()
        return await counted(owner) == {"Completed": 20}

    await until(all_done)
    assert len(sender.requests) == 20
    assert sender.most_at_once == 4
    await each.drain()


async def test_the_last_free_slot_is_used_while_all_others_hang(owner: Any, worker: Make) -> None:
    """Slots are let gather before they are filled again, but never wait for those that hang."""
    await jobs_for(owner, 6)
    quick = await a_subscription(owner, callback_url="https://receiver.example/quick")
    gate = Gate()

    async def answer(request: Request) -> Outcome:
        return DELIVERED if request.url.endswith("/quick") else await gate(request)

    sender = FakeSender(answer)
    each = await worker(sender, concurrency=8)

    async def all_others_hang() -> bool:
        await each.step()
        return await counted(owner) == {"Leased": 6}

    await until(all_others_hang)
    await jobs_for(owner, 3, subscription_id=quick)

    async def quick_ones_done() -> bool:
        await each.step()
        return await counted(owner) == {"Leased": 6, "Completed": 3}

    await until(quick_ones_done)
    gate.opened.set()
    await each.drain()


async def test_what_waits_for_an_endpoint_that_hangs_holds_up_no_other(
    owner: Any, worker: Make
) -> None:
    """Its waiting jobs leave the lane of endpoints that answer quickly, and run beside them."""
    hangs = await a_subscription(owner, callback_url="https://receiver.example/hangs")
    answers = await a_subscription(owner, callback_url="https://receiver.example/answers")
    for subscription_id in (hangs, answers):
        await jobs_for(owner, 30, subscription_id=subscription_id)
    let_go = asyncio.Event()

    async def answer(request: Request) -> Outcome:
        if request.url.endswith("/hangs"):
            await let_go.wait()
        return DELIVERED

    each = await worker(FakeSender(answer), concurrency=8, slow_requests=8)

    async def done(count: int) -> bool:
        await each.step()
        return (await counted(owner)).get("Completed", 0) == count

    await until(lambda: done(30))
    lanes = "SELECT count(*) FROM webhook_delivery_jobs WHERE status = 'Pending' AND lane = $1"
    assert await owner.fetchval(lanes, Lane.ASIDE) > 0
    assert await owner.fetchval(lanes, Lane.BULK) == 0
    let_go.set()
    await until(lambda: done(60))


async def test_what_waits_behind_others_that_hang_is_sent_beside_them(
    owner: Any, worker: Make
) -> None:
    """More endpoints hang than there are places for; they have all answered before."""
    gate = Gate()
    gate.opened.set()

    async def answer(request: Request) -> Outcome:
        return DELIVERED if request.url.endswith("/answers") else await gate(request)

    sender = FakeSender(answer)
    each = await worker(sender, concurrency=16, slow_requests=16)

    async def done(count: int) -> bool:
        await each.step()
        return (await counted(owner)).get("Completed", 0) == count

    answers = await a_subscription(owner, callback_url="https://receiver.example/answers")
    hogs = [
        await a_subscription(
            owner, tenant=f"hog-{number % 5}", callback_url=f"https://receiver.example/{number}"
        )
        for number in range(40)
    ]
    # Those that will hang have answered last.
    for subscription_id in (answers, *hogs):
        await jobs_for(owner, 1, subscription_id=subscription_id)
    await until(lambda: done(41))
    gate.opened.clear()
    for subscription_id in (*hogs, *hogs, answers):
        await jobs_for(owner, 1, subscription_id=subscription_id)
    await jobs_for(owner, 9, subscription_id=answers)
    await until(lambda: done(51))
    express = "SELECT count(*) FROM webhook_delivery_jobs WHERE lane = $1 AND status = $2"
    assert await owner.fetchval(express, Lane.EXPRESS, "Completed") == 10
    # What is kept for tenants with little to do was not used up for it.
    assert await owner.fetchval(express, Lane.EXPRESS, "Leased") <= 2
    gate.opened.set()
    await until(lambda: done(131))
    await each.drain()


@pytest.mark.parametrize("compressible", [True, False])
async def test_only_as_much_payload_is_leased_as_there_is_room_for(
    owner: Any, worker: Make, compressible: bool
) -> None:
    """The payload's real size counts, not what is left of it in the database."""
    size = 400_000
    text = "x" * size if compressible else base64.b64encode(os.urandom(size * 3 // 4)).decode()
    await jobs_for(owner, 12, payload=f'"{text}"', lane=Lane.EXPRESS)
    gate = Gate()
    sender = FakeSender(gate)
    each = await worker(sender, memory=1_000_000)
    for _ in range(5):
        await each.step()
    # 400 KB and 800 KB are less than 1 MB: the third job is the last that begins.
    assert await counted(owner) == {"Leased": 3, "Pending": 9}
    gate.opened.set()
    await each.drain()


async def test_a_payload_larger_than_all_the_memory_is_sent_alone(owner: Any, worker: Make) -> None:
    await jobs_for(owner, 3, payload=f'"{"x" * 300_000}"')
    sender = FakeSender()
    each = await worker(sender, memory=100_000)

    async def all_done() -> bool:
        await each.step()
        return await counted(owner) == {"Completed": 3}

    await until(all_done)
    assert sender.most_at_once == 1
    await each.drain()


async def test_memory_that_becomes_free_is_used_at_once(
    owner: Any, configure: Configure, access: DatabaseAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One slow delivery with others beside it, of which memory holds one at a time."""
    payload = f'"{"x" * 700_000}"'
    await jobs_for(owner, 1, payload=payload)
    quick = await a_subscription(owner, callback_url="https://receiver.example/quick")
    await jobs_for(owner, 12, subscription_id=quick, payload=payload)
    gate = Gate()
    ended: list[str] = []
    # Looking again would take longer than this test waits: only the free memory can wake it.
    monkeypatch.setattr(worker_module, "IDLE_POLL_SECONDS", 600)

    async def answer(request: Request) -> Outcome:
        if not request.url.endswith("/quick"):
            return await gate(request)
        await asyncio.sleep(0)
        ended.append(request.url)
        return DELIVERED

    sender = FakeSender(answer)
    config = configure({"worker.memory": 1024 * 1024})
    async with running(config, access, ["worker"], sender):
        await until(lambda: len(ended) == 12)
        gate.opened.set()
    assert sender.most_at_once == 2


async def test_two_workers_never_lease_the_same_job(owner: Any, worker: Make) -> None:
    await jobs_for(owner, 60)
    senders = [FakeSender(), FakeSender()]
    both = [await worker(sender, concurrency=7) for sender in senders]

    async def all_done() -> bool:
        await asyncio.gather(*(each.step() for each in both))
        return await counted(owner) == {"Completed": 60}

    await until(all_done)
    ids = [dict(r.headers)["webhook-id"] for sender in senders for r in sender.requests]
    assert len(ids) == len(set(ids)) == 60
    for each in both:
        await each.drain()


async def test_a_job_that_cannot_start_in_time_is_given_back_unsent(
    owner: Any, worker: Make
) -> None:
    await jobs_for(owner, 3)
    sender = FakeSender()
    each = await worker(sender, request_seconds=2, lease_seconds=7.0)
    each._lease_seconds = 2.5  # as if preparing had taken the rest
    await each.step()
    await each.drain()
    assert sender.requests == []
    rows = await owner.fetch(
        "SELECT status, lease_resets, lease_until, lease_token FROM webhook_delivery_jobs"
    )
    assert {tuple(row) for row in rows} == {("Pending", 0, None, None)}


async def test_a_job_whose_event_or_subscription_is_gone_holds_up_no_other(
    owner: Any, worker: Make
) -> None:
    """Nobody of ours can delete one; an administrator by hand, or a restored table, can."""
    nobody, nothing = 10**9, 10**9
    subscription_id = await a_subscription(owner)
    for pair in ((nothing, subscription_id), (await an_event(owner), nobody)):
        saga_id = await a_saga(owner, event_id=pair[0], subscription_id=pair[1])
        await a_job(owner, saga_id=saga_id)
    await jobs_for(owner, 1, subscription_id=subscription_id)
    each = await worker(FakeSender())
    await each.step()
    await each.drain()
    rows = await owner.fetch("SELECT status FROM webhook_delivery_jobs ORDER BY id")
    assert [row[0] for row in rows] == ["Pending", "Pending", "Completed"]


async def test_jobs_that_outlived_a_lease_are_sent_alone(owner: Any, worker: Make) -> None:
    subscription = await a_subscription(owner, callback_url="https://receiver.example/suspect")
    suspects = await jobs_for(owner, 3, subscription_id=subscription, lease_resets=1)
    await jobs_for(owner, 30)
    alone: list[bool] = []

    async def slowly(request: Request) -> Outcome:
        if request.url.endswith("/suspect"):
            alone.append(sender.under_way == 1)
        await asyncio.sleep(0.005)
        if request.url.endswith("/suspect"):
            alone.append(sender.under_way == 1)
        return DELIVERED

    sender = FakeSender(slowly)
    each = await worker(sender, concurrency=5)

    async def all_done() -> bool:
        await each.step()
        return await counted(owner) == {"Completed": 33}

    await until(all_done)
    assert alone == [True] * 6
    resets = await owner.fetch(
        "SELECT lease_resets FROM webhook_delivery_jobs WHERE id = ANY($1)", suspects
    )
    assert {row[0] for row in resets} == {1}
    await each.drain()


async def test_slow_suspects_leave_the_others_half_of_the_time(
    owner: Any, worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only requests move: a suspect takes a second, another a hundredth."""
    monkeypatch.setattr(worker_module, "SUSPECT_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(worker_module, "SUSPECT_TURN_SECONDS", 0.1)
    seconds = 0.0
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=lambda: seconds))
    subscription = await a_subscription(owner, callback_url="https://receiver.example/suspect")
    await jobs_for(owner, 3, subscription_id=subscription, lease_resets=1)
    await jobs_for(owner, 120)
    order: list[str] = []

    async def slowly(request: Request) -> Outcome:
        nonlocal seconds
        order.append(request.url[-7:])
        seconds += 1.0 if order[-1] == "suspect" else 0.01
        return DELIVERED

    each = await worker(FakeSender(slowly), concurrency=10)

    async def all_done() -> bool:
        nonlocal seconds
        if len(order) - order.count("suspect") == 120:  # nobody else moves it any more
            seconds += 0.01
        await each.step()
        return await counted(owner) == {"Completed": 123}

    await until(all_done)
    third = [n for n, url in enumerate(order) if url == "suspect"][2]
    assert third >= 120, "the others had to wait for every suspect"
    await each.drain()


@pytest.mark.parametrize("buckets", [1, 4])
async def test_batches_on_few_slots_with_hanging_endpoints_expire_no_lease_unsent(
    owner: Any, configure: Configure, access: DatabaseAccess, buckets: int
) -> None:
    config = configure(
        {
            "worker.concurrency": 8,
            "delivery.request_timeout": 1,
            "worker.lease_duration": 6,
            "delivery.allow_networks": "127.0.0.0/8",
            "delivery.ca_file": str(certificates.ca_file()),
            "retry.max_attempts": 1,
        }
    )
    async with Receiver() as receiver:
        receiver.script("/hangs", Answer(hang=True))
        hanging = await a_subscription(owner, callback_url=f"{receiver.url}/hangs")
        for bucket in range(buckets):
            await jobs_for(owner, 32 // buckets, subscription_id=hanging, bucket=bucket)
        async with running(config, access, ["worker", "cleaner"], https=True):
            await until_row(
                owner,
                "SELECT count(*) FROM webhook_delivery_jobs WHERE status = 'Failed'",
                wanted=32,
            )
        rows = await owner.fetch("SELECT error_code, lease_resets FROM webhook_delivery_jobs")
        assert Counter(tuple(row) for row in rows) == {("TIMEOUT", 0): 32}
        assert 0 < receiver.count <= 32


async def test_a_job_that_kills_its_worker_each_time_fails_alone_after_its_sixth_lease(
    owner: Any, access: DatabaseAccess, configure: Configure, clock: Clock
) -> None:
    async with Receiver() as receiver:
        subscription = await a_subscription(owner, callback_url=f"{receiver.url}/")
        before = await jobs_for(owner, 8, subscription_id=subscription)
        (poison,) = await jobs_for(
            owner, 1, subscription_id=subscription, payload='{"is": "poison"}'
        )
        after = await jobs_for(owner, 8, subscription_id=subscription)
        env = environment(access)
        deaths = 0
        with children() as start:
            async with running(configure(), access, ["cleaner"]):
                for _ in range(8):
                    child = start(["poisoned", "worker"], env)

                    async def ended() -> bool:
                        return child.ended or not await owner.fetchval(  # noqa: B023
                            "SELECT count(*) FROM webhook_delivery_jobs "
                            "WHERE status IN ('Pending', 'Leased')"
                        )

                    await until(ended)
                    if not child.ended:
                        await child.stop()
                        break
                    assert child.process.returncode == -signal.SIGKILL
                    deaths += 1
                    await clock.shift(LEASE_SECONDS)
                    await until_row(
                        owner,
                        "SELECT count(*) FROM webhook_delivery_jobs WHERE status = 'Leased'",
                        wanted=0,
                    )
    assert deaths == 6
    row = await owner.fetchrow(
        "SELECT status, error_code, lease_resets FROM webhook_delivery_jobs WHERE id = $1", poison
    )
    assert tuple(row) == ("Failed", "LEASE_EXPIRED", 6)
    rows = await owner.fetch(
        "SELECT status, lease_resets FROM webhook_delivery_jobs WHERE id = ANY($1)", before + after
    )
    assert {row[0] for row in rows} == {"Completed"}
    assert max(row[1] for row in rows) <= 1


# ── Results ───────────────────────────────────────────────────────────────────────────────────


def report(job_id: int, status: JobStatus, token: int, resets: int = -1) -> JobReport:
    """By default of a lease that was lost since: jobs here have been reset once more than then."""
    delivered = status is JobStatus.COMPLETED
    return JobReport(
        JobId(job_id),
        status,
        200 if delivered else 503,
        None if delivered else "HTTP_5XX",
        None,
        None,
        None,
        token,
        resets,
    )


@pytest.mark.parametrize("now_is", ["Pending", "Leased", "Completed", "Failed"])
@pytest.mark.parametrize("says", [JobStatus.COMPLETED, JobStatus.FAILED])
async def test_a_worker_that_lost_its_lease_may_only_report_success(
    owner: Any, open_store: OpenStore, now_is: str, says: JobStatus
) -> None:
    """The lease went to another worker (or back, or was ended) while ours was sending."""
    job_id = await a_job(owner, status=JobStatus(now_is), lease_token=2, worker_id="another")
    store = store_of(WorkerStore, await open_store("worker"), "w")
    written = await store.finish_jobs(0, [report(job_id, says, 1)])
    row = await owner.fetchrow("SELECT status, worker_id FROM webhook_delivery_jobs")
    if says is JobStatus.COMPLETED and now_is in ("Pending", "Leased"):
        assert [job for job, _ in written] == [job_id]
        assert tuple(row) == ("Completed", "w")
    else:
        assert written == []
        assert row[0] == now_is


@pytest.mark.parametrize("now_is", [JobStatus.PENDING, JobStatus.LEASED])
async def test_a_success_is_not_written_to_another_job_that_has_got_the_same_number(
    owner: Any, open_store: OpenStore, now_is: JobStatus
) -> None:
    """A standby that was behind gives numbers out again; its new job was never reset."""
    job_id = await a_job(owner, status=now_is, lease_token=2)
    store = store_of(WorkerStore, await open_store("worker"), "w")
    assert not await store.finish_jobs(0, [report(job_id, JobStatus.COMPLETED, 1, resets=0)])
    assert await owner.fetchval("SELECT status FROM webhook_delivery_jobs") == now_is


async def test_the_worker_that_was_overtaken_by_a_late_success_is_refused(
    owner: Any, open_store: OpenStore
) -> None:
    job_id = await a_job(owner, status=JobStatus.LEASED, lease_token=2)
    store = store_of(WorkerStore, await open_store("worker"), "w")
    assert await store.finish_jobs(0, [report(job_id, JobStatus.COMPLETED, 1)])
    assert not await store.finish_jobs(0, [report(job_id, JobStatus.FAILED, 2)])
    assert await store.give_back_jobs(0, [(JobId(job_id), 2)]) == []
    assert await owner.fetchval("SELECT status FROM webhook_delivery_jobs") == "Completed"


async def test_a_lease_is_given_back_only_by_its_owner(owner: Any, open_store: OpenStore) -> None:
    job_id = await a_job(owner, status=JobStatus.LEASED, lease_token=2)
    store = store_of(WorkerStore, await open_store("worker"), "w")
    assert await store.give_back_jobs(0, [(JobId(job_id), 1)]) == []
    assert await owner.fetchval("SELECT status FROM webhook_delivery_jobs") == "Leased"
    assert await store.give_back_jobs(0, [(JobId(job_id), 2)]) == [job_id]
    assert await owner.fetchval("SELECT status FROM webhook_delivery_jobs") == "Pending"


class WatchedStore:
    """Notes what results are written."""

    def __init__(self, store: WorkerStore) -> None:
        self._store = store
        self.written: list[list[int]] = []

    async def finish_jobs(self, bucket: int, reports: Any) -> Any:
        self.written.append([r.job_id for r in reports])
        return await self._store.finish_jobs(bucket, reports)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_a_result_waits_no_longer_than_twenty_milliseconds_for_its_batch(
    owner: Any, worker: Make, open_store: OpenStore
) -> None:
    """Told by the loop's own timers: one of twenty milliseconds, begun with the answer, must not
    be overtaken. On a busy machine both are late alike."""
    await jobs_for(owner, 1)  # one that hangs: the others are never the last under way
    quick = await a_subscription(owner, callback_url="https://receiver.example/quick")
    gate = Gate()
    store = WatchedStore(store_of(WorkerStore, await open_store("worker"), "w"))
    in_time: list[bool] = []
    watches: set[asyncio.Task[None]] = set()

    async def watch(written: int) -> None:
        await asyncio.sleep(0.020)
        for _ in range(3):  # the timer that writes starts a task, which has its turn after us
            await asyncio.sleep(0)
        in_time.append(len(store.written) > written)

    async def answer(request: Request) -> Outcome:
        if not request.url.endswith("/quick"):
            return await gate(request)
        watches.add(asyncio.create_task(watch(len(store.written))))
        return DELIVERED

    each = await worker(FakeSender(answer), store=store, concurrency=64)
    await each.step()
    for number in range(15):
        await jobs_for(owner, 1, subscription_id=quick)
        await each.step()
        await until(lambda: len(in_time) > number)  # noqa: B023
    assert sum(in_time) > 10, in_time
    gate.opened.set()
    await each.drain()


async def test_a_failure_is_written_with_all_that_the_endpoint_said(
    owner: Any, worker: Make
) -> None:
    (job_id,) = await jobs_for(owner, 1)
    outcome = Outcome(429, ErrorCode.HTTP_4XX, 17, "slow down: 'é' 慢 😀", "ours: 'é' 慢 😀")
    each = await worker(FakeSender(lambda _: outcome))
    await each.step()
    await each.drain()
    row = await owner.fetchrow(
        "SELECT status, response_status, error_code, retry_after, response_excerpt, "
        "failure_detail, worker_id, finished_at >= started_at "
        "FROM webhook_delivery_jobs WHERE id = $1",
        job_id,
    )
    texts = ("slow down: 'é' 慢 😀", "ours: 'é' 慢 😀")
    assert tuple(row) == ("Failed", 429, "HTTP_4XX", 17, *texts, "w", True)


async def test_without_an_answer_the_reason_is_kept(owner: Any, worker: Make) -> None:
    (job_id,) = await jobs_for(owner, 1)
    said = "127.0.0.1: Connection\x1b[31m\x00\nrefused é 慢 😀 " + "x" * 400
    outcome = Outcome(None, ErrorCode.CONNECT_FAILED, failure_detail=said, sent=False)
    each = await worker(FakeSender(lambda _: outcome))
    await each.step()
    await each.drain()
    excerpt, detail = await owner.fetchrow(
        "SELECT response_excerpt, failure_detail FROM webhook_delivery_jobs WHERE id = $1", job_id
    )
    assert excerpt is None
    assert detail.startswith("127.0.0.1: Connection·[31m· refused é 慢 😀 xxx")
    assert len(detail) == EXCERPT_CHARACTERS


async def test_results_are_hinted_with_their_sagas(owner: Any, worker: Make) -> None:
    await jobs_for(owner, 5)
    hints, heard = Hints(), list[int]()
    hints.on(Channel.RESULTS, lambda _, ids: heard.extend(ids))
    each = await worker(FakeSender(), hints=hints)
    await each.step()
    await each.drain()
    sagas = await owner.fetch("SELECT saga_id FROM webhook_delivery_jobs")
    assert sorted(heard) == sorted(row[0] for row in sagas)


async def test_a_result_outlives_the_database_being_away(
    owner: Any, server: Server, configure: Configure, access: DatabaseAccess
) -> None:
    """And the outage is told, once by the loop and once for all results that wait."""
    await jobs_for(owner, 3)
    gates = [Gate() for _ in range(3)]
    waiting = iter(gates)
    sender = FakeSender(lambda request: next(waiting)(request))
    name = await owner.fetchval("SELECT current_database()")
    async with AsyncExitStack() as stack:
        reported = stack.enter_context(facts())
        await stack.enter_async_context(running(configure(), access, ["worker"], sender))
        for gate in gates:
            stack.callback(gate.opened.set)
        await until(lambda: sender.under_way == 3)
        async with servers.out_of_reach(server, name):
            for left, gate in enumerate(gates, start=1):
                gate.opened.set()
                await until(lambda: sender.under_way == 3 - left)  # noqa: B023
            await until(lambda: [fact for fact, _ in reported].count("database.lost") == 2)
        await until_row(
            owner,
            "SELECT count(*) FROM webhook_delivery_jobs WHERE status = 'Completed'",
            wanted=3,
        )
    assert len(sender.requests) == 3
    names = [fact for fact, _ in reported]
    assert names.count("database.lost") == 2 and "component.failed" not in names


async def test_draining_finishes_what_is_under_way_and_leases_no_more(
    owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    await jobs_for(owner, 10)
    gate = Gate()
    sender = FakeSender(gate)
    async with running(configure({"worker.concurrency": 4}), access, ["worker"], sender) as process:
        await until(lambda: sender.under_way == 4)
        process.stop()
        asyncio.get_running_loop().call_later(0.1, gate.opened.set)
    assert await counted(owner) == {"Completed": 4, "Pending": 6}
    assert sender.closed


async def test_draining_without_a_database_ends_when_the_leases_have(
    owner: Any, worker: Make, open_store: OpenStore
) -> None:
    class GoneStore(WatchedStore):
        async def finish_jobs(self, bucket: int, reports: Any) -> Any:
            raise DatabaseUnreachable("gone")

    await jobs_for(owner, 1)
    sender = FakeSender()
    store = GoneStore(store_of(WorkerStore, await open_store("worker"), "w"))
    each = await worker(sender, store=store, request_seconds=0.1, lease_seconds=5.2)
    await each.step()
    await until(lambda: len(sender.requests) == 1 and not sender.under_way)
    each._lease_seconds = 0.3  # as much of the lease is left
    async with asyncio.timeout(PATIENCE):
        await each.drain()
    assert sender.closed
    assert await counted(owner) == {"Leased": 1}


async def test_a_sender_that_raises_costs_one_attempt_and_is_told(owner: Any, worker: Make) -> None:
    """It promises not to; if it does all the same, the job must not wait for its lease."""
    (bad,) = await jobs_for(owner, 1, payload='"bad"')
    await jobs_for(owner, 3)

    async def raising(request: Request) -> Outcome:
        if request.body == b'"bad"':
            raise RuntimeError("unexpected")
        return DELIVERED

    each = await worker(FakeSender(raising))
    await each.step()
    await each.drain()
    assert await counted(owner) == {"Completed": 3, "Failed": 1}
    assert (
        await owner.fetchval("SELECT error_code FROM webhook_delivery_jobs WHERE id = $1", bad)
        == "INTERNAL_ERROR"
    )


# ── Requests ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("column", ["active", "verified"])
async def test_a_job_of_an_inactive_subscription_fails_unsent(
    owner: Any, worker: Make, column: str
) -> None:
    subscription = await a_subscription(owner)
    await jobs_for(owner, 2, subscription_id=subscription)
    await jobs_for(owner, 2)
    await owner.execute(f"UPDATE subscriptions SET {column} = false WHERE id = $1", subscription)
    sender = FakeSender()
    each = await worker(sender)
    await each.step()
    await each.drain()
    rows = await owner.fetch("SELECT status, error_code FROM webhook_delivery_jobs")
    assert Counter(tuple(row) for row in rows) == {
        ("Failed", "SUBSCRIPTION_INACTIVE"): 2,
        ("Completed", None): 2,
    }
    assert len(sender.requests) == 2


@pytest.mark.parametrize("key", [None, "ab" * 32], ids=["no key", "another key"])
async def test_a_worker_without_the_key_of_the_newest_secret_does_not_start(
    owner: Any, configure: Configure, access: DatabaseAccess, key: str | None
) -> None:
    await a_subscription(owner)
    process = Process(configure(), replace(access, encryption_key=key))
    try:
        with pytest.raises(ConfigError, match="stored secret is sealed with key"):
            await process.open(["worker"])
    finally:
        await process.close()


async def test_secrets_that_cannot_be_used_fail_their_own_jobs_only(
    owner: Any, worker: Make
) -> None:
    none = await a_subscription(owner, secret=None)
    odd = await a_subscription(owner, secret="not a secret of ours")
    foreign = await a_subscription(owner, secret=None)
    await owner.execute(
        "INSERT INTO subscription_secrets (subscription_id, scheme, sealed) VALUES ($1, 'v1', $2)",
        foreign,
        Sealer([b"another key of thirty-two bytes!"]).seal("whsec_", "subscription_secrets"),
    )
    headers = await a_subscription(owner, custom_headers="not sealed at all")
    good = await a_subscription(owner)
    for subscription in (none, odd, foreign, headers, good):
        await jobs_for(owner, 2, subscription_id=subscription)
    sender = FakeSender()
    each = await worker(sender)
    with facts() as reported:
        await each.step()
        await each.drain()
    details = {fields["subscription_id"]: str(fields["failure_detail"]) for _, fields in reported}
    assert details[none] == "The subscription has no secret."
    assert "SUREHOOK_ENCRYPTION_KEY has" in details[foreign]
    rows = await owner.fetch(
        "SELECT subscription_id, status, error_code FROM webhook_delivery_jobs"
    )
    found = Counter((row[0], row[1], row[2]) for row in rows)
    assert found.pop((good, "Completed", None)) == 2
    assert found == {
        (sub, "Failed", "SECRET_UNAVAILABLE"): 2 for sub in (none, odd, foreign, headers)
    }
    assert len(sender.requests) == 2


async def test_every_live_secret_signs_and_no_expired_one(owner: Any, worker: Make) -> None:
    subscription = await a_subscription(owner)
    another = await a_secret(owner, subscription, "whsec_" + base64.b64encode(b"a" * 32).decode())
    expired = await a_secret(owner, subscription, "whsec_" + base64.b64encode(b"b" * 32).decode())
    await owner.execute(
        "UPDATE subscription_secrets SET expires_at = surehook_now() + CASE WHEN id = $1 "
        "THEN interval '1 hour' ELSE interval '-1 second' END WHERE id IN ($1, $2)",
        another,
        expired,
    )
    await jobs_for(owner, 1, subscription_id=subscription)
    sender = FakeSender()
    each = await worker(sender)
    await each.step()
    await each.drain()
    assert dict(sender.requests[0].headers)["webhook-signature"].count("v1,") == 2


PAYLOADS = [
    '{"b":1,   "a" : 2,"a":3}',
    "  [1.10, 1e400, -0, 12345678901234567890123]  ",
    '"\\u0000 \\ud83d\\ude00 é 漢 \\/"',
    "\n\ttrue\r\n",
]


@pytest.mark.parametrize("payload", PAYLOADS)
async def test_the_payload_arrives_byte_for_byte(
    owner: Any, configure: Configure, access: DatabaseAccess, payload: str
) -> None:
    config = configure(
        {
            "delivery.allow_networks": "127.0.0.0/8",
            "delivery.ca_file": str(certificates.ca_file()),
        }
    )
    async with Receiver() as receiver:
        subscription = await a_subscription(owner, callback_url=f"{receiver.url}/")
        await jobs_for(owner, 1, subscription_id=subscription, payload=payload)
        async with running(config, access, ["worker"], https=True):
            await receiver.received(1)
        assert receiver.requests[0].body == payload.encode()


async def test_the_timestamp_is_the_databases(owner: Any, worker: Make, clock: Clock) -> None:
    await clock.shift(-86_400)
    await jobs_for(owner, 1)
    begin = int(time.time()) - 86_400
    sender = FakeSender()
    each = await worker(sender)
    await each.step()
    await each.drain()
    stamp = int(dict(sender.requests[0].headers)["webhook-timestamp"])
    assert begin - 1 <= stamp <= time.time() - 86_400 + 1


async def test_a_failed_attempt_leaves_the_saga_alone(owner: Any, worker: Make) -> None:
    await jobs_for(owner, 1)
    before = await owner.fetchrow("SELECT * FROM webhook_delivery_sagas")
    each = await worker(FakeSender(lambda _: failed()))
    await each.step()
    await each.drain()
    assert await owner.fetchrow("SELECT * FROM webhook_delivery_sagas") == before
    assert before["status"] == SagaStatus.IN_PROGRESS
