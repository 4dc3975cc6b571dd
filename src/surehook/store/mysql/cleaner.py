"""The cleaner's statements on MySQL. Reads and writes jobs."""

from __future__ import annotations

from surehook.model.records import ExpiredLease
from surehook.model.states import LEASE_EXPIRIES_MAX, JobStatus
from surehook.store.cleaner import CleanerStore
from surehook.store.database import Row
from surehook.store.mysql.database import MysqlSession


class MysqlCleanerStore(CleanerStore):
    async def reset_expired_leases(
        self, bucket: int, count: int, error_code: str
    ) -> list[ExpiredLease]:
        """Lock what has expired, then change exactly that."""

        async def work(session: MysqlSession) -> list[ExpiredLease]:
            rows = await session.all("expired_leases", bucket=bucket, count=count)
            expired = [_ended(row, error_code) for row in rows]
            for name, status, more in (
                ("reset_expired_leases", JobStatus.PENDING, {}),
                ("fail_expired_leases", JobStatus.FAILED, {"error_code": error_code}),
            ):
                ids = sorted(one.job_id for one in expired if one.status is status)
                if ids:
                    await session.write(name, bucket=bucket, job_ids=ids, **more)
            return expired

        return await self._database.in_transaction(work)


def _ended(row: Row, error_code: str) -> ExpiredLease:
    job_id, saga_id, event_id, resets, worker_id, lease_until = row
    last = resets + 1 >= LEASE_EXPIRIES_MAX
    return ExpiredLease(
        job_id,
        saga_id,
        event_id,
        JobStatus.FAILED if last else JobStatus.PENDING,
        resets + 1,
        worker_id,
        lease_until,
        error_code if last else None,
    )
