"""The orchestrator's statements on PostgreSQL. Reads sagas, jobs, limits; writes sagas or jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from surehook.model.records import AppliedResult, Pace, PickedSaga, Share
from surehook.model.retry import EXPONENT_MAX, Policy
from surehook.model.states import SagaStatus
from surehook.store.database import Session
from surehook.store.orchestrator import RAMP_GROWTH, SLOW_SECONDS, OrchestratorStore


class PostgresOrchestratorStore(OrchestratorStore):
    async def create_jobs(
        self, bucket: int, shares: Sequence[Share], limited: set[int]
    ) -> list[PickedSaga]:
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
