"""The worker's statements. Reads jobs, events, subscriptions; writes jobs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from surehook.model.records import JobId, JobReport, Lane, LeasedJob, SagaId
from surehook.store.contract import Store, statement
from surehook.store.database import Database


class WorkerStore(Store):
    def __init__(self, database: Database, worker_id: str) -> None:
        super().__init__(database)
        self._worker_id = worker_id

    @abstractmethod
    async def lease_jobs(
        self,
        bucket: int,
        lanes: tuple[int, int],
        count: int,
        payload_bytes: int,
        lease_seconds: float,
        lease_token: int,
    ) -> list[LeasedJob]:
        """From the first to the last of these lanes."""

    @abstractmethod
    async def lease_suspect_job(
        self, bucket: int, lease_seconds: float, lease_token: int
    ) -> list[LeasedJob]: ...

    @statement
    async def newest_secret(self) -> list[str]:
        """The sealed secret that was stored last; none where there is none yet."""

    @statement
    async def live_secrets(self, subscription_ids: Sequence[int]) -> list[tuple[int, str]]:
        """Subscription and sealed secret, the newest secret first."""

    @statement
    async def suspect_waits(self, bucket: int) -> bool: ...

    @abstractmethod
    async def finish_jobs(
        self, bucket: int, reports: Sequence[JobReport]
    ) -> list[tuple[JobId, SagaId]]:
        """Write results; a job that is not returned was no longer ours to write."""

    @abstractmethod
    async def give_back_jobs(
        self, bucket: int, leases: Sequence[tuple[JobId, int]], lane: Lane | None = None
    ) -> list[JobId]:
        """Into another lane, if one is given."""
