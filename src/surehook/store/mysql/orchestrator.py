"""The orchestrator's statements on MySQL. Reads sagas, jobs, limits; writes sagas or jobs.

There is no RETURNING and no LATERAL here: rows are locked and read, decided upon in Python (by the
same decide() that the set-based SQL of the other engine is tested against), and then written, in
one short transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, zip_longest

from surehook.model.records import (
    AppliedResult,
    JobId,
    Pace,
    PickedSaga,
    Share,
    WaitingSubscription,
)
from surehook.model.retry import Policy
from surehook.model.states import (
    JOB_ACTIVE,
    SAGA_WAITING,
    Attempt,
    Change,
    JobResult,
    JobStatus,
    SagaStatus,
    decide,
)
from surehook.store.database import Row
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.mysql.values import Rows, Table
from surehook.store.orchestrator import RAMP_GROWTH, SLOW_SECONDS, Caps, OrchestratorStore

TICK = timedelta(microseconds=1)
CLOCK_SET_BACK_SECONDS = 60.0  # more than two orchestrators differ by


@dataclass(slots=True)
class _Room:
    """How many jobs a subscription may get now, and what its rate limit has left."""

    places: int
    lane: int
    rate: float | None = None
    tokens: float = 0.0


class MysqlOrchestratorStore(OrchestratorStore):
    _database: MysqlDatabase

    async def rotate_subscriptions(
        self, bucket: int, after_id: int, count: int
    ) -> list[WaitingSubscription]:
        several = self._database.buckets > 1
        rows = await self._database.all(
            "rotate_over_subscriptions" if several else "rotate_subscriptions",
            bucket=bucket,
            after_id=after_id,
            count=count,
        )
        return [WaitingSubscription(*row) for row in rows]

    # ── Create ────────────────────────────────────────────────────────────────────────────────

    async def create_jobs(
        self, bucket: int, shares: Sequence[Share], limited: set[int]
    ) -> list[PickedSaga]:
        wanted = {share.subscription_id: share for share in shares}
        await self._ensure(wanted)

        async def work(session: MysqlSession) -> list[PickedSaga]:
            rooms = await _rooms(session, wanted, self.caps)
            due = await _due_sagas(session, bucket, rooms)
            if not due:
                return []
            there = await session.all(
                "jobs_there", bucket=bucket, saga_ids=[saga.saga_id for saga in due]
            )
            known = {(row[0], row[1]) for row in there}
            # A job of another attempt that is still active: no protocol leads there, but a hand
            # may. It would refuse the whole statement; its saga waits for it to end.
            busy = {row[0] for row in there if row[2] in JOB_ACTIVE}
            missing = [
                saga
                for saga in due
                if (saga.saga_id, saga.attempt_at) not in known and saga.saga_id not in busy
            ]
            created = await _insert_jobs(session, bucket, missing, rooms)
            await _spend(session, rooms, created)
            return created + [saga for saga in due if (saga.saga_id, saga.attempt_at) in known]

        return await self._database.in_transaction(work)

    async def _ensure(self, shares: Iterable[int]) -> None:
        """Every subscription has its row, before anyone locks it."""
        new = set(shares) - self._ensured
        if not new:
            return

        async def work(session: MysqlSession) -> None:
            rows = await session.all("known_subscriptions", subscription_ids=sorted(new))
            missing = sorted(new - {row[0] for row in rows})
            if missing:
                await session.write(
                    "ensure_subscriptions",
                    given=Rows((one, self.caps.first_ramp) for one in missing),
                )

        await self._database.run(work)
        self._ensured |= new

    async def start_sagas(self, bucket: int, picked: Sequence[PickedSaga]) -> None:
        ordered = sorted(picked, key=lambda saga: saga.saga_id)
        await self._database.write(
            "start_sagas",
            bucket=bucket,
            saga_ids=[saga.saga_id for saga in ordered],
            given=Rows((saga.saga_id, saga.attempt_at) for saga in ordered),
        )

    # ── Apply ─────────────────────────────────────────────────────────────────────────────────

    async def apply_results(
        self, bucket: int, saga_ids: Sequence[int], policy: Policy, permanent: Sequence[str]
    ) -> list[AppliedResult]:
        async def work(session: MysqlSession) -> list[AppliedResult]:
            sagas = await session.all("lock_in_progress", bucket=bucket, saga_ids=sorted(saga_ids))
            if not sagas:
                return []
            rows = await session.all(
                "job_results", bucket=bucket, saga_ids=[saga[0] for saga in sagas]
            )
            jobs = {(row[0], row[1]): row for row in rows}
            applied = [
                _applied(saga, job, policy, permanent)
                for saga in sagas
                if (job := jobs.get((saga[0], saga[3]))) is not None
            ]
            await _write_results(session, bucket, applied, now=sagas[0][4])
            return [result for result, _ in applied]

        return await self._database.in_transaction(work)

    async def set_paces(self, paces: Mapping[int, Pace]) -> None:
        await self._database.write(
            "set_paces",
            given=Table(
                (subscription_id, int(pace.slow), pace.step)
                for subscription_id, pace in sorted(paces.items())
            ),
            cap=self.caps.default,
            cap_max=self.caps.most,
            ramp_growth=RAMP_GROWTH,
        )


# ── Creating ──────────────────────────────────────────────────────────────────────────────────


async def _rooms(
    session: MysqlSession, shares: Mapping[int, Share], caps: Caps
) -> dict[int, _Room]:
    """Lock the subscriptions' rows; how much room is in each that is free."""
    rows = await session.all("lock_subscriptions", subscription_ids=sorted(shares))
    held = {row[0]: row for row in rows}
    if not held:
        return {}
    limits = await session.all("limits", subscription_ids=list(held))
    rows = await session.all("open_jobs", subscription_ids=list(held))
    open_jobs: dict[int, int] = {row[0]: row[1] for row in rows}
    rooms = {}
    for subscription_id, own_cap, own_rate in limits:
        share = shares[subscription_id]
        cap = min(own_cap or caps.default, caps.most, share.ramp or caps.most)
        free = cap - open_jobs.get(subscription_id, 0)
        room = _Room(min(share.places, free), share.lane)
        rate = min((one for one in (own_rate, caps.rate) if one is not None), default=None)
        if rate is not None:
            _, tokens, seconds = held[subscription_id]
            room.rate = rate
            room.tokens = _refilled(rate, tokens, float(seconds))
            room.places = min(room.places, int(room.tokens))
        rooms[subscription_id] = room
    return rooms


