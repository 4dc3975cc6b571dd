"""Worker: leases jobs, sends them, writes what came of it.

Role    job_worker
Reads   webhook_delivery_jobs, events, subscriptions, subscription_secrets
Writes  UPDATE webhook_delivery_jobs
Never   touches a saga, creates a job, decides about a retry

It leases only what it has free slots and memory for, so that no lease runs out unsent, and keeps
some of both for those that have little under way (slots.py). Results are written in batches that
nobody waits for longer than 20 ms. A job that outlived a lease may have killed its worker: such a
job is leased alone, when nothing else is under way.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from surehook import observe
from surehook.delivery import ErrorCode, Outcome, Request, Sender
from surehook.delivery.compose import Composer, Unsigned
from surehook.errors import DatabaseUnreachable
from surehook.model.records import JobReport, Lane, LeasedJob, correlation_id
from surehook.model.states import JobStatus, SagaStatus
from surehook.observe import crashpoints
from surehook.pipeline.service import Loop
from surehook.pipeline.signers import Signers
from surehook.pipeline.slots import Room, Slots
from surehook.store.hints import Channel, Hints
from surehook.store.orchestrator import SLOW_SECONDS
from surehook.store.worker import WorkerStore

POLL_FAST_SECONDS = 0.01  # while there is work
# Slots that became free wait no longer than this for others to be filled with.
GATHER_SECONDS = 0.02
POLL_SECONDS = 0.05
IDLE_POLL_SECONDS = 0.5
IDLE_AFTER = 40
# A result waits no longer than this for others to be written with.
RESULT_WAIT_SECONDS = 0.015
RESULT_BATCH = 250
# An attempt begins only if its lease outlasts its deadline by this much.
LEASE_SPARE_SECONDS = 1.0
# While more waits than there are slots for, what may hang is asked for this often.
HANGING_LOOK_SECONDS = 0.05
# Suspects are looked for this often; they then may have this much of the worker to themselves.
SUSPECT_LOOK_SECONDS = 2.0
SUSPECT_TURN_SECONDS = 1.0


def new_worker_id() -> str:
    """Tells workers apart in logs and in the jobs they hold."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(3)}"


class _Lease:
    """A job under way."""

    __slots__ = ("aged", "bucket", "ended", "job", "started", "token")

    def __init__(self, job: LeasedJob, bucket: int, token: int) -> None:
        self.job = job
        self.bucket = bucket
        self.token = token
        self.started = time.monotonic()
        self.ended = False
        self.aged = False  # it has lasted for long


