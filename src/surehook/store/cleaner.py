"""The cleaner's statements. Reads and writes jobs."""

from __future__ import annotations

from surehook.model.records import ExpiredLease
from surehook.model.states import LEASE_EXPIRIES_MAX, JobStatus
from surehook.store.database import Database


class CleanerStore:
    def __init__(self, database: Database) -> None:
        self._database = database

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

    async def next_expiry(self, bucket: int) -> float | None:
        """Seconds until the next lease expires."""
        row = await self._database.one("next_expiry", bucket=bucket)
        return None if row is None else row[0]
