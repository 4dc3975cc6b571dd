"""The worker's statements on MySQL. Reads jobs, events, subscriptions; writes jobs."""

from __future__ import annotations

from collections.abc import Sequence

from surehook.model.records import JobId, JobReport, Lane, LeasedJob, SagaId
from surehook.store.database import Row
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.mysql.values import Table
from surehook.store.worker import WorkerStore


class MysqlWorkerStore(WorkerStore):
    _database: MysqlDatabase

    def __init__(self, database: MysqlDatabase, worker_id: str) -> None:
        super().__init__(database, worker_id)
        # Buckets, and lanes of them, in which nothing waited.
        self._idle: set[tuple[int, tuple[int, int]]] = set()

    async def lease_jobs(
        self,
        bucket: int,
        lanes: tuple[int, int],
        count: int,
        payload_bytes: int,
        lease_seconds: float,
        lease_token: int,
    ) -> list[LeasedJob]:
        async def work(session: MysqlSession) -> list[LeasedJob]:
            picked = await session.all(
                "pick_jobs", bucket=bucket, first_lane=lanes[0], last_lane=lanes[1], count=count
            )
            fitting = await _fitting(session, bucket, picked, payload_bytes)
            return await self._lease(session, bucket, fitting, lease_seconds, lease_token)

        if (bucket, lanes) in self._idle and not await self._any_waits(bucket, lanes):
            return []
        leased = await self._database.in_transaction(work)
        if leased:
            self._idle.discard((bucket, lanes))
        else:
            self._idle.add((bucket, lanes))
        return leased

    async def _any_waits(self, bucket: int, lanes: tuple[int, int]) -> bool:
        row = await self._database.one(
            "any_waits", bucket=bucket, first_lane=lanes[0], last_lane=lanes[1]
        )
        return bool(row and row[0])

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
        async def work(session: MysqlSession) -> list[LeasedJob]:
            picked = await session.all(
                "pick_known_jobs", bucket=bucket, job_ids=job_ids, suspect=suspect, lane=lane
            )
            fitting = await _fitting(session, bucket, picked, payload_bytes)
            return await self._lease(session, bucket, fitting, lease_seconds, lease_token, lane)

        return await self._database.in_transaction(work)

    async def _lease(
        self,
        session: MysqlSession,
        bucket: int,
        picked: Sequence[Row],
        lease_seconds: float,
        lease_token: int,
        lane: Lane | None = None,
    ) -> list[LeasedJob]:
        """Of rows that this transaction holds; what has no event or subscription is left alone."""
        if not picked:
            return []
        event_ids = sorted({row[2] for row in picked})
        rows = await session.all("read_events", bucket=bucket, event_ids=event_ids)
        events = {row[0]: row for row in rows}
        rows = await session.all("read_targets", subscription_ids=sorted({r[3] for r in picked}))
        targets = {row[0]: row for row in rows}
        whole = [row for row in picked if row[2] in events and row[3] in targets]
        if not whole:
            return []
        times = await session.one("lease_times", lease_microseconds=round(lease_seconds * 1e6))
        assert times is not None
        leased_at, lease_until = times
        await session.write(
            "lease_jobs",
            bucket=bucket,
            job_ids=[row[0] for row in whole],
            lease_token=lease_token,
            worker_id=self._worker_id,
            leased_at=leased_at,
            lease_until=lease_until,
            lane=lane,
        )
        leased = []
        for job_id, saga_id, event_id, subscription_id, resets, its_lane in whole:
            _, event_type, payload, age = events[event_id]
            _, url, deliverable, timeout, headers = targets[subscription_id]
            leased.append(
                LeasedJob(
                    job_id,
                    saga_id,
                    event_id,
                    subscription_id,
                    resets,
                    leased_at,
                    lease_until,
                    event_type,
                    payload,
                    url,
                    bool(deliverable),
                    timeout,
                    headers,
                    float(age),
                    its_lane,
                )
            )
        return leased

    async def finish_jobs(
        self, bucket: int, reports: Sequence[JobReport]
    ) -> list[tuple[JobId, SagaId]]:
        ordered = sorted(reports, key=lambda report: report.job_id)
        await self._database.write(
            "finish_jobs",
            bucket=bucket,
            worker_id=self._worker_id,
            given=Table(
                (
                    report.job_id,
                    report.status,
                    report.response_status,
                    report.error_code,
                    report.retry_after,
                    report.response_excerpt,
                    report.failure_detail,
                    report.lease_token,
                    report.lease_resets,
                )
                for report in ordered
            ),
        )
        rows = await self._database.all(
            "finished_jobs",
            bucket=bucket,
            job_ids=[report.job_id for report in ordered],
            worker_id=self._worker_id,
        )
        wanted = {report.job_id: report.status for report in ordered}
        return [(row[0], row[1]) for row in rows if wanted[row[0]] == row[2]]

    async def give_back_jobs(
        self, bucket: int, leases: Sequence[tuple[JobId, int]], lane: Lane | None = None
    ) -> list[JobId]:
        tokens = dict(leases)

        async def work(session: MysqlSession) -> list[JobId]:
            rows = await session.all("held_jobs", bucket=bucket, job_ids=sorted(tokens))
            mine = [JobId(row[0]) for row in rows if row[1] == tokens[row[0]]]
            if mine:
                await session.write("give_back_jobs", bucket=bucket, job_ids=mine, lane=lane)
            return mine

        return await self._database.in_transaction(work)


async def _fitting(
    session: MysqlSession, bucket: int, picked: Sequence[Row], payload_bytes: int
) -> Sequence[Row]:
    """Those whose payloads there is room for, the first always."""
    if not picked:
        return picked
    event_ids = sorted({row[2] for row in picked})
    sizes: dict[int, int] = {}
    for event_id, size in await session.all("payload_sizes", bucket=bucket, event_ids=event_ids):
        sizes[event_id] = size
    before = 0
    fitting: list[Row] = []
    for row in picked:
        if before >= payload_bytes and fitting:
            break
        fitting.append(row)
        before += sizes.get(row[2], 0)
    return fitting
