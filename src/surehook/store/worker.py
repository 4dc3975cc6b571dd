"""The worker's statements. Reads jobs, events, subscriptions; writes jobs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from surehook.model.records import JobId, JobReport, Lane, LeasedJob, SagaId, WaitingJob
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
    async def lease_known_jobs(
        self,
        bucket: int,
        job_ids: Sequence[int],
        payload_bytes: int,
        lease_seconds: float,
        lease_token: int,
        *,
        suspect: bool = False,
        lane: Lane | None = None,
    ) -> list[LeasedJob]:
        """These, as far as they still wait; into another lane, if one is given.
        `suspect`: only such as outlived a lease; otherwise none of those."""

    @statement
    async def waiting_jobs(
        self, bucket: int, lane: int, count: int, subscription_ids: Sequence[int]
    ) -> list[WaitingJob]:
        """What waits in a lane; `subscription_ids`: of those that have requests which last."""

    @statement
    async def newest_secret(self) -> list[str]:
        """The sealed secret that was stored last; none where there is none yet."""

    @statement
    async def live_secrets(self, subscription_ids: Sequence[int]) -> list[tuple[int, str]]:
        """Subscription and sealed secret, the newest secret first."""

    @statement
    async def suspect_job(self, bucket: int) -> JobId | None:
        """The first that waits of those that outlived a lease."""

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
