"""The plans of the hot statements: by index, with a cost that depends on the batch alone.

Each statement is prepared and explained in a session of its own component: its role, its session
settings, its generic plan. Statistics are those of the migration (a database that was never
analyzed since), those of an idle queue (taken before the backlog came, as they mostly are), fresh
ones, or those of other customs (one type, and each event of another tenant); all must do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import OpenStore
from surehook.model import statements
from surehook.model.error_codes import ErrorCode

pytestmark = pytest.mark.only_on("postgres", reason="MySQL's are in mysql/test_mysql_plans.py")
BIG = (
    *("events", "webhook_delivery_sagas", "webhook_delivery_jobs", "dead_letters"),
    "subscription_eligibility",
)
BATCH = 100
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)  # every row has its own second since then
SUBSCRIPTIONS = 50
STATISTICS = ("first", "idle", "fresh", "other")
OPEN = 30 * SUBSCRIPTIONS  # jobs, nearly as many as the caps allow
HOT = ("ingest", "router", "orchestrator", "worker", "cleaner", "deadletters")
# What runs once in a process' life, or when a person asks.
NOT_HOT = {
    ("router", "create_cursor"),
    ("router", "begin_rescan"),
    ("deadletters", "create_cursor"),
}


@dataclass
class Size:
    finished: int
    backlog: int


# ── The rows ──────────────────────────────────────────────────────────────────────────────────


async def fill(owner: Any, size: Size, buckets: int, statistics: str) -> None:
    """Finished deliveries, and a backlog of every kind: due, retrying, in progress, leased."""
    await owner.execute("SET session_replication_role = replica; SET synchronous_commit = off")
    await owner.execute(
        "INSERT INTO subscriptions (id, event_type, callback_url, verified, eligible_from) "
        f"SELECT g, 'order.paid', 'https://receiver.example/' || g, true, to_timestamp(0) "
        f"FROM generate_series(1, {SUBSCRIPTIONS}) AS g"
    )
    await owner.execute(
        "INSERT INTO orchestrator_subscriptions (subscription_id) SELECT id FROM subscriptions"
    )
    total = size.finished + size.backlog
    # One was switched off and on again ten thousand times, through all of this, and just now.
    step = max(3, total // 10_000 + 1)
    await owner.execute(
        "INSERT INTO subscription_eligibility (subscription_id, tenant, pattern, eligible_from, "
        "eligible_until) SELECT 1, '', 'order.paid', "
        f"timestamptz '{EPOCH}' + interval '1 second' * {step} * g, "
        f"timestamptz '{EPOCH}' + interval '1 second' * ({step} * (g + 1) - 1) "
        "FROM generate_series(1, 10000) AS g"
    )
    await owner.execute(
        "UPDATE subscriptions SET eligible_from = now(), eligible_first = to_timestamp(0) "
        "WHERE id = 1"
    )
    reached = int(await owner.fetchval("SELECT pg_current_xact_id()::text::bigint"))
    await fill_part(owner, size, buckets, reached, range(1, size.finished + 1))
    if statistics == "idle":
        for table in BIG:
            await owner.execute(f"VACUUM (ANALYZE) {table}")
    await fill_part(owner, size, buckets, reached, range(size.finished + 1, total + 1))
    await owner.execute(
        "INSERT INTO router_cursor (bucket, system_identifier, snapshot) "
        "SELECT b, (SELECT system_identifier FROM pg_control_system()), "
        f"'{reached}:{reached}:' FROM generate_series(0, {buckets - 1}) AS b"
    )
    await owner.execute(
        f"INSERT INTO dead_letter_cursor (bucket) SELECT generate_series(0, {buckets - 1})"
    )
    await owner.execute("SET session_replication_role = origin")
    for table in BIG:
        await owner.execute(f"ALTER TABLE {table} ALTER COLUMN id RESTART WITH {total + 1}")
    for column, value in (("tenant", -1), ("event_type", 1)) if statistics == "other" else ():
        claimed = f"n_distinct = {value}, n_distinct_inherited = {value}"
        await owner.execute(f"ALTER TABLE events ALTER COLUMN {column} SET ({claimed})")
    # What a queue always has: the visibility of its old rows. Statistics only if asked for.
    analyze = "(ANALYZE)" if statistics in ("fresh", "other") else ""
    for table in BIG if statistics != "idle" else ():
        await owner.execute(f"VACUUM {analyze} {table}")


async def fill_part(owner: Any, size: Size, buckets: int, reached: int, numbers: range) -> None:
    """The deliveries with these numbers."""
    total = size.finished + size.backlog
    series = f"generate_series({numbers.start}, {numbers.stop - 1})"
    await owner.execute(
        "INSERT INTO events (id, event_type, payload, external_id, created_at, bucket, xid) "
        "SELECT g, CASE WHEN g % 100 = 0 THEN 'order.paid' ELSE 'other' END, '{\"n\": 1}', "
        f"'key-' || g, timestamptz '{EPOCH}' + interval '1 second' * g, g / 101 % {buckets}, "
        f"(3 + g::bigint * {reached - 3} / {total})::text::xid8 "
        f"FROM {series} AS g"
    )
    # A finished saga has one job; one in ten died, half of those are written down. The backlog is
    # due for the first time, due again, and as much of it in progress as the caps allow.
    kind = (
        f"CASE WHEN g <= {size.finished} THEN CASE WHEN g % 10 = 0 THEN 'DeadLettered' "
        f"ELSE 'Completed' END WHEN g % 3 = 2 AND g <= {size.finished + 3 * OPEN} "
        "THEN 'InProgress' WHEN g % 3 = 1 THEN 'PendingRetry' ELSE 'Pending' END"
    )
    moment = f"timestamptz '{EPOCH}' + interval '1 second' * g"
    await owner.execute(
        "INSERT INTO webhook_delivery_sagas (id, event_id, subscription_id, status, "
        "attempt_count, next_attempt_at, created_at, updated_at, bucket) "
        f"SELECT g, g, g % {SUBSCRIPTIONS} + 1, ({kind})::saga_status, 1, {moment}, {moment}, "
        f"{moment}, g / 101 % {buckets} FROM {series} AS g"
    )
    await owner.execute(
        "INSERT INTO webhook_delivery_jobs (id, saga_id, event_id, subscription_id, status, "
        "attempt_at, lease_until, lease_token, lease_resets, created_at, bucket) "
        "SELECT s.id, s.id, s.event_id, s.subscription_id, (CASE s.status "
        "WHEN 'Completed' THEN 'Completed' WHEN 'DeadLettered' THEN 'Failed' "
        "ELSE CASE s.id % 5 WHEN 0 THEN 'Leased' WHEN 1 THEN 'Completed' ELSE 'Pending' END "
        "END)::job_status, s.next_attempt_at, "
        "CASE WHEN s.status = 'InProgress' AND s.id % 5 = 0 THEN now() - interval '1 hour' END, "
        "1, CASE WHEN s.status = 'InProgress' AND s.id % 500 = 2 THEN 1 ELSE 0 END, "
        "s.created_at, s.bucket FROM webhook_delivery_sagas s "
        "WHERE s.status NOT IN ('Pending', 'PendingRetry') "
        f"AND s.id BETWEEN {numbers.start} AND {numbers.stop - 1}"
    )
    await owner.execute(
        "INSERT INTO dead_letters (id, saga_id, event_id, subscription_id, final_error_code, "
        "failed_at, payload_snapshot, bucket) SELECT id, id, event_id, subscription_id, 'GONE', "
        "updated_at, '{}', bucket FROM webhook_delivery_sagas WHERE status = 'DeadLettered' "
        f"AND id % 20 = 0 AND id BETWEEN {numbers.start} AND {numbers.stop - 1}"
    )


@dataclass
class Arguments:
    """What each statement is called with: a batch from the middle of the backlog."""

    size: Size
    buckets: int
    reached: int  # the server's next xid
    known: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bucket = str(self.buckets - 1)
        first, last = self.size.finished + 1, self.size.finished + self.size.backlog

        def inside(numbers: Iterable[int]) -> list[int]:
            return [n for n in numbers if str(n // 101 % self.buckets) == bucket]

        mine = inside(range(first, last + 1))
        batch = mine[:BATCH]
        in_progress = [n for n in mine if n % 3 == 2][:BATCH]
        dead = inside(range(10, self.size.finished, 20))[:BATCH]
        letters = inside(range(20, self.size.finished, 20))[:BATCH]
        plain = {
            "bucket": bucket,
            "count": str(BATCH),
            "cap": "100000",
            "cap_max": "100000",
            "rate_max": "1000000",
            "ramp": "0",
            "ramp_growth": "4",
            "lanes": _array([n % 5 for n in range(SUBSCRIPTIONS)]),
            "ramps": _array([0] * SUBSCRIPTIONS),
            "slows": _array(["true"] * SUBSCRIPTIONS),
            "steps": _array([1] * SUBSCRIPTIONS),
            "slow_after": "1 second",
            "lasting_seconds": "1",
            "first_lane": "0",
            "last_lane": "4",
            "lane": "4",
            "suspect": "false",
            "bytes": str(64 * 2**20),
            "lease_seconds": "30",
            "lease_token": "7",
            "worker_id": "w",
            "after_id": "0",
            "subscription_ids": _array(range(1, SUBSCRIPTIONS + 1)),
            "shares": _array([BATCH // SUBSCRIPTIONS] * SUBSCRIPTIONS),
            "spent": _array([1] * SUBSCRIPTIONS),
            "saga_ids": _array(in_progress),
            "permanent": _array([code for code in ErrorCode if code.permanent]),
            "max_attempts": "5",
            "base_delay_seconds": "30",
            "max_delay_seconds": "3600",
            "exponent_max": "40",
            "after_attempt_at": "1970-01-01 00:00:00+00",
            "expiries_max": "6",
            "error_code": "LEASE_EXPIRED",
            "job_ids": _array(in_progress),
            "statuses": _array(["Completed"] * len(in_progress)),
            "response_statuses": _array([200] * len(in_progress)),
            "error_codes": _array(["NULL"] * len(in_progress)),
            "retry_afters": _array(["NULL"] * len(in_progress)),
            "response_excerpts": _array(["NULL"] * len(in_progress)),
            "failure_details": _array(["NULL"] * len(in_progress)),
            "lease_tokens": _array([1] * len(in_progress)),
            "lease_resets": _array([0] * len(in_progress)),
            "event_ids": _array(batch),
            "until_id": str(last),
            "in_flight": "{}",
            "partial_xid": "0",
            "partial_id": "0",
            "from_xid": str(3 + first * (self.reached - 3) // last),
            "from_id": "0",
            "foreign_id_max": "0",
            "snapshot": "10:10:",
            "rewalk_seconds": "86400",
            "rewalked": "true",
            "swept_until": "now",
            "after": "1970-01-01 00:00:00+00",
            "dead_letter_ids": _array(letters),
            "event_types": _array(["other"] * BATCH),
            "payloads": _array(['"{}"'] * BATCH),
            "tenants": _array(['""'] * BATCH),
            "buckets": _array([bucket] * BATCH),
            "seconds": "60",
        }
        self.plain = plain
        waiting = [n for n in mine if n % 3 == 0][:BATCH]
        self.known = {
            ("orchestrator", "start_sagas"): {
                "saga_ids": _array(waiting),
                "attempts_at": _array(f'"{EPOCH + timedelta(seconds=n)}"' for n in waiting),
            },
            ("deadletters", "write_dead_letters"): {"saga_ids": _array(dead)},
            ("ingest", "insert_keyed_events"): {
                "external_ids": _array(f"new-{n}" for n in range(BATCH)),
                "patience": "50",
            },
            ("ingest", "find_keyed_events"): {"external_ids": _array(f"key-{n}" for n in batch)},
            ("orchestrator", "rotate_subscriptions"): {"count": "200"},
            ("router", "rescan_events"): {"after_id": str(first)},
            ("router", "unrouted_since"): {
                "subscription_ids": "{1,2}",
                "since": "{now,2020-01-01}",  # just now, and ever
                "until": "{NULL,NULL}",
            },
        }

    def of(self, component: str, statement: statements.Statement) -> list[str | None]:
        own = self.known.get((component, statement.name), {})
        values: list[str | None] = []
        for parameter in statement.parameters:
            if parameter in own:
                values.append(own[parameter])
            elif component == "deadletters" and statement.name == "find_dead_letters":
                values.append(self.plain[parameter] if parameter in ALWAYS else None)
            else:
                values.append(self.plain[parameter])
        return values


ALWAYS = ("bucket", "after_id", "count")


def _array(items: Any) -> str:
    return "{" + ",".join(f"{item}" for item in items) + "}"


# ── The plans ─────────────────────────────────────────────────────────────────────────────────


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def is_big(relation: str) -> bool:
    return any(relation == big or relation.startswith(f"{big}_b") for big in BIG)


def wrong_in(plan: dict[str, Any], batch: int) -> list[str]:
    """What in a plan costs as much as the backlog or the history."""
    found = []
    for node in nodes(plan):
        relation = node.get("Relation Name", "")
        rows = node["Actual Rows"] * node["Actual Loops"]
        if is_big(relation) and node["Actual Loops"]:
            if "Seq Scan" in node["Node Type"]:
                found.append(f"Seq Scan of {relation}")
            removed = node.get("Rows Removed by Filter", 0) + node.get(
                "Rows Removed by Index Recheck", 0
            )
            if removed * node["Actual Loops"] > 3 * batch:
                found.append(f"{removed} rows of {relation} read in vain")
            if rows > (max(5 * batch, OPEN) if "_jobs" in relation else 5 * batch):
                found.append(f"{rows} rows of {relation} read for {batch}")
        if node["Node Type"] in ("Sort", "Incremental Sort", "Hash", "Aggregate"):
            inner = node["Plans"][0]
            if inner["Actual Rows"] * inner["Actual Loops"] > max(5 * batch, OPEN):
                found.append(f"{node['Node Type']} of {inner['Actual Rows']} rows")
    return found


async def explained(
    database: Any, statement: statements.Statement, values: list[str | None]
) -> dict[str, Any]:
    """The generic plan as it ran the second time, undone again."""
    literals = ", ".join("NULL" if value is None else f"'{value}'" for value in values)
    async with database._pool.acquire() as connection:
        await connection.execute(f"PREPARE explained AS {statement.numbered()}")
        call = f"EXECUTE explained({literals})" if values else "EXECUTE explained"
        for _ in range(2):  # the first one reads the catalogue
            transaction = connection.transaction()
            await transaction.start()
            try:
                text = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}")
            finally:
                await transaction.rollback()
        await connection.execute("DEALLOCATE explained")
    found: dict[str, Any] = json.loads(text)[0]
    return found


async def judge(owner: Any, open_store: OpenStore, size: Size, buckets: int) -> list[str]:
    reached = int(await owner.fetchval("SELECT pg_current_xact_id()::text::bigint"))
    arguments = Arguments(size, buckets, reached)
    complaints: list[str] = []
    for component in HOT:
        database = await open_store(component)
        for statement in statements.load("postgres", component).values():
            if (component, statement.name) in NOT_HOT:
                continue
            values = arguments.of(component, statement)
            answer = await explained(database, statement, values)
            plan = answer["Plan"]
            blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            milliseconds = answer["Execution Time"]
            name = f"{component}.{statement.name}"
            rows = plan["Actual Rows"]
            print(f"{name:<40} {rows:>5} rows {blocks:>7} blocks {milliseconds:>9.2f} ms")
            complaints += [f"{name}: {wrong}" for wrong in wrong_in(plan, BATCH)]
            # A row costs a few index descents of three or four blocks, and its new versions.
            if blocks > 45 * BATCH:
                complaints.append(f"{name}: {blocks} blocks for a batch of {BATCH}")
    return complaints


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("buckets", [1, 4])
async def test_no_hot_statement_costs_as_much_as_the_backlog_or_the_history(
    owner: Any, open_store: OpenStore, buckets: int, statistics: str
) -> None:
    size = Size(finished=20_000, backlog=4_000)
    await fill(owner, size, buckets, statistics)
    assert await judge(owner, open_store, size, buckets) == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("statistics", STATISTICS)
async def test_a_million_finished_and_fifty_thousand_waiting(
    owner: Any, open_store: OpenStore, statistics: str
) -> None:
    size = Size(finished=1_000_000, backlog=50_000)
    await fill(owner, size, 1, statistics)
    print()
    assert await judge(owner, open_store, size, 1) == []
