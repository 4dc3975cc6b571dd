"""The worker's statements. Reads jobs, events, subscriptions; writes jobs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from msgspec.structs import astuple

from surehook.model.records import JobId, JobReport, Lane, LeasedJob, SagaId
from surehook.store.database import Database

# The fields of a JobReport, in order, as finish_jobs calls them.
_REPORTED = (
    "job_ids",
    "statuses",
    "response_statuses",
    "error_codes",
    "retry_afters",
    "response_excerpts",
    "lease_tokens",
)


class WorkerStore:
    def __init__(self, database: Database, worker_id: str) -> None:
        self._database = database
        self._worker_id = worker_id

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
        rows = await self._database.all(
            "lease_jobs",
            bucket=bucket,
            first_lane=lanes[0],
            last_lane=lanes[1],
            count=count,
            bytes=payload_bytes,
            lease_seconds=lease_seconds,
            lease_token=lease_token,
            worker_id=self._worker_id,
        )
        return [LeasedJob(*row) for row in rows]

    async def lease_suspect_job(
        self, bucket: int, lease_seconds: float, lease_token: int
    ) -> list[LeasedJob]:
        rows = await self._database.all(
            "lease_suspect_job",
            bucket=bucket,
            lease_seconds=lease_seconds,
            lease_token=lease_token,
            worker_id=self._worker_id,
        )
        return [LeasedJob(*row) for row in rows]

    async def newest_secret(self) -> list[str]:
        """The sealed secret that was stored last; none where there is none yet."""
        return [row[0] for row in await self._database.all("newest_secret")]

    async def live_secrets(self, subscription_ids: Sequence[int]) -> list[tuple[int, str]]:
        """Subscription and sealed secret, the newest secret first."""
        rows = await self._database.all("live_secrets", subscription_ids=subscription_ids)
        return [(row[0], row[1]) for row in rows]

    async def suspect_waits(self, bucket: int) -> bool:
        row = await self._database.one("suspect_waits", bucket=bucket)
        return bool(row and row[0])

    async def finish_jobs(
        self, bucket: int, reports: Sequence[JobReport]
    ) -> list[tuple[JobId, SagaId]]:
        """Write results; a job that is not returned was no longer ours to write."""
        # In order of id, like every statement that updates several jobs; then column by column.
        ordered = sorted(map(astuple, reports), key=itemgetter(0))
        columns = [list(column) for column in zip(*ordered, strict=True)]
        rows = await self._database.all(
            "finish_jobs",
            bucket=bucket,
            **dict(zip(_REPORTED, columns, strict=True)),
            worker_id=self._worker_id,
        )
        return [(row[0], row[1]) for row in rows]

    async def give_back_jobs(
        self, bucket: int, leases: Sequence[tuple[JobId, int]], lane: Lane | None = None
    ) -> list[JobId]:
        """Into another lane, if one is given."""
        ordered = sorted(leases)
        rows = await self._database.all(
            "give_back_jobs",
            bucket=bucket,
            job_ids=[job_id for job_id, _ in ordered],
            lease_tokens=[token for _, token in ordered],
            lane=lane,
        )
        return [row[0] for row in rows]
