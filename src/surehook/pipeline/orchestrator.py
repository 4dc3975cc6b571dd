"""Orchestrator: due sagas get a job, job results move their saga. Nobody else changes a saga.

Role    saga_orchestrator
Reads   webhook_delivery_sagas, webhook_delivery_jobs, subscriptions' limits
Writes  UPDATE webhook_delivery_sagas, INSERT webhook_delivery_jobs, orchestrator_subscriptions
Never   deletes, leases, sends, looks at events or payloads

Create: first the job, then the saga's move to InProgress; a crash in between is repaired by doing
it again. It is the scheduler too: a bounded number of open jobs in all, each subscription's cap
exactly, fair between tenants and subscriptions.
Apply: hinted results at once, and behind the hints a walk over all sagas in progress.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from surehook import observe
from surehook.delivery import ErrorCode
from surehook.observe import crashpoints
from surehook.pipeline.hints import Channel, Hints
from surehook.pipeline.service import Component
from surehook.records import AppliedResult, PickedSaga, WaitingSubscription, correlation_id
from surehook.retry import Policy
from surehook.states import SagaStatus
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
# A result that came before its saga's move to InProgress was committed is tried so often again;
# after that the walk finds it.
HINT_TRIES = 5

PERMANENT = tuple(str(code) for code in ErrorCode if code.permanent)

_FACT = {
    SagaStatus.COMPLETED: "saga.completed",
    SagaStatus.PENDING_RETRY: "saga.retrying",
    SagaStatus.DEAD_LETTERED: "saga.dead_lettered",
}

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Bucket:
    """What the orchestrator remembers of one bucket; all of it may be forgotten at any time."""

    number: int
    results: dict[int, int] = field(default_factory=dict)  # hinted saga → tries so far
    walk_after: WalkKey = WALK_START
    walk_due: float = 0.0
    rotate_after: int = 0
    look_due: float = 0.0
    open_jobs: int = 1 << 60  # an upper bound; counted anew when it matters
    idle: bool = False  # nothing was due at the last look


class Orchestrator(Component):
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
        cap: int = 32,
    ) -> None:
        super().__init__()
        self._store = store
        self._hints = hints
        self._buckets = {number: _Bucket(number) for number in buckets}
        self._policy = policy
        self._batch = batch
        self._open_max = max(open_jobs // len(buckets), 1)
        self._cap = cap

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
        room = await self._room(bucket)
        if room <= 0:
            return BLOCKED_SECONDS
        waiting = await self._store.due_subscriptions(bucket.number, self._batch)
        bucket.idle = not waiting
        if not waiting:
            return await self._until_due(bucket)
        hidden = sum(item.due for item in waiting) >= self._batch
        now = time.monotonic()
        # A backlog that could take all the room each time leaves half of it now and then.
        looking = hidden and now >= bucket.look_due
        created = await self._create_for(bucket, waiting, room // 2 if looking else room)
        if looking or (hidden and created < room):
            bucket.look_due = now + LOOK_SECONDS
            created += await self._look_around(bucket, room - created)
        return 0 if created >= room else BLOCKED_SECONDS

    async def _until_due(self, bucket: _Bucket) -> float:
        seconds = await self._store.next_due(bucket.number)
        return POLL_MAX_SECONDS if seconds is None else min(max(seconds, 0), POLL_MAX_SECONDS)

    async def _room(self, bucket: _Bucket) -> int:
        """How many jobs may be created now."""
        if bucket.open_jobs + self._batch > self._open_max:
            bucket.open_jobs = await self._store.count_open_jobs(bucket.number, self._open_max)
        return min(self._open_max - bucket.open_jobs, self._batch)

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
        self, bucket: _Bucket, waiting: list[WaitingSubscription], room: int
    ) -> int:
        shares = fair_shares(waiting, room)
        if not shares:
            return 0
        limited: set[int] = {item.subscription_id for item in waiting if item.rate_limited}
        await crashpoints.here("orchestrator.before_create")
        picked = await self._store.create_jobs(bucket.number, shares, self._cap, limited)
        if not picked:
            return 0
        bucket.open_jobs += len(picked)
        await crashpoints.here("orchestrator.after_create")
        await self._store.start_sagas(bucket.number, picked)
        await crashpoints.here("orchestrator.after_start")
        self._hints.tell(Channel.JOBS, bucket.number)
        _report_created(picked)
        return len(picked)

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
            finished, bucket_next = await self._store.walk_in_progress(
                bucket.number, bucket.walk_after, self._batch
            )
            if finished:
                await self._apply_to(bucket, finished)
            bucket.walk_after = bucket_next or WALK_START
            bucket.walk_due = now if bucket_next else now + WALK_SECONDS
            if bucket_next or finished:
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
            self._hints.tell(Channel.DEATHS, bucket.number, deaths)
        _report_applied(applied)
        return applied


def fair_shares(waiting: Sequence[WaitingSubscription], room: int) -> dict[int, int]:
    """Who gets how many of `room` places: equal between tenants, then between subscriptions."""
    tenants: dict[str, list[WaitingSubscription]] = {}
    for item in random.sample(waiting, len(waiting)):
        tenants.setdefault(item.tenant, []).append(item)
    demand = {tenant: sum(_demand(item, room) for item in own) for tenant, own in tenants.items()}
    shares: dict[int, int] = {}
    for tenant, places in split(room, demand).items():
        own = {int(item.subscription_id): _demand(item, room) for item in tenants[tenant]}
        shares.update(split(places, own))
    return {subscription_id: places for subscription_id, places in shares.items() if places}


def _demand(item: WaitingSubscription, room: int) -> int:
    return item.due or room  # 0 = not counted


def split(room: int, demand: dict[K, int]) -> dict[K, int]:
    """Max-min fair: nobody gets more than it asks for, what it leaves is shared by the others.

    With fewer places than askers, the first askers get one each: callers shuffle them.
    """
    askers: Iterable[K] = demand
    if room >= len(demand):
        askers = sorted(demand, key=lambda key: demand[key])
    shares: dict[K, int] = {}
    left = len(demand)
    for key in askers:
        shares[key] = min(demand[key], max(room // left, 1), room)
        room -= shares[key]
        left -= 1
    return shares


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