def _refilled(rate: float, tokens: float, seconds: float) -> float:
    """A clock that was set back must not hold up a limited subscription until it has caught up."""
    full = max(rate, 1.0)
    return full if seconds < -CLOCK_SET_BACK_SECONDS else min(full, tokens + rate * seconds)


async def _due_sagas(
    session: MysqlSession, bucket: int, rooms: dict[int, _Room]
) -> list[PickedSaga]:
    """Per subscription first attempts and retries take turns."""
    wanted = [(number, room.places) for number, room in rooms.items() if room.places > 0]
    rows = await session.union(
        "due_sagas",
        [
            {"bucket": bucket, "waiting": status, "subscription_id": number, "count": places}
            for number, places in wanted
            for status in SAGA_WAITING
        ],
    )
    waiting: dict[int, dict[str, list[PickedSaga]]] = {}
    for saga_id, attempt_at, event_id, subscription_id, status in rows:
        saga = PickedSaga(saga_id, attempt_at, event_id, subscription_id, None)
        waiting.setdefault(subscription_id, {}).setdefault(status, []).append(saga)
    due: list[PickedSaga] = []
    for subscription_id, by_status in waiting.items():
        turns = chain.from_iterable(zip_longest(*by_status.values()))
        due += [saga for saga in turns if saga is not None][: rooms[subscription_id].places]
    # Subscriptions are mixed: it is soon known which of them hang.
    return sorted(due, key=lambda saga: saga.saga_id)


async def _insert_jobs(
    session: MysqlSession, bucket: int, sagas: Sequence[PickedSaga], rooms: dict[int, _Room]
) -> list[PickedSaga]:
    if not sagas:
        return []
    written = await session.write(
        "create_jobs",
        given=Rows(
            (
                saga.saga_id,
                saga.attempt_at,
                saga.event_id,
                saga.subscription_id,
                bucket,
                rooms[saga.subscription_id].lane,
            )
            for saga in sagas
        ),
    )
    return [
        PickedSaga(
            saga.saga_id, saga.attempt_at, saga.event_id, saga.subscription_id, JobId(job_id)
        )
        for saga, job_id in zip(sagas, written.ids(), strict=True)
    ]


async def _spend(
    session: MysqlSession, rooms: dict[int, _Room], created: Iterable[PickedSaga]
) -> None:
    spent = Counter(saga.subscription_id for saga in created)
    for subscription_id, count in sorted(spent.items()):
        room = rooms[subscription_id]
        if room.rate is not None:
            await session.write(
                "spend_rate", subscription_id=subscription_id, rate_tokens=room.tokens - count
            )


# ── Applying ──────────────────────────────────────────────────────────────────────────────────


def _applied(
    saga: Row, job: Row, policy: Policy, permanent: Sequence[str]
) -> tuple[AppliedResult, datetime]:
    """What becomes of a saga by its job, and the attempt that it had."""
    saga_id, event_id, attempt_count, attempt_at, now = saga
    _, _, job_id, status, error_code, retry_after, max_attempts, base_delay = tuple(job)[:8]
    subscription_id, lane, seconds = tuple(job)[8:]
    own = policy
    if base_delay is not None or max_attempts is not None:
        own = Policy(
            max_attempts or policy.max_attempts,
            base_delay or policy.base_delay_seconds,
            policy.max_delay_seconds,
        )
    result = JobResult(JobStatus(status), error_code, error_code in permanent, retry_after)
    change = decide(Attempt(SagaStatus.IN_PROGRESS, attempt_count), result, own)
    assert change is not None
    applied = AppliedResult(
        saga_id,
        event_id,
        job_id,
        change.target,
        change.attempt_count,
        error_code,
        _next_attempt_at(change, attempt_at, now),
        subscription_id,
        lane,
        seconds is not None and seconds >= SLOW_SECONDS,
    )
    return applied, attempt_at


def _next_attempt_at(change: Change, attempt_at: datetime, now: datetime) -> datetime:
    if change.target is not SagaStatus.PENDING_RETRY:
        return attempt_at
    return max(attempt_at + TICK, now + timedelta(seconds=change.delay_seconds))


async def _write_results(
    session: MysqlSession,
    bucket: int,
    applied: Sequence[tuple[AppliedResult, datetime]],
    now: datetime,
) -> None:
    completed = [
        (result.saga_id, attempt_at)
        for result, attempt_at in applied
        if result.status is SagaStatus.COMPLETED
    ]
    if completed:
        await session.write(
            "complete_sagas",
            bucket=bucket,
            saga_ids=[saga_id for saga_id, _ in completed],
            given=Rows(completed),
        )
    failed = [pair for pair in applied if pair[0].status is not SagaStatus.COMPLETED]
    if failed:
        await session.write(
            "fail_sagas",
            bucket=bucket,
            now=now,
            given=Table(
                (
                    result.saga_id,
                    attempt_at,
                    result.status,
                    result.error_code,
                    result.next_attempt_at,
                )
                for result, attempt_at in failed
            ),
        )
