"""What the hot statements read on MySQL and MariaDB: as much as their batch, whatever lies there.

Every store does what it does in a pipeline, on its own login, between a history of finished
deliveries and a backlog of every kind; the server itself counts the rows that each statement reads.
Statistics are those of an empty table, or fresh ones; both must do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from support import OpenStore
from surehook.model.error_codes import ErrorCode
from surehook.model.records import JobReport, Lane, NewEvent, Pace, Share
from surehook.model.resources.dead_letter import DeadLetterFilter
from surehook.model.retry import Policy
from surehook.model.states import JobStatus
from surehook.store import store_of
from surehook.store.cleaner import CleanerStore
from surehook.store.deadletters import BEGINNING, DeadLetterStore
from surehook.store.ingest import IngestStore
from surehook.store.mysql.database import MysqlSession
from surehook.store.orchestrator import WALK_START, Caps, OrchestratorStore
from surehook.store.router import RouterStore
from surehook.store.worker import WorkerStore

pytestmark = pytest.mark.only_on("mysql", reason="PostgreSQL's plans are in test_plans.py")
BATCH = 100
SUBSCRIPTIONS = 50
OPEN = 30 * SUBSCRIPTIONS  # jobs, nearly as many as the caps allow
# Per row of a batch: its key, its neighbours in a join, a temporary table of the batch itself.
READS_PER_ROW = 12
PERMANENT = tuple(str(code) for code in ErrorCode if code.permanent)
# What the router asks only for the subscription that was switched off and on again.
UNUSUAL = ("changed_since", "kinds", "covering", "routed", "unrouted_since", "held_for")
READS = "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%'"


@dataclass(frozen=True)
class Size:
    finished: int
    backlog: int


# ── The rows ──────────────────────────────────────────────────────────────────────────────────


async def fill(owner: Any, size: Size, buckets: int) -> None:
    """Finished deliveries, and a backlog of every kind: due, retrying, in progress, leased."""
    total = size.finished + size.backlog
    # One was switched off and on again ten thousand times, through all of this, and just now.
    step = max(3, total // 10_000 + 1)
    await owner.native("SET timestamp = 1577836800")
    await owner.native(
        "INSERT INTO subscriptions (id, event_type, callback_url, verified) "
        "VALUES (1, 'order.paid', 'https://receiver.example/1', TRUE)"
    )
    await owner.native("SET timestamp = 1577836801")
    await owner.native("UPDATE subscriptions SET active = FALSE")
    await owner.native("SET timestamp = DEFAULT")
    await owner.native(
        "INSERT INTO subscription_eligibility (subscription_id, tenant, pattern, eligible_from, "
        "eligible_until) SELECT 1, '', 'order.paid', "
        f"DATE_ADD('2020-01-01', INTERVAL {step} * g SECOND), "
        f"DATE_ADD('2020-01-01', INTERVAL {step} * (g + 1) - 1 SECOND) FROM {_numbers(1, 10_000)}"
    )
    await owner.execute(
        "INSERT INTO subscriptions (id, event_type, callback_url, verified) "
        "SELECT g, 'order.paid', concat('https://receiver.example/', g), true "
        f"FROM generate_series(2, {SUBSCRIPTIONS}) AS g"
    )
    moment = "DATE_ADD('2020-01-01', INTERVAL g SECOND)"
    bucket = f"g DIV 101 MOD {buckets}"
    # One in ten of the finished died, half of those are written down.
    status = (
        f"IF(g <= {size.finished}, IF(g MOD 10 = 0, 'DeadLettered', 'Completed'), "
        f"IF(g MOD 3 = 2 AND g <= {size.finished + 3 * OPEN}, 'InProgress', "
        "IF(g MOD 3 = 1, 'PendingRetry', 'Pending')))"
    )
    for first in range(1, total + 1, 50_000):
        numbers = _numbers(first, min(first + 49_999, total))
        await owner.native(
            "INSERT INTO events (id, event_type, payload, external_id, created_at, bucket) "
            "SELECT g, IF(g MOD 100 = 0, 'order.paid', 'other'), '{\"n\": 1}', "
            f"CONCAT('key-', g), {moment}, {bucket} FROM {numbers}"
        )
        await owner.native(
            "INSERT INTO webhook_delivery_sagas (id, event_id, subscription_id, status, "
            "attempt_count, next_attempt_at, created_at, updated_at, bucket) "
            f"SELECT g, g, g MOD {SUBSCRIPTIONS} + 1, {status}, 1, {moment}, {moment}, {moment}, "
            f"{bucket} FROM {numbers}"
        )
        await owner.native(
            "INSERT INTO webhook_delivery_jobs (id, saga_id, event_id, subscription_id, status, "
            "attempt_at, lease_until, lease_token, lease_resets, created_at, bucket) "
            "SELECT s.id, s.id, s.event_id, s.subscription_id, IF(s.status = 'Completed', "
            "'Completed', IF(s.status = 'DeadLettered', 'Failed', IF(s.id MOD 5 = 0, 'Leased', "
            "IF(s.id MOD 5 = 1, 'Completed', 'Pending')))), s.next_attempt_at, "
            "IF(s.status = 'InProgress' AND s.id MOD 5 = 0, '2021-01-01', NULL), 1, "
            "IF(s.status = 'InProgress' AND s.id MOD 500 = 2, 1, 0), s.created_at, s.bucket "
            f"FROM webhook_delivery_sagas s WHERE s.id BETWEEN {first} AND {first + 49_999} "
            "AND s.status NOT IN ('Pending', 'PendingRetry')"
        )
        await owner.native(
            "INSERT INTO dead_letters (id, saga_id, event_id, subscription_id, failed_at, "
            "payload_snapshot, bucket) SELECT id, id, event_id, subscription_id, updated_at, '{}', "
            "bucket FROM webhook_delivery_sagas WHERE status = 'DeadLettered' AND id MOD 20 = 0 "
            f"AND id BETWEEN {first} AND {first + 49_999}"
        )
    for number in range(buckets):
        await owner.native(
            "INSERT INTO router_cursor (bucket, read_until_id) "
            f"VALUES ({number}, {total - size.backlog // 2})"
        )
    await owner.native("UPDATE subscriptions SET active = TRUE WHERE id = 1")


def _numbers(first: int, last: int) -> str:
    """The numbers from first to last as a table, on every version."""
    digits = "SELECT 0 AS d UNION ALL " + " UNION ALL ".join(f"SELECT {d}" for d in range(1, 10))
    places = " + ".join(f"t{place}.d * {10**place}" for place in range(5))
    tables = " CROSS JOIN ".join(f"({digits}) AS t{place}" for place in range(5))
    return (
        f"(SELECT {first} + n AS g FROM (SELECT {places} AS n FROM {tables}) AS all_numbers "
        f"WHERE n <= {last - first}) AS numbers"
    )


# ── What is read ──────────────────────────────────────────────────────────────────────────────


@dataclass
class Readings:
    """How many rows each statement has read at most, and how long it took."""

    rows: dict[str, int] = field(default_factory=dict)
    milliseconds: dict[str, float] = field(default_factory=dict)

    def watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def watching(session: MysqlSession, name: str, *given: Any, **values: Any) -> Any:
            before = await _reads(session)
            looking = await _reads(session) - before  # what asking costs by itself
            began = time.perf_counter()
            result = await method(session, name, *given, **values)
            taken = (time.perf_counter() - began) * 1000
            read = await _reads(session) - before - 2 * looking
            self.rows[name] = max(self.rows.get(name, 0), read)
            self.milliseconds[name] = max(self.milliseconds.get(name, 0.0), taken)
            return result

        return watching


async def _reads(session: MysqlSession) -> int:
    return sum(int(row[1]) for row in await session.connection.fetch(READS))


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    found = Readings()
    for name in ("all", "write", "union"):
        monkeypatch.setattr(MysqlSession, name, found.watched(getattr(MysqlSession, name)))
    return found


async def work(open_store: OpenStore, bucket: int) -> None:
    """What every component does again and again."""
    ingest = store_of(IngestStore, await open_store("ingest"))
    keyed = [NewEvent("other", "{}", external_id=f"new-{n}") for n in range(BATCH)]
    await ingest.insert([NewEvent("other", "{}")] * BATCH, [bucket] * BATCH)
    await ingest.insert_keyed(keyed, [bucket] * BATCH, 0.05)
    await ingest.find_keyed(keyed, [bucket] * BATCH)

    router = store_of(RouterStore, await open_store("router"))
    for _ in range(3):
        await router.route_page(bucket, BATCH)

    orchestrator = store_of(
        OrchestratorStore, await open_store("orchestrator"), Caps(default=100_000)
    )
    waiting = await orchestrator.due_subscriptions(bucket, BATCH)
    await orchestrator.rotate_subscriptions(bucket, 0, 200)
    await orchestrator.next_due(bucket)
    await orchestrator.count_open_jobs(bucket, 4000)
    await orchestrator.newest_subscriptions(bucket, BATCH)
    shares = [Share(item.subscription_id, 2) for item in waiting]
    picked = await orchestrator.create_jobs(bucket, shares, set())
    assert picked
    await orchestrator.start_sagas(bucket, picked)
    page = await orchestrator.walk_in_progress(bucket, WALK_START, BATCH)
    await orchestrator.apply_results(bucket, page.finished, Policy(), PERMANENT)
    await orchestrator.set_paces({item.subscription_id: Pace(True, 1) for item in waiting})

    worker = store_of(WorkerStore, await open_store("worker"), "w")
    jobs = await worker.lease_jobs(bucket, (0, 3), BATCH, 1 << 30, 30.0, 7)
    assert len(jobs) == BATCH
    await worker.finish_jobs(
        bucket,
        [
            JobReport(job.job_id, JobStatus.COMPLETED, 200, None, None, None, None, 7, 0)
            for job in jobs[:50]
        ],
    )
    await worker.give_back_jobs(bucket, [(job.job_id, 7) for job in jobs[50:]])
    await worker.suspect_job(bucket)
    behind = await worker.waiting_jobs(bucket, Lane.BULK, BATCH, [jobs[0].subscription_id])
    await worker.lease_known_jobs(bucket, [job.id for job in behind], 1 << 30, 30.0, 8)
    await worker.live_secrets(sorted({job.subscription_id for job in jobs}))

    cleaner = store_of(CleanerStore, await open_store("cleaner"))
    assert await cleaner.reset_expired_leases(bucket, BATCH, "LEASE_EXPIRED")
    await cleaner.next_expiry(bucket)

    letters = store_of(DeadLetterStore, await open_store("deadletters"))
    await letters.read_cursor(bucket, 86400.0)
    missing, last, _ = await letters.dead_sagas(bucket, BEGINNING, BATCH)
    assert last is not None
    await letters.write_dead_letters(bucket, missing)
    found, _ = await letters.find(bucket, DeadLetterFilter(), 0, BATCH)
    await letters.requeue(bucket, found)
    await letters.save_cursor(bucket, datetime(2020, 1, 2, tzinfo=UTC), False)


def too_much(readings: Readings) -> dict[str, int]:
    """Statements that read more than their batch asks for."""
    assert set(UNUSUAL) <= readings.rows.keys()
    # These count what is open, which the caps bound; the cleaner passes over nothing else.
    bounds = {"count_open_jobs": 4 * OPEN, "open_jobs": 4 * OPEN, "suspect_job": 4 * OPEN}
    return {
        name: rows
        for name, rows in readings.rows.items()
        if rows > bounds.get(name, READS_PER_ROW * BATCH)
    }


@pytest.mark.parametrize("fresh", [False, True], ids=["first statistics", "fresh statistics"])
@pytest.mark.parametrize("buckets", [1, 4])
async def test_no_hot_statement_reads_as_much_as_the_backlog_or_the_history(
    owner: Any, open_store: OpenStore, readings: Readings, buckets: int, fresh: bool
) -> None:
    await fill(owner, Size(finished=20_000, backlog=8_000), buckets)
    if fresh:
        await _analyze(owner)
    await work(open_store, buckets - 1)
    assert too_much(readings) == {}


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fresh", [False, True], ids=["first statistics", "fresh statistics"])
async def test_a_million_finished_and_fifty_thousand_waiting(
    owner: Any, open_store: OpenStore, readings: Readings, buckets: int, fresh: bool
) -> None:
    await fill(owner, Size(finished=1_000_000, backlog=50_000), buckets)
    if fresh:
        await _analyze(owner)
    await work(open_store, 0)
    print()
    for name, rows in sorted(readings.rows.items()):
        print(f"{name:<28} {rows:>7} rows read {readings.milliseconds[name]:>9.2f} ms")
    assert too_much(readings) == {}


async def _analyze(owner: Any) -> None:
    tables = "events, webhook_delivery_sagas, webhook_delivery_jobs, dead_letters"
    await owner.native(f"ANALYZE TABLE {tables}")
