"""Cleaner: jobs whose lease has expired go back, or fail after the 6th time.

Role    lease_cleaner
Reads   webhook_delivery_jobs
Writes  UPDATE webhook_delivery_jobs
Never   touches a saga
"""

from __future__ import annotations

from collections.abc import Sequence

from surehook import observe
from surehook.model.error_codes import ErrorCode
from surehook.model.records import correlation_id
from surehook.model.states import JobStatus, SagaStatus
from surehook.observe import crashpoints
from surehook.pipeline.service import Loop
from surehook.store.cleaner import CleanerStore
from surehook.store.hints import Channel, Hints

BATCH = 500
POLL_MAX_SECONDS = 1.0
# An expired lease that somebody holds is being written right now.
BLOCKED_SECONDS = 0.01


class Cleaner(Loop):
    name = "cleaner"

    def __init__(self, store: CleanerStore, hints: Hints, buckets: Sequence[int]) -> None:
        super().__init__()
        self._store = store
        self._hints = hints
        self._buckets = buckets

    async def step(self) -> float:
        rests = [await self._clean(bucket) for bucket in self._buckets]
        return min(rests)

    async def _clean(self, bucket: int) -> float:
        """A look alone writes nothing, and takes no lock."""
        rest = await self._until_expiry(bucket)
        if rest > 0:
            return rest
        await crashpoints.here("cleaner.before_reset")
        expired = await self._store.reset_expired_leases(bucket, BATCH, ErrorCode.LEASE_EXPIRED)
        if expired:
            await crashpoints.here("cleaner.after_reset")
        for lease in expired:
            observe.emit(
                "lease.expired",
                correlation_id=correlation_id(lease.event_id),
                saga_id=lease.saga_id,
                job_id=lease.job_id,
                delivery_status=SagaStatus.IN_PROGRESS,
                job_status=lease.status,
                error_code=lease.error_code,
                lease_expiration=lease.lease_expiration,
                lease_resets=lease.lease_resets,
                worker_id=lease.worker_id,
            )
        failed = [lease.saga_id for lease in expired if lease.status is JobStatus.FAILED]
        if failed:
            self._hints.hint(Channel.RESULTS, bucket, failed)
        if len(failed) < len(expired):
            self._hints.hint(Channel.JOBS, bucket)
        if len(expired) == BATCH:
            return 0
        return max(await self._until_expiry(bucket), BLOCKED_SECONDS)

    async def _until_expiry(self, bucket: int) -> float:
        seconds = await self._store.next_expiry(bucket)
        return POLL_MAX_SECONDS if seconds is None else min(max(seconds, 0.0), POLL_MAX_SECONDS)
