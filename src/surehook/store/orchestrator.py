"""The orchestrator's statements. Reads sagas, jobs, limits; writes sagas or jobs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

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
from surehook.model.retry import Policy
from surehook.store.contract import Store, statement
from surehook.store.database import Database

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
    rate: float | None = None  # the highest rate, also without its own limit
    first_ramp: int = 0  # of a subscription that is new; 0 = none


NO_CAPS = Caps()


class Walked(msgspec.Struct, frozen=True):
    """One page of sagas in progress."""

    finished: list[SagaId]
    slow: set[SubscriptionId]  # a request is under way for long
    next: WalkKey | None  # where to go on


class OrchestratorStore(Store):
    def __init__(self, database: Database, caps: Caps = NO_CAPS) -> None:
        super().__init__(database)
        self.caps = caps
        self._ensured: set[int] = set()

    @statement
    async def due_subscriptions(self, bucket: int, count: int) -> list[WaitingSubscription]: ...

    @statement
    async def newest_subscriptions(self, bucket: int, count: int) -> list[WaitingSubscription]: ...

    @statement
    async def rotate_subscriptions(
        self, bucket: int, after_id: int, count: int
    ) -> list[WaitingSubscription]: ...

    @statement
    async def next_due(self, bucket: int) -> float | None:
        """Seconds until something is due; negative if something is overdue."""

    async def count_open_jobs(self, bucket: int, count: int) -> list[tuple[str, int, int]]:
        """Tenant, lane (or LASTING_EXPRESS, LASTING) and how many; of at most `count` jobs."""
        rows = await self._database.all(
            "count_open_jobs", bucket=bucket, count=count, lasting_seconds=SLOW_SECONDS
        )
        return [(row[0], row[1], int(row[2])) for row in rows]

    @abstractmethod
    async def create_jobs(
        self, bucket: int, shares: Sequence[Share], limited: set[int]
    ) -> list[PickedSaga]:
        """Create jobs for at most so many due sagas per subscription, never above its cap.

        The rows of the subscriptions stay locked until the jobs are committed.
        """

    @abstractmethod
    async def start_sagas(self, bucket: int, picked: Sequence[PickedSaga]) -> None: ...

    @abstractmethod
    async def apply_results(
        self, bucket: int, saga_ids: Sequence[int], policy: Policy, permanent: Sequence[str]
    ) -> list[AppliedResult]: ...

    @abstractmethod
    async def set_paces(self, paces: Mapping[int, Pace]) -> None: ...

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
