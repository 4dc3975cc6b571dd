"""The cleaner's statements on PostgreSQL. Reads and writes jobs."""

from __future__ import annotations

from surehook.model.records import ExpiredLease
from surehook.model.states import LEASE_EXPIRIES_MAX, JobStatus
from surehook.store.cleaner import CleanerStore


class PostgresCleanerStore(CleanerStore):
    async def reset_expired_leases(
        self, bucket: int, count: int, error_code: str
    ) -> list[ExpiredLease]:
        rows = await self._database.all(
            "reset_expired_leases",
            bucket=bucket,
            count=count,
            expiries_max=LEASE_EXPIRIES_MAX,
            error_code=error_code,
        )
        return [
            ExpiredLease(row[0], row[1], row[2], JobStatus(row[3]), *tuple(row)[4:]) for row in rows
        ]
