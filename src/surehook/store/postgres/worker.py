"""The worker's statements on PostgreSQL. Reads jobs, events, subscriptions; writes jobs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from msgspec.structs import astuple

from surehook.model.records import JobId, JobReport, Lane, LeasedJob, SagaId
from surehook.store.worker import WorkerStore

# The fields of a JobReport, in order, as finish_jobs calls them.
_REPORTED = (
    "job_ids",
    "statuses",
    "response_statuses",
    "error_codes",
    "retry_afters",
    "response_excerpts",
    "failure_details",
    "lease_tokens",
    "lease_resets",
)


class PostgresWorkerStore(WorkerStore):
    async def lease_jobs(
        self,
        bucket: int,
        lanes: tuple[int, int],
        count: int,
        payload_bytes: int,
        lease_seconds: float,
        lease_token: int,
    ) -> list[LeasedJob]:
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
        rows = await self._database.all(
            "lease_known_jobs",
            bucket=bucket,
            job_ids=sorted(job_ids),
            suspect=suspect,
            lane=lane,
            bytes=payload_bytes,
            lease_seconds=lease_seconds,
            lease_token=lease_token,
            worker_id=self._worker_id,
        )
        return [LeasedJob(*row) for row in rows]

    async def finish_jobs(
        self, bucket: int, reports: Sequence[JobReport]
    ) -> list[tuple[JobId, SagaId]]:
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
        ordered = sorted(leases)
        rows = await self._database.all(
            "give_back_jobs",
            bucket=bucket,
            job_ids=[job_id for job_id, _ in ordered],
            lease_tokens=[token for _, token in ordered],
            lane=lane,
        )
        return [row[0] for row in rows]
