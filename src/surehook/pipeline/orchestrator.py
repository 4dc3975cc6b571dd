"""Orchestrator: due sagas get a job, job results move their saga. Nobody else changes a saga.

Role    saga_orchestrator
Reads   webhook_delivery_sagas, webhook_delivery_jobs, subscriptions' limits
Writes  UPDATE webhook_delivery_sagas, INSERT webhook_delivery_jobs, orchestrator_subscriptions
Never   deletes, leases, sends, looks at events or payloads

Create: first the job, then the saga's move to InProgress; a crash in between is repaired by doing
it again. It is the scheduler too: a bounded number of open jobs in all, each subscription's cap
exactly, shares that leave room for others whatever hangs (shares.py).
Apply: hinted results at once, and behind the hints a walk over all sagas in progress. Both notice
endpoints that are slow.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from surehook import observe
from surehook.model.error_codes import ErrorCode
from surehook.model.records import (
    AppliedResult,
    Lane,
    Pace,
    PickedSaga,
    Share,
    WaitingSubscription,
    correlation_id,
)
from surehook.model.retry import Policy
from surehook.model.states import SagaStatus
from surehook.observe import crashpoints
from surehook.pipeline.service import Loop
from surehook.pipeline.shares import (
    LASTING,
    LASTING_EXPRESS,
    Limits,
    OpenJobs,
    much_hangs,
    plan,
)
from surehook.store.hints import Channel, Hints
from surehook.store.orchestrator import WALK_START, OrchestratorStore, WalkKey

# Something is due but its subscription is at its cap, or another orchestrator has it.
BLOCKED_SECONDS = 0.03
POLL_MAX_SECONDS = 0.5
# A round of the walk begins this long after the last one ended.
WALK_SECONDS = 0.5
# While a backlog fills the view, what stands behind it is looked at this often.
LOOK_SECONDS = 0.1
# How many subscriptions one look around the blocked ones takes in.
ROTATION = 200
# How many of the newest due sagas are looked at while a backlog fills the view.
NEWEST = 200
# Open jobs are reckoned from what this orchestrator does, and counted this often …
COUNT_SECONDS = 1.0
# … or, while someone gets less than it asks for, this often.
COUNT_CUT_SECONDS = 0.1
# If nothing of what is in the lane for bulk has ended for so long, it hangs.
BULK_STUCK_SECONDS = 0.5
# When only endpoints that may hang have anything due, and their places are taken.
HELD_SECONDS = 0.1
# Such a subscription that got nothing is asked again after this, or when a request of it ends.
ASK_AGAIN_SECONDS = 0.25
# Whose tenant is remembered.
TENANTS_MAX = 100_000
# A result that came before its saga's move to InProgress was committed is tried so often again;
# after that the walk finds it.
HINT_TRIES = 5

PERMANENT = tuple(str(code) for code in ErrorCode if code.permanent)

_FACT = {
    SagaStatus.COMPLETED: "saga.completed",
    SagaStatus.PENDING_RETRY: "saga.retrying",
    SagaStatus.DEAD_LETTERED: "saga.dead_lettered",
}


@dataclass(slots=True)
class _Bucket:
    """What the orchestrator remembers of one bucket; all of it may be forgotten at any time."""

    number: int
    results: dict[int, int] = field(default_factory=dict)  # hinted saga → tries so far
    walk_after: WalkKey = WALK_START
    walk_due: float = 0.0
    rotate_after: int = 0
    look_due: float = 0.0
    open: OpenJobs = field(default_factory=OpenJobs)
    counted_at: float = -COUNT_SECONDS
    cut: bool = False  # someone got less than it asked for
    bulk_flowed_at: float = 0.0  # nothing was in that lane, or something ended soon
    answering: set[str] = field(default_factory=set)  # tenants that did since much hangs
    held: dict[int, float] = field(default_factory=dict)  # subscription → not before
    idle: bool = False  # nothing was due at the last look


class Orchestrator(Loop):
    name = "orchestrator"
    urgent = True
    wakes_on = (Channel.SAGAS, Channel.RESULTS)

    def __init__(
        self,
        store: OrchestratorStore,
        hints: Hints,
        buckets: Sequence[int],
        *,
        policy: Policy,
        batch: int = 500,
        open_jobs: int = 4000,
        slots: int = 256,
        slow_slots: int = 256,
    ) -> None:
        """`slots` and `slow_slots`: what a worker has."""
        super().__init__()
        self._store = store
        self._hints = hints
        self._buckets = {number: _Bucket(number) for number in buckets}
        self._policy = policy
        self._batch = batch
        self._limits = Limits.of(open_jobs, slots, slow_slots, len(buckets))
        self._tenants: dict[int, str] = {}

    def heard(self, channel: Channel, bucket: int, ids: list[int]) -> None:
        if bucket in self._buckets:
            for saga_id in ids:
                self._buckets[bucket].results.setdefault(saga_id, 0)
        self.wake()

    async def step(self) -> float:
        rests: list[float] = []
        for bucket in self._buckets.values():
            # Both end before the step does, also when one of them fails.
            for result in await asyncio.gather(
                self._apply(bucket), self._create(bucket), return_exceptions=True
            ):
                if isinstance(result, BaseException):
                    raise result
                rests.append(result)
        return min(rests)

    # ── Create ────────────────────────────────────────────────────────────────────────────────

    async def _create(self, bucket: _Bucket) -> float:
        """Jobs for due sagas; returns the rest until more may be due."""
        if bucket.idle and (rest := await self._until_due(bucket)) > 0:
            return rest
        await self._count(bucket)
        room = min(self._limits.open_jobs - bucket.open.total, self._batch)
        if room <= 0:
            return BLOCKED_SECONDS
        waiting = await self._store.due_subscriptions(bucket.number, self._batch)
        bucket.idle = not waiting
        if not waiting:
            return await self._until_due(bucket)
        hidden = sum(item.due for item in waiting) >= self._batch
        queued = {item.tenant for item in waiting} if hidden else set()
        if hidden:
            newest = await self._store.newest_subscriptions(bucket.number, NEWEST)
            known = {item.subscription_id for item in waiting}
            waiting += (item for item in newest if item.subscription_id not in known)
        now = time.monotonic()
        # A backlog that could take all the room each time leaves half of it now and then.
        looking = hidden and now >= bucket.look_due
        created = await self._create_for(bucket, waiting, room // 2 if looking else room, queued)
        if looking:
            bucket.look_due = now + LOOK_SECONDS
            created += await self._look_around(bucket, room - created)
        if created >= room:
            return 0
        if created == 0 and all(item.slow or item.ramp for item in waiting):
            return HELD_SECONDS
        return BLOCKED_SECONDS

    async def _until_due(self, bucket: _Bucket) -> float:
        seconds = await self._store.next_due(bucket.number)
        return POLL_MAX_SECONDS if seconds is None else min(max(seconds, 0), POLL_MAX_SECONDS)

    async def _count(self, bucket: _Bucket) -> None:
        """The open jobs, if what is reckoned may be too far off."""
        age = time.monotonic() - bucket.counted_at
        full = bucket.open.total + self._batch > self._limits.open_jobs
        if age < (0 if full else COUNT_CUT_SECONDS if bucket.cut else COUNT_SECONDS):
            return
        rows = await self._store.count_open_jobs(bucket.number, self._limits.open_jobs)
        bucket.open.counted(rows)
        bucket.counted_at = time.monotonic()

    async def _look_around(self, bucket: _Bucket, room: int) -> int:
        """The oldest due sagas may all belong to blocked subscriptions: visit others in turn."""
        others = await self._store.rotate_subscriptions(
            bucket.number, bucket.rotate_after, ROTATION
        )
        if len(others) < ROTATION:
            bucket.rotate_after = 0
        else:
            bucket.rotate_after = max(item.subscription_id for item in others)
        return await self._create_for(bucket, others, room) if others else 0

    async def _create_for(
        self,
        bucket: _Bucket,
        waiting: list[WaitingSubscription],
        room: int,
        queued: Collection[str] = (),
    ) -> int:
        now = time.monotonic()
        if bucket.held:
            bucket.held = {number: until for number, until in bucket.held.items() if until > now}
            waiting = [item for item in waiting if item.subscription_id not in bucket.held]
        if not bucket.open.of_lane[Lane.BULK]:
            bucket.bulk_flowed_at = now
        bulk_flows = now < bucket.bulk_flowed_at + BULK_STUCK_SECONDS
        if not much_hangs(bucket.open, self._limits, bulk_flows=bulk_flows):
            bucket.answering.clear()
        made = plan(
            waiting,
            room,
            bucket.open,
            self._limits,
            self._store.caps.first_ramp,
            bulk_flows=bulk_flows,
            queued=queued,
            answering=bucket.answering,
        )
        bucket.cut = made.cut
        if not made.shares:
            return 0
        limited: set[int] = {item.subscription_id for item in waiting if item.rate_limited}
        await crashpoints.here("orchestrator.before_create")
        picked = await self._store.create_jobs(bucket.number, made.shares, limited)
        self._reckon(bucket, waiting, made.shares, picked, now)
        if not picked:
            return 0
        await crashpoints.here("orchestrator.after_create")
        await self._store.start_sagas(bucket.number, picked)
        await crashpoints.here("orchestrator.after_start")
        self._hints.hint(Channel.JOBS, bucket.number)
        _report_created(picked)
        return len(picked)

    def _reckon(
        self,
        bucket: _Bucket,
        waiting: Iterable[WaitingSubscription],
        shares: Iterable[Share],
        picked: Iterable[PickedSaga],
        now: float,
    ) -> None:
        """What was created is open; what may hang and got nothing is left alone for a moment."""
        if len(self._tenants) > TENANTS_MAX:
            self._tenants.clear()
        for item in waiting:
            self._tenants[item.subscription_id] = item.tenant
        created: Counter[int] = Counter(saga.subscription_id for saga in picked)
        for share in shares:
            number = share.subscription_id
            if created[number]:
                bucket.open.add(self._tenants[number], share.lane, created[number])
            elif share.lane >= Lane.UNPROVEN:
                bucket.held[number] = now + ASK_AGAIN_SECONDS

    # ── Apply ─────────────────────────────────────────────────────────────────────────────────

    async def _apply(self, bucket: _Bucket) -> float:
        """Results of ended jobs; returns the rest until the next look."""
        hinted = list(islice(bucket.results, self._batch))
        if hinted:
            await self._apply_hinted(bucket, hinted)
            # Those that came too early wait for the other half of their creation.
            fresh = any(tries == 0 for tries in bucket.results.values())
            rest = 0.0 if fresh else BLOCKED_SECONDS if bucket.results else WALK_SECONDS
        else:
            rest = WALK_SECONDS
        now = time.monotonic()
        if now >= bucket.walk_due:
            page = await self._store.walk_in_progress(bucket.number, bucket.walk_after, self._batch)
            if page.finished:
                await self._apply_to(bucket, page.finished)
            if page.slow:
                await self._store.set_paces(dict.fromkeys(page.slow, Pace(True, 0)))
            bucket.walk_after = page.next or WALK_START
            bucket.walk_due = now if page.next else now + WALK_SECONDS
            if page.next or page.finished:
                return 0
        return min(rest, max(bucket.walk_due - now, 0))

    async def _apply_hinted(self, bucket: _Bucket, hinted: list[int]) -> None:
        tries = {saga_id: bucket.results.pop(saga_id) + 1 for saga_id in hinted}
        applied = await self._apply_to(bucket, hinted)
        for saga_id in set(tries) - {result.saga_id for result in applied}:
            if tries[saga_id] < HINT_TRIES:
                bucket.results.setdefault(saga_id, tries[saga_id])

    async def _apply_to(self, bucket: _Bucket, saga_ids: Sequence[int]) -> list[AppliedResult]:
        await crashpoints.here("orchestrator.before_apply")
        applied = await self._store.apply_results(bucket.number, saga_ids, self._policy, PERMANENT)
        if applied:
            await crashpoints.here("orchestrator.after_apply")
        deaths = [r.saga_id for r in applied if r.status is SagaStatus.DEAD_LETTERED]
        if deaths:
            self._hints.hint(Channel.DEATHS, bucket.number, deaths)
        _report_applied(applied)
        await self._learn(bucket, applied)
        return applied

    async def _learn(self, bucket: _Bucket, applied: list[AppliedResult]) -> None:
        """What has ended is not open any more; how long it took says how the endpoint does."""
        ended = Counter((result.subscription_id, counted_lane(result)) for result in applied)
        for (subscription_id, lane), count in ended.items():
            tenant = self._tenants.get(subscription_id)
            if tenant is None:
                continue
            bucket.open.add(tenant, lane, -count)
            if lane == Lane.EXPRESS:
                bucket.answering.add(tenant)
        if any(result.lane == Lane.BULK and not result.slow for result in applied):
            bucket.bulk_flowed_at = time.monotonic()
        learnt = paces(applied)
        for number in learnt:
            bucket.held.pop(number, None)
        if learnt:
            await self._store.set_paces(learnt)


def counted_lane(result: AppliedResult) -> int:
    """Where the job was counted at last."""
    if not result.slow or result.lane >= Lane.SLOW:
        return result.lane
    return LASTING_EXPRESS if result.lane == Lane.EXPRESS else LASTING


def paces(applied: Iterable[AppliedResult]) -> dict[int, Pace]:
    """What the results say about endpoints; nothing about one that goes on answering quickly.

    What counts is how long a request held its slot, not whether it succeeded. A lease that ran out
    says something about a worker.
    """
    found: dict[int, Pace] = {}
    for result in applied:
        if result.lane < Lane.UNPROVEN and not result.slow:
            continue
        if result.error_code == ErrorCode.LEASE_EXPIRED:
            continue
        hung = bool(result.slow) and result.status is not SagaStatus.COMPLETED
        pace = Pace(bool(result.slow), -1 if hung else 1)
        before = found.get(result.subscription_id)
        if before is None or hung or (before.step > 0 and not pace.slow):
            found[result.subscription_id] = pace
    return found


def _report_created(picked: Iterable[PickedSaga]) -> None:
    if not observe.wanted("job.created"):
        return
    for saga in picked:
        observe.emit(
            "job.created",
            correlation_id=correlation_id(saga.event_id),
            saga_id=saga.saga_id,
            job_id=saga.job_id,
            delivery_status=SagaStatus.IN_PROGRESS,
        )


def _report_applied(applied: Iterable[AppliedResult]) -> None:
    for result in applied:
        if not observe.wanted(_FACT[result.status]):
            continue
        observe.emit(
            _FACT[result.status],
            correlation_id=correlation_id(result.event_id),
            saga_id=result.saga_id,
            job_id=result.job_id,
            delivery_status=result.status,
            attempt_count=result.attempt_count,
            error_code=result.error_code,
            next_attempt_at=(
                result.next_attempt_at if result.status is SagaStatus.PENDING_RETRY else None
            ),
        )
