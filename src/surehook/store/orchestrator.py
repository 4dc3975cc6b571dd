"""The orchestrator's statements. Reads sagas, jobs, limits; writes sagas or jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from surehook.records import AppliedResult, PickedSaga, SagaId, WaitingSubscription
from surehook.retry import EXPONENT_MAX, Policy
from surehook.states import SagaStatus
from surehook.store.database import Database, Session

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
WalkKey = tuple[datetime, int]
WALK_START: WalkKey = (BEGINNING, 0)


class OrchestratorStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._ensured: set[int] = set()

    async def due_subscriptions(self, bucket: int, count: int) -> list[WaitingSubscription]:
        rows = await self._database.all("due_subscriptions", bucket=bucket, count=count)
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

    async def count_open_jobs(self, bucket: int, count: int) -> int:
        row = await self._database.one("count_open_jobs", bucket=bucket, count=count)
        return int(row[0]) if row else 0

    async def create_jobs(
        self, bucket: int, shares: dict[int, int], cap: int, limited: set[int]
    ) -> list[PickedSaga]:
        """Create jobs for at most `shares` due sagas per subscription, never above its cap.

        The rows of the subscriptions stay locked until the jobs are committed.
        """
        if not self._ensured.issuperset(shares):
            await self._database.all("ensure_subscriptions", subscription_ids=sorted(shares))
            self._ensured.update(shares)

        async def work(session: Session) -> list[PickedSaga]:
            rows = await session.all("lock_subscriptions", subscription_ids=sorted(shares))
            mine = [row[0] for row in rows]
            if not mine:
                return []
            rows = await session.all(
                "create_jobs",
                bucket=bucket,
                subscription_ids=mine,
                shares=[shares[subscription_id] for subscription_id in mine],
                cap=cap,
            )
            picked_by_id: dict[int, PickedSaga] = {}
            for row in rows:  # those with a job come first and stay
                picked_by_id.setdefault(row[0], PickedSaga(*row))
            picked = list(picked_by_id.values())
            spent = Counter(
                saga.subscription_id
                for saga in picked
                if saga.job_id is not None and saga.subscription_id in limited
            )
            if spent:
                await session.all(
                    "spend_rate", subscription_ids=list(spent), spent=list(spent.values())
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
        )
        return [
            AppliedResult(row[0], row[1], row[2], SagaStatus(row[3]), row[4], row[5], row[6])
            for row in rows
        ]

    async def walk_in_progress(
        self, bucket: int, after: WalkKey, count: int
    ) -> tuple[list[SagaId], WalkKey | None]:
        """One page of sagas in progress: those whose job has ended, and where to go on."""
        rows = await self._database.all(
            "walk_in_progress",
            bucket=bucket,
            after_attempt_at=after[0],
            after_id=after[1],
            count=count,
        )
        finished = [SagaId(row[1]) for row in rows if row[2]]
        return finished, (rows[-1][0], rows[-1][1]) if len(rows) == count else None
