"""Results: what came of attempts, written in batches. Part of the worker, under its role.

Reads   nothing
Writes  UPDATE webhook_delivery_jobs (results)

A result waits 15 ms at most for others to be written with. If the database is gone, each is tried
until it is written: it is worth more than the wait. The cleaner settles expired leases meanwhile,
and a success is taken even then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from surehook import observe
from surehook.delivery import Outcome
from surehook.errors import DatabaseUnreachable
from surehook.model.records import JobId, JobReport
from surehook.model.states import JobStatus
from surehook.observe import crashpoints
from surehook.pipeline.leases import Lease
from surehook.store.hints import Channel, Hints
from surehook.store.worker import WorkerStore

WAIT_SECONDS = 0.015
BATCH = 250
PAUSE_FIRST_SECONDS = 0.1
# Short: after an outage the cleaner gives the attempt to another worker, which sends it again.
PAUSE_MAX_SECONDS = 0.5

Batch = list[tuple[Lease, JobReport]]


class Results:
    def __init__(
        self, store: WorkerStore, hints: Hints, buckets: Iterable[int], worker_id: str
    ) -> None:
        self._store = store
        self._hints = hints
        self._worker_id = worker_id
        self._waiting: dict[int, Batch] = {bucket: [] for bucket in buckets}
        self._due: asyncio.TimerHandle | None = None
        self._writes: set[asyncio.Task[None]] = set()
        self._outage_logged = False

    def add(self, lease: Lease, outcome: Outcome, *, at_once: bool) -> None:
        """Have it written: at once, if no other result can be expected soon."""
        report = JobReport(
            lease.job.job_id,
            JobStatus.COMPLETED if outcome.delivered else JobStatus.FAILED,
            outcome.response_status,
            outcome.error_code,
            outcome.retry_after_seconds,
            outcome.response_excerpt,
            outcome.kept_detail,
            lease.token,
            lease.job.lease_resets,
        )
        batch = self._waiting[lease.bucket]
        batch.append((lease, report))
        if at_once or len(batch) >= BATCH:
            self._write(lease.bucket)
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(WAIT_SECONDS, self._write_all)

    async def written(self) -> None:
        """Write all that waits; returns when it is written."""
        self._write_all()
        while self._writes:
            await asyncio.gather(*self._writes)

    def _write_all(self) -> None:
        self._due = None
        for bucket in self._waiting:
            self._write(bucket)

    def _write(self, bucket: int) -> None:
        batch = self._waiting[bucket]
        if batch:
            self._waiting[bucket] = []
            task = asyncio.get_running_loop().create_task(self._until_written(bucket, batch))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _until_written(self, bucket: int, batch: Batch) -> None:
        reports = [report for _, report in batch]
        pause = PAUSE_FIRST_SECONDS
        while True:
            try:
                written = await self._store.finish_jobs(bucket, reports)
                break
            except Exception as error:
                self._log_outage(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX_SECONDS)
        self._outage_logged = False
        await crashpoints.here("worker.after_finish")
        self._hints.hint(Channel.RESULTS, bucket, (saga_id for _, saga_id in written))
        if len(written) < len(reports):
            self._log_refused(batch, {job_id for job_id, _ in written})

    def _log_refused(self, batch: Batch, written: set[JobId]) -> None:
        """Those that were no longer this worker's to write."""
        for lease, report in batch:
            if report.job_id not in written:
                fields = lease.log_fields(self._worker_id)
                observe.emit("result.refused", error_code=report.error_code, **fields)

    def _log_outage(self, error: Exception) -> None:
        """Log an outage once, not once per waiting batch."""
        if not isinstance(error, DatabaseUnreachable):
            observe.emit("component.failed", component="worker", reason=str(error))
        elif not self._outage_logged:
            self._outage_logged = True
            observe.emit("database.lost", component="worker", reason=error.message)
