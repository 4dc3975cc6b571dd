"""The orchestrator's statements. Reads sagas, jobs, limits; writes sagas or jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from surehook.model.records import (
    AppliedResult,
    Pace,
    PickedSaga,
    SagaId,
    Share,
    SubscriptionId,
    WaitingSubscription,
)
from surehook.model.retry import EXPONENT_MAX, Policy
from surehook.model.states import SagaStatus
from surehook.store.database import Database, Session

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
WalkKey = tuple[datetime, int]
WALK_START: WalkKey = (BEGINNING, 0)
# A request that took so long was slow; an endpoint is slow while one lasts for twice as long.
SLOW_SECONDS = 1.0
HANGS_SECONDS = 2 * SLOW_SECONDS
# A new subscription begins with so many jobs at once.
FIRST_RAMP = 2
# By so much a ramp grows with each batch of answers.
RAMP_GROWTH = 4


class Caps(msgspec.Struct, frozen=True):
    """The limits of a subscription that are not its own."""

    default: int = 32  # jobs open at once
    most: int = 1 << 30  # … whatever it says itself
    rate: float | None = None  # the highest rate, also without a limit of its own
    first_ramp: int = 0  # of a subscription that is new; 0 = none


NO_CAPS = Caps()


class Walked(msgspec.Struct, frozen=True):
    """One page of sagas in progress."""

    finished: list[SagaId]
    slow: set[SubscriptionId]  # a request is under way for long
    next: WalkKey | None  # where to go on


class OrchestratorStore:
    def __init__(self, database: Database, caps: Caps = NO_CAPS) -> None:
        self._database = database
        self.caps = caps
        self._ensured: set[int] = set()

    async def due_subscriptions(self, bucket: int, count: int) -> list[WaitingSubscription]:
        rows = await self._database.all("due_subscriptions", bucket=bucket, count=count)
        return [WaitingSubscription(*row) for row in rows]

    async def newest_subscriptions(self, bucket: int, count: int) -> list[WaitingSubscription]:
        rows = await self._database.all("newest_subscriptions", bucket=bucket, count=count)
        return [WaitingSubscription(*row) for row in rows]

    async def rotate_subscriptions(
        self, bucket: int, after_id: int, count: int
    ) -> list[WaitingSubscription]:
        rows = await self._database.all(
            "rotate_subscriptions", bucket=bucket, after_id=after_id, count=count
        )
        return [WaitingSubscription(*row) for row in rows]

    async def next_due(self, bucket: int) -> float | None:
        """Seconds until something is due; negative if something is overdue."""
        row = await self._database.one("next_due", bucket=bucket)
        return None if row is None else row[0]

    async def count_open_jobs(self, bucket: int, count: int) -> list[tuple[str, int, int]]:
        """Tenant, lane (or LASTING_EXPRESS, LASTING) and how many; of at most `count` jobs."""
        rows = await self._database.all(
            "count_open_jobs", bucket=bucket, count=count, lasting_seconds=SLOW_SECONDS
        )
        return [(row[0], row[1], int(row[2])) for row in rows]

    async def create_jobs(
        self, bucket: int, shares: Sequence[Share], limited: set[int]
    ) -> list[PickedSaga]:
        """Create jobs for at most so many due sagas per subscription, never above its cap.

        The rows of the subscriptions stay locked until the jobs are committed.
        """
        wanted = {share.subscription_id: share for share in shares}
        if not self._ensured.issuperset(wanted):
            await self._database.all(
                "ensure_subscriptions",
                subscription_ids=sorted(wanted),
                ramp=self.caps.first_ramp,
            )
            self._ensured.update(wanted)

        async def work(session: Session) -> list[PickedSaga]:
            rows = await session.all("lock_subscriptions", subscription_ids=sorted(wanted))
            mine = [wanted[row[0]] for row in rows]
            if not mine:
                return []
            rows = await session.all(
                "create_jobs",
                bucket=bucket,
                subscription_ids=[share.subscription_id for share in mine],
                shares=[share.places for share in mine],
                lanes=[share.lane for share in mine],
                ramps=[share.ramp for share in mine],
                cap=self.caps.default,
                cap_max=self.caps.most,
                rate_max=self.caps.rate,
            )
            picked_by_id: dict[int, PickedSaga] = {}
            for row in rows:  # those with a job come first and stay
                picked_by_id.setdefault(row[0], PickedSaga(*row))
            picked = list(picked_by_id.values())
            spent = Counter(
                saga.subscription_id
                for saga in picked
                if saga.job_id is not None
                and (self.caps.rate is not None or saga.subscription_id in limited)
            )
            if spent:
                await session.all(
                    "spend_rate",
                    subscription_ids=list(spent),
                    spent=list(spent.values()),
                    rate_max=self.caps.rate,
                )
            return picked

        return await self._database.in_transaction(work)

    async def start_sagas(self, bucket: int, picked: Sequence[PickedSaga]) -> None:
        # In order of id, like every statement that updates several sagas: no circle of waiting.
        ordered = sorted(picked, key=lambda saga: saga.saga_id)
        await self._database.all(
            "start_sagas",
            bucket=bucket,
            saga_ids=[saga.saga_id for saga in ordered],
            attempts_at=[saga.attempt_at for saga in ordered],
        )

    async def apply_results(
        self, bucket: int, saga_ids: Sequence[int], policy: Policy, permanent: Sequence[str]
    ) -> list[AppliedResult]:
        rows = await self._database.all(
            "apply_results",
            bucket=bucket,
            saga_ids=sorted(saga_ids),
            permanent=permanent,
            max_attempts=policy.max_attempts,
            base_delay_seconds=policy.base_delay_seconds,
            max_delay_seconds=policy.max_delay_seconds,
            exponent_max=EXPONENT_MAX,
            slow_after=timedelta(seconds=SLOW_SECONDS),
        )
        return [
            AppliedResult(row[0], row[1], row[2], SagaStatus(row[3]), *tuple(row)[4:])
            for row in rows
        ]

    async def set_paces(self, paces: Mapping[int, Pace]) -> None:
        # In order of id, like every statement that updates several of these rows.
        ordered = sorted(paces.items())
        await self._database.all(
            "set_paces",
            subscription_ids=[subscription_id for subscription_id, _ in ordered],
            slows=[pace.slow for _, pace in ordered],
            steps=[pace.step for _, pace in ordered],
            cap=self.caps.default,
            cap_max=self.caps.most,
            ramp_growth=RAMP_GROWTH,
        )

    async def walk_in_progress(self, bucket: int, after: WalkKey, count: int) -> Walked:
        rows = await self._database.all(
            "walk_in_progress",
            bucket=bucket,
            after_attempt_at=after[0],
            after_id=after[1],
            count=count,
        )
        return Walked(
            [row[1] for row in rows if row[3] is not None and row[3] < 0],
            {row[2] for row in rows if row[3] is not None and row[3] >= HANGS_SECONDS},
            (rows[-1][0], rows[-1][1]) if len(rows) == count else None,
        )