class Worker(Loop):
    name = "worker"
    urgent = True
    wakes_on = (Channel.JOBS,)

    def __init__(
        self,
        store: WorkerStore,
        hints: Hints,
        buckets: Sequence[int],
        *,
        sender: Sender,
        composer: Composer,
        worker_id: str,
        concurrency: int = 256,
        slow_requests: int = 256,
        memory: int = 64 * 1024 * 1024,
        lease_seconds: float = 30.0,
    ) -> None:
        super().__init__()
        self._store = store
        self._hints = hints
        self._buckets = list(buckets)
        self._sender = sender
        self._composer = composer
        self._signers = Signers(store, composer)
        self._worker_id = worker_id
        self._slots = Slots(concurrency, slow_requests, memory)
        self._lease_seconds = lease_seconds
        self._under_way: set[asyncio.Task[None]] = set()
        self._memory_short = False
        self._busy = False  # more waited than there were slots for
        self._hanging_due = 0.0
        self._lasting: Counter[int] = Counter()  # subscription → requests under way for long
        self._results: dict[int, list[tuple[_Lease, JobReport]]] = {
            bucket: [] for bucket in buckets
        }
        self._flush_due: asyncio.TimerHandle | None = None
        self._flushes: set[asyncio.Task[None]] = set()
        self._outage_logged = False
        self._empty_polls = 0
        self._leased_at = 0.0
        self._suspects_due = 0.0
        self._draining_for_suspects = False

    async def start(self) -> None:
        await self._sender.start()

    # ── Leasing ───────────────────────────────────────────────────────────────────────────────

    async def step(self) -> float:
        if time.monotonic() >= self._suspects_due:
            await self._look_for_suspects()
        if self._draining_for_suspects:
            if self._under_way:
                return IDLE_POLL_SECONDS  # the last one to end wakes us
            await self._run_suspects()
        self._memory_short = self._slots.memory_short
        if not self._slots.questions(busy=True):
            return IDLE_POLL_SECONDS  # a slot or memory that becomes free wakes us
        gather = self._leased_at + GATHER_SECONDS - time.monotonic()
        if self._slots.bulk_free < self._worth_leasing() and gather > 0:
            return gather
        self._leased_at = time.monotonic()
        leased, self._busy = await self._lease()
        if leased:
            self._empty_polls = 0
            return 0 if self._busy else POLL_FAST_SECONDS
        self._empty_polls += 1
        return POLL_SECONDS if self._empty_polls < IDLE_AFTER else IDLE_POLL_SECONDS

    def _worth_leasing(self) -> int:
        """A statement for one free slot costs as much as one for many: let some gather, but not
        for long, for the others may be busy with endpoints that hang."""
        return max(1, min(self._slots.concurrency // 4, 128))

    async def _lease(self) -> tuple[int, bool]:
        """How many jobs were leased, and whether more wait in the lanes that go first."""
        total, more = 0, False
        for room in self._slots.questions(busy=self._busy):
            hanging = room.lanes[0] >= Lane.UNPROVEN
            if hanging and self._busy and time.monotonic() < self._hanging_due:
                break
            leased = await self._lease_from(room)
            total += leased
            more |= not hanging and leased >= room.count
        if not more or time.monotonic() >= self._hanging_due:
            self._hanging_due = time.monotonic() + HANGING_LOOK_SECONDS
        self._buckets = self._buckets[1:] + self._buckets[:1]
        return total, more

    async def _lease_from(self, room: Room) -> int:
        """Lease from each bucket in turn; whichever was first goes last next time."""
        total, payload_bytes = 0, room.payload_bytes
        for bucket in self._buckets:
            if total >= room.count or payload_bytes <= 0:
                break
            token = secrets.randbits(62)
            jobs = await self._store.lease_jobs(
                bucket, room.lanes, room.count - total, payload_bytes, self._lease_seconds, token
            )
            total += len(jobs)
            payload_bytes -= sum(len(job.payload) for job in jobs)
            await self._begin(jobs, bucket, token)
        return total

    async def _begin(self, jobs: list[LeasedJob], bucket: int, token: int) -> None:
        if not jobs:
            return
        leases = [_Lease(job, bucket, token) for job in jobs]
        await crashpoints.here("worker.after_lease")
        if self._lasting:
            leases = await self._set_aside(leases)
            if not leases:
                return
        try:
            requests = await self._prepare(leases)
        except Exception:
            await self._give_back(leases)
            raise
        loop = asyncio.get_running_loop()
        begun = []
        for lease, request in zip(leases, requests, strict=True):
            if isinstance(request, Outcome):
                self._finished(lease, request)
                continue
            self._slots.begin(lease.job.lane, len(lease.job.payload))
            begun.append(lease)
            task = loop.create_task(self._deliver(lease, request))
            self._under_way.add(task)
            task.add_done_callback(self._ended)
        loop.call_later(SLOW_SECONDS, self._age, begun)

    async def _prepare(self, leases: Sequence[_Lease]) -> list[Request | Outcome]:
        """One request per lease, in order; or what became of it, where it must not be sent."""
        jobs = [lease.job for lease in leases]
        await self._signers.refresh({job.subscription_id for job in jobs if job.deliverable})
        return [self._prepared(job) for job in jobs]

    def _prepared(self, job: LeasedJob) -> Request | Outcome:
        if not job.deliverable:
            return Outcome(None, ErrorCode.SUBSCRIPTION_INACTIVE, sent=False)
        try:
            return self._composer.delivery(job, self._signers.of(job.subscription_id))
        except Unsigned as unsigned:
            return unsigned.outcome()

    async def _set_aside(self, leases: list[_Lease]) -> list[_Lease]:
        """The others. What waits for an endpoint that has begun to hang would take slots that
        others can use: it is given back, to wait elsewhere."""
        aside: list[_Lease] = []
        others: list[_Lease] = []
        for lease in leases:
            hangs = lease.job.lane < Lane.UNPROVEN and self._lasting[lease.job.subscription_id]
            (aside if hangs else others).append(lease)
        await self._give_back(aside, Lane.ASIDE)
        return others

    def _age(self, leases: list[_Lease]) -> None:
        """Those that are still under way leave their slots to others."""
        for lease in leases:
            if not lease.ended:
                lease.aged = True
                self._slots.age(lease.job.lane)
                self._lasting[lease.job.subscription_id] += 1
                self.wake()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The lease runs out and the cleaner returns the job; this is a bug to be seen.
            observe.emit("component.failed", component=self.name, reason=repr(error))
        free = self._slots.bulk_free
        has_room = self._memory_short and not self._slots.memory_short
        worth_it = free in (1, self._slots.bulk_max, self._worth_leasing())
        if worth_it or has_room or self._slots.express_free == 1:
            self.wake()

    # ── Suspects ──────────────────────────────────────────────────────────────────────────────

    async def _look_for_suspects(self) -> None:
        self._suspects_due = time.monotonic() + SUSPECT_LOOK_SECONDS
        for bucket in self._buckets:
            if await self._store.suspect_waits(bucket):
                self._draining_for_suspects = True

    async def _run_suspects(self) -> None:
        """One after the other, each alone, for a while; then the others have as long."""
        self._draining_for_suspects = False
        looked = self._suspects_due - SUSPECT_LOOK_SECONDS
        until = time.monotonic() + SUSPECT_TURN_SECONDS
        for bucket in self._buckets:
            while time.monotonic() < until:
                token = secrets.randbits(62)
                jobs = await self._store.lease_suspect_job(bucket, self._lease_seconds, token)
                if not jobs:
                    break
                await self._begin(jobs, bucket, token)
                await asyncio.gather(*self._under_way)
                await self._flush_all()
        now = time.monotonic()
        self._suspects_due = max(self._suspects_due, now + (now - looked))

    # ── Sending ───────────────────────────────────────────────────────────────────────────────

    async def _deliver(self, lease: _Lease, request: Request) -> None:
        try:
            left = self._lease_seconds - (time.monotonic() - lease.started)
            if left < request.deadline_seconds + LEASE_SPARE_SECONDS:
                await self._give_back([lease])
                return
            await crashpoints.here("worker.before_send")
            try:
                outcome = await self._sender.send(request)
            except Exception as error:  # it promises not to raise: ours to report, not to lose
                outcome = Outcome(
                    None, ErrorCode.INTERNAL_ERROR, failure_detail=type(error).__name__
                )
            await crashpoints.here("worker.after_send")
            self._finished(lease, outcome)
        finally:
            lease.ended = True
            if lease.aged:
                self._lasting -= Counter({lease.job.subscription_id: 1})  # keeps none at zero
            self._slots.end(lease.job.lane, len(lease.job.payload), aged=lease.aged)

    async def _give_back(self, leases: Sequence[_Lease], lane: Lane | None = None) -> None:
        """Unsent, so not an attempt: anyone may lease them again. All of one bucket."""
        if not leases:
            return
        with suppress(DatabaseUnreachable):  # then the cleaner returns them
            held = [(lease.job.job_id, lease.token) for lease in leases]
            await self._store.give_back_jobs(leases[0].bucket, held, lane)
        for lease in leases:
            observe.emit(
                "job.given_back",
                correlation_id=correlation_id(lease.job.event_id),
                saga_id=lease.job.saga_id,
                job_id=lease.job.job_id,
                delivery_status=SagaStatus.IN_PROGRESS,
                lease_expiration=lease.job.lease_until,
                worker_id=self._worker_id,
            )

    # ── Results ───────────────────────────────────────────────────────────────────────────────

    def _finished(self, lease: _Lease, outcome: Outcome) -> None:
        job = lease.job
        self._report(lease, outcome)
        results = self._results[lease.bucket]
        report = JobReport(
            job.job_id,
            JobStatus.COMPLETED if outcome.delivered else JobStatus.FAILED,
            outcome.response_status,
            outcome.error_code,
            outcome.retry_after_seconds,
            outcome.response_excerpt,
            outcome.kept_detail,
            lease.token,
        )
        results.append((lease, report))
        if len(results) >= RESULT_BATCH or len(self._under_way) <= 1:
            self._flush(lease.bucket)
        elif self._flush_due is None:
            loop = asyncio.get_running_loop()
            self._flush_due = loop.call_later(RESULT_WAIT_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_due = None
        for bucket in self._buckets:
            self._flush(bucket)

    def _flush(self, bucket: int) -> None:
        if self._results[bucket]:
            results, self._results[bucket] = self._results[bucket], []
            task = asyncio.get_running_loop().create_task(self._write(bucket, results))
            self._flushes.add(task)
            task.add_done_callback(self._flushes.discard)

    async def _flush_all(self) -> None:
        self._flush_now()
        while self._flushes:
            await asyncio.gather(*self._flushes)

    async def _write(self, bucket: int, results: list[tuple[_Lease, JobReport]]) -> None:
        """Until it is written: a result is worth more than the wait. Expired leases are settled
        by the cleaner meanwhile, and a success is taken even then."""
        reports = [report for _, report in results]
        pause = 0.1
        while True:
            try:
                written = await self._store.finish_jobs(bucket, reports)
                break
            except Exception as error:
                self._log_outage(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
        self._outage_logged = False
        await crashpoints.here("worker.after_finish")
        self._hints.hint(Channel.RESULTS, bucket, (saga_id for _, saga_id in written))
        if len(written) < len(reports):
            known = {job_id for job_id, _ in written}
            for lease, report in results:
                if report.job_id not in known:
                    observe.emit(
                        "result.refused",
                        correlation_id=correlation_id(lease.job.event_id),
                        saga_id=lease.job.saga_id,
                        job_id=report.job_id,
                        delivery_status=SagaStatus.IN_PROGRESS,
                        error_code=report.error_code,
                        lease_expiration=lease.job.lease_until,
                        worker_id=self._worker_id,
                    )

    def _log_outage(self, error: Exception) -> None:
        """Log an outage once, not once per waiting batch."""
        if not isinstance(error, DatabaseUnreachable):
            observe.emit("component.failed", component=self.name, reason=str(error))
        elif not self._outage_logged:
            self._outage_logged = True
            observe.emit("database.lost", component=self.name, reason=error.message)

    def _report(self, lease: _Lease, outcome: Outcome) -> None:
        if not observe.wanted("delivery.attempted"):
            return
        job = lease.job
        seconds = time.monotonic() - lease.started
        observe.emit(
            "delivery.attempted",
            correlation_id=correlation_id(job.event_id),
            saga_id=job.saga_id,
            job_id=job.job_id,
            delivery_status=SagaStatus.IN_PROGRESS,
            subscription_id=job.subscription_id,
            delivered=outcome.delivered,
            response_status=outcome.response_status,
            error_code=outcome.error_code,
            failure_detail=outcome.failure_detail,
            milliseconds=round(seconds * 1000, 1),
            event_age_seconds=round(job.event_age_seconds + seconds, 4),
            lease_expiration=job.lease_until,
            worker_id=self._worker_id,
        )

    async def drain(self) -> None:
        """What is being sent ends by its own deadline; then every result is written.

        Without a database that is tried for as long as a lease lasts: after that the cleaner has
        given the jobs to others.
        """
        if self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._lease_seconds):
                await self._flush_all()
        await self._sender.close()
