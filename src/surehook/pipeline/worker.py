"""Worker: leases jobs, sends them, writes what came of it.

Role    job_worker
Reads   webhook_delivery_jobs, events, subscriptions, subscription_secrets
Writes  UPDATE webhook_delivery_jobs
Never   touches a saga, creates a job, decides about a retry

An attempt is one pipe: lease → prepare (a signed request) → send → report (results.py).

It leases only what it has free slots and memory for, so no lease runs out unsent, and keeps some of
both for those that have little under way (slots.py). While everything in BULK hangs, some of what
waits there goes by EXPRESS (rescue.py). A job that outlived a lease may have killed its worker:
such a job is leased alone, when nothing else is under way.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from surehook import observe
from surehook.delivery import Outcome, Request, Sender
from surehook.delivery.compose import Composer, Unsigned
from surehook.errors import DatabaseUnreachable
from surehook.model.error_codes import ErrorCode
from surehook.model.records import JobId, Lane, LeasedJob, WaitingJob
from surehook.observe import crashpoints
from surehook.observe.metrics import Sample
from surehook.pipeline import rescue
from surehook.pipeline.leases import Lease
from surehook.pipeline.results import Results
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
# An attempt begins only if its lease outlasts its deadline by this much.
LEASE_SPARE_SECONDS = 1.0
# While more waits than there are slots for, what may hang is asked for this often.
HANGING_LOOK_SECONDS = 0.05
# Suspects are looked for this often; they then may have this much of the worker to themselves.
SUSPECT_LOOK_SECONDS = 2.0
SUSPECT_TURN_SECONDS = 1.0
# BULK hangs if it is full and none of its requests has ended soon for so long.
BULK_HANGS_SECONDS = 0.5
# What waits there is then looked at so often.
RESCUE_SECONDS = 0.1
# How many of those that wait are looked at.
RESCUE_VIEW = 4000
# Whose last answer is remembered.
ANSWERED_MAX = 100_000


def new_worker_id() -> str:
    """Tells workers apart in logs and in the jobs they hold."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(3)}"


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
        self._buckets = list(buckets)
        self._sender = sender
        self._composer = composer
        self._signers = Signers(store, composer)
        self._worker_id = worker_id
        self._slots = Slots(concurrency, slow_requests, memory)
        self._lease_seconds = lease_seconds
        self._results = Results(store, hints, buckets, worker_id)
        self._under_way: dict[asyncio.Task[None], Lease] = {}
        self._memory_short = False
        self._busy = False  # more waited than there were slots for
        self._hanging_due = 0.0
        self._lasting: Counter[int] = Counter()  # subscription → requests under way for long
        self._answered: dict[int, float] = {}  # subscription → when its last quick request began
        self._bulk_moves = False  # a request of it has ended soon, since the last look
        self._bulk_moved_at = 0.0
        self._rescue_due = 0.0
        self._empty_polls = 0
        self._leased_at = 0.0
        self._suspects_due = 0.0
        self._draining_for_suspects = False

    async def start(self) -> None:
        await self._sender.start()

    def figures(self) -> Iterator[Sample]:
        yield "surehook_worker_requests", ["under_way"], len(self._under_way)
        yield "surehook_worker_requests", ["most"], self._slots.most
        yield "surehook_delivery_connections_total", ["opened"], self._sender.opened
        yield "surehook_delivery_connections_total", ["reused"], self._sender.reused

    # ── Lease ─────────────────────────────────────────────────────────────────────────────────

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
        if self._bulk_hangs():
            leased += await self._rescue()
            return min(self._rest(leased), RESCUE_SECONDS)
        return self._rest(leased)

    def _rest(self, leased: int) -> float:
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
            if jobs:
                await self._begin(jobs, bucket, token)
        return total

    # ── Rescue ────────────────────────────────────────────────────────────────────────────────

    def _bulk_hangs(self) -> bool:
        now = time.monotonic()
        if self._bulk_moves or self._slots.bulk_free > 0:
            self._bulk_moves = False
            self._bulk_moved_at = now
        if len(self._answered) > ANSWERED_MAX:
            self._answered.clear()
        return now >= self._bulk_moved_at + BULK_HANGS_SECONDS

    async def _rescue(self) -> int:
        """How many of those that wait in BULK were leased, to go by EXPRESS."""
        now = time.monotonic()
        if now < self._rescue_due:
            return 0
        self._rescue_due = now + RESCUE_SECONDS
        total = 0
        for bucket in self._buckets:
            waiting = await self._store.waiting_jobs(
                bucket, Lane.BULK, RESCUE_VIEW, self._hanging()
            )
            room, ids = self._worth_rescuing(waiting)
            if ids:
                total += await self._lease_known(bucket, ids, room.payload_bytes, Lane.EXPRESS)
        return total

    def _hanging(self) -> list[int]:
        """Subscriptions with a request under way for as long as BULK has not moved."""
        return sorted(
            {
                lease.job.subscription_id
                for lease in self._under_way.values()
                if lease.aged or lease.age_seconds() >= BULK_HANGS_SECONDS
            }
        )

    def _worth_rescuing(self, waiting: Sequence[WaitingJob]) -> tuple[Room, list[JobId]]:
        answered, since = self._answered, self._bulk_moved_at
        under_way = [lease.job for lease in self._under_way.values() if not lease.aged]
        silent = sum(
            job.lane == Lane.EXPRESS and answered.get(job.subscription_id, 0.0) <= since
            for job in under_way
        )
        room, probes = self._slots.rescue_room(silent)
        busy = {job.subscription_id for job in under_way} | set(self._lasting)
        return room, rescue.chosen(
            waiting,
            room.count,
            probes,
            answered=answered,
            since=since,
            busy=busy,
            trying=silent > 0,
        )

    async def _lease_known(
        self, bucket: int, ids: Sequence[JobId], payload_bytes: int, lane: Lane | None = None
    ) -> int:
        token = secrets.randbits(62)
        jobs = await self._store.lease_known_jobs(
            bucket, ids, payload_bytes, self._lease_seconds, token, lane=lane, suspect=lane is None
        )
        if jobs:
            await self._begin(jobs, bucket, token)
        return len(jobs)

    # ── Suspects ──────────────────────────────────────────────────────────────────────────────

    async def _look_for_suspects(self) -> None:
        self._suspects_due = time.monotonic() + SUSPECT_LOOK_SECONDS
        for bucket in self._buckets:
            if await self._store.suspect_job(bucket) is not None:
                self._draining_for_suspects = True

    async def _run_suspects(self) -> None:
        """One after the other, each alone, for a while; then the others have as long."""
        self._draining_for_suspects = False
        looked = self._suspects_due - SUSPECT_LOOK_SECONDS
        until = time.monotonic() + SUSPECT_TURN_SECONDS
        for bucket in self._buckets:
            while time.monotonic() < until:
                suspect = await self._store.suspect_job(bucket)
                if suspect is None or not await self._lease_known(bucket, [suspect], 1):
                    break
                await asyncio.gather(*self._under_way)
                await self._results.written()
        now = time.monotonic()
        self._suspects_due = max(self._suspects_due, now + (now - looked))

    # ── Prepare ───────────────────────────────────────────────────────────────────────────────

    async def _begin(self, jobs: list[LeasedJob], bucket: int, token: int) -> None:
        """Of each that was leased a request that is sent; or its result, where there is none."""
        leases = [Lease(job, bucket, token, self._lease_seconds) for job in jobs]
        await crashpoints.here("worker.after_lease")
        if self._lasting:
            leases = await self._set_aside(leases)
        started = []
        for lease, prepared in zip(leases, await self._prepared(leases), strict=True):
            if isinstance(prepared, Outcome):
                self._report(lease, prepared)
            else:
                self._start(lease, prepared)
                started.append(lease)
        asyncio.get_running_loop().call_later(SLOW_SECONDS, self._age, started)

    async def _set_aside(self, leases: list[Lease]) -> list[Lease]:
        """The others. What waits for an endpoint that has begun to hang would take slots that
        others can use: it is given back, to wait elsewhere."""
        aside: list[Lease] = []
        others: list[Lease] = []
        for lease in leases:
            hangs = lease.job.lane < Lane.UNPROVEN and self._lasting[lease.job.subscription_id]
            (aside if hangs else others).append(lease)
        await self._give_back(aside, Lane.ASIDE)
        return others

    async def _prepared(self, leases: Sequence[Lease]) -> list[Request | Outcome]:
        """One request per lease, in order; an outcome where there is nothing to send."""
        jobs = [lease.job for lease in leases]
        try:
            await self._signers.refresh({job.subscription_id for job in jobs if job.deliverable})
            return [self._request(job) for job in jobs]
        except Exception:
            await self._give_back(leases)
            raise

    def _request(self, job: LeasedJob) -> Request | Outcome:
        if not job.deliverable:
            return Outcome(None, ErrorCode.SUBSCRIPTION_INACTIVE, sent=False)
        try:
            return self._composer.delivery(job, self._signers.of(job.subscription_id))
        except Unsigned as unsigned:
            return unsigned.outcome()

    # ── Send ──────────────────────────────────────────────────────────────────────────────────

    def _start(self, lease: Lease, request: Request) -> None:
        self._slots.begin(lease.job.lane, len(lease.job.payload))
        task = asyncio.get_running_loop().create_task(self._attempt(lease, request))
        self._under_way[task] = lease
        task.add_done_callback(self._ended)

    async def _attempt(self, lease: Lease, request: Request) -> None:
        if lease.outlasts(request.deadline_seconds + LEASE_SPARE_SECONDS):
            self._report(lease, await self._send(request))
        else:
            await self._give_back([lease])

    async def _send(self, request: Request) -> Outcome:
        await crashpoints.here("worker.before_send")
        try:
            outcome = await self._sender.send(request)
        except Exception as error:  # it promises not to raise: ours to report, not to lose
            kind = type(error).__name__
            outcome = Outcome(None, ErrorCode.INTERNAL_ERROR, failure_detail=kind)
        await crashpoints.here("worker.after_send")
        return outcome

    def _age(self, leases: list[Lease]) -> None:
        """Those that are still under way leave their slots to others."""
        for lease in leases:
            if not lease.ended:
                lease.aged = True
                self._slots.age(lease.job.lane)
                self._lasting[lease.job.subscription_id] += 1
                self.wake()

    def _ended(self, task: asyncio.Task[None]) -> None:
        lease = self._under_way.pop(task)
        lease.ended = True
        if lease.aged:
            self._lasting -= Counter({lease.job.subscription_id: 1})  # keeps none at zero
        else:
            self._answered[lease.job.subscription_id] = lease.started
            self._bulk_moves |= lease.job.lane == Lane.BULK
        self._slots.end(lease.job.lane, len(lease.job.payload), aged=lease.aged)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The lease runs out and the cleaner returns the job; this is a bug to be seen.
            observe.emit("component.failed", component=self.name, reason=repr(error))
        free = self._slots.bulk_free
        has_room = self._memory_short and not self._slots.memory_short
        worth_it = free in (1, self._slots.bulk_max, self._worth_leasing())
        if worth_it or has_room or self._slots.express_free == 1:
            self.wake()

    # ── Report ────────────────────────────────────────────────────────────────────────────────

    def _report(self, lease: Lease, outcome: Outcome) -> None:
        if observe.wanted("delivery.attempted"):
            self._log(lease, outcome)
        self._results.add(lease, outcome, at_once=len(self._under_way) <= 1)

    def _log(self, lease: Lease, outcome: Outcome) -> None:
        seconds = lease.age_seconds()
        observe.emit(
            "delivery.attempted",
            subscription_id=lease.job.subscription_id,
            delivered=outcome.delivered,
            response_status=outcome.response_status,
            error_code=outcome.error_code,
            failure_detail=outcome.failure_detail,
            milliseconds=round(seconds * 1000, 1),
            event_age_seconds=round(lease.job.event_age_seconds + seconds, 4),
            **lease.log_fields(self._worker_id),
        )

    async def _give_back(self, leases: Sequence[Lease], lane: Lane | None = None) -> None:
        """Unsent, so not an attempt: any worker may lease them again. All of one bucket."""
        if not leases:
            return
        with suppress(DatabaseUnreachable):  # then the cleaner returns them
            held = [(lease.job.job_id, lease.token) for lease in leases]
            await self._store.give_back_jobs(leases[0].bucket, held, lane)
        for lease in leases:
            observe.emit("job.given_back", **lease.log_fields(self._worker_id))

    async def drain(self) -> None:
        """What is being sent ends by its own deadline; then every result is written.

        Without a database that is tried for as long as a lease lasts: after that the cleaner has
        given the jobs to others.
        """
        if self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._lease_seconds):
                await self._results.written()
        await self._sender.close()
