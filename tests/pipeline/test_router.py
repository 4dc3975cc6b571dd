"""Router: nothing missed, nothing twice, nobody waited for."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import Configure, OpenStore, dialects, servers
from support.clock import Clock
from support.pipeline import running
from support.rows import a_subscription, an_event, many_events
from support.servers import Server
from support.waiting import until, until_row
from surehook.config import load
from surehook.embedded.server import EmbeddedServer
from surehook.model.records import RoutedSaga
from surehook.pipeline.router import Router
from surehook.store import open_database, store_of
from surehook.store.hints import Hints
from surehook.store.logins import DatabaseAccess
from surehook.store.postgres.migrate import migrate
from surehook.store.postgres.router import (
    Cursor,
    PostgresRouterStore,
    Snapshot,
    advance,
)
from surehook.store.router import RouterStore

# Every event with the sagas that it has; one is missed at 0, doubled at 2.
# Events and sagas are compared here, not by a join: that a server plans while its tables grow, and
# one that it takes for empty it may read once for each row of the other.


async def each_is_routed_once(owner: Any) -> bool:
    events = await owner.fetch("SELECT id, bucket FROM events")
    sagas = await owner.fetch("SELECT event_id, bucket FROM webhook_delivery_sagas")
    return Counter(map(tuple, sagas)) == Counter(map(tuple, events))


async def not_routed(owner: Any, after_id: int) -> dict[int, float]:
    """Of the events behind this one those without a saga, with their ages in seconds."""
    events = await owner.fetch(
        "SELECT id, EXTRACT(EPOCH FROM clock_timestamp() - created_at)::float8 "
        "FROM events WHERE id > $1 ORDER BY id",
        after_id,
    )
    sagas = await owner.fetch(
        "SELECT event_id FROM webhook_delivery_sagas WHERE event_id > $1", after_id
    )
    routed = {row[0] for row in sagas}
    return {row[0]: row[1] for row in events if row[0] not in routed}


async def route_all(router: Router, steps: int = 1000) -> None:
    """Step until there is nothing more at this moment."""
    for _ in range(steps):
        if await router.step() > 0:
            return
    raise AssertionError("the router never came to rest")


@pytest.fixture
async def router(open_store: OpenStore, buckets: int) -> Router:
    router = Router(
        store_of(RouterStore, await open_store("router")), Hints(), range(buckets), batch=50
    )
    await route_all(router)  # the first look, at the empty table
    await router.step()
    return router


async def pairs(owner: Any) -> set[tuple[int, int]]:
    rows = await owner.fetch("SELECT event_id, subscription_id FROM webhook_delivery_sagas")
    found = [tuple(row) for row in rows]
    assert len(found) == len(set(found))
    return set(found)


# ── Matching ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
async def test_an_event_gets_a_saga_per_subscription_of_its_type_and_tenant(
    owner: Any, router: Router, buckets: int
) -> None:
    wanted = {await a_subscription(owner) for _ in range(3)}
    await a_subscription(owner, event_type="order.sent")
    await a_subscription(owner, tenant="another")
    events = {await an_event(owner, bucket=n % buckets) for n in range(8)}
    await route_all(router)
    assert await pairs(owner) == set(itertools.product(events, wanted))
    assert await owner.fetchval(
        "SELECT bool_and(g.bucket = e.bucket) FROM events e "
        "JOIN webhook_delivery_sagas g ON g.event_id = e.id"
    )


async def test_tenants_see_nothing_of_each_other(owner: Any, router: Router) -> None:
    subscriptions = {t: await a_subscription(owner, tenant=t) for t in ("", "one", "two")}
    events = {t: await an_event(owner, tenant=t) for t in ("", "one", "two", "three")}
    await route_all(router)
    assert await pairs(owner) == {(events[t], subscriptions[t]) for t in subscriptions}


async def test_disabled_and_unverified_subscriptions_get_no_saga(
    owner: Any, router: Router
) -> None:
    await a_subscription(owner, active=False)
    await a_subscription(owner, verified=False)
    late = await a_subscription(owner)
    await an_event(owner)
    await owner.execute("UPDATE subscriptions SET active = false WHERE id = $1", late)
    await route_all(router)
    assert await pairs(owner) == set()


async def test_a_subscription_gets_only_events_created_while_it_was_eligible(
    owner: Any, router: Router
) -> None:
    before = await an_event(owner)
    subscription = await a_subscription(owner)
    after = await an_event(owner)
    await owner.execute("UPDATE subscriptions SET active = false")
    meanwhile = await an_event(owner)
    await owner.execute("UPDATE subscriptions SET active = true")
    again = await an_event(owner)
    await route_all(router)
    assert await pairs(owner) == {(after, subscription), (again, subscription)}
    assert before < after < meanwhile < again


# ── Reading ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_cursor_wound_back_gives_the_same_sagas(
    owner: Any, router: Router, buckets: int
) -> None:
    await a_subscription(owner)
    early = await dialects.saved_cursors(owner)
    for bucket in range(buckets):
        await many_events(owner, 120, buckets=[bucket])
    await route_all(router)
    routed = await pairs(owner)
    assert len(routed) == 120 * buckets
    await dialects.wind_back(owner, early)
    await route_all(router)
    assert await pairs(owner) == routed
    await owner.execute("DELETE FROM router_cursor")
    await router.step()
    await route_all(router)
    assert await pairs(owner) == routed


async def test_one_transaction_larger_than_many_pages_is_routed_whole(
    owner: Any, router: Router
) -> None:
    await a_subscription(owner)
    async with owner.transaction():
        await many_events(owner, 1020)
        await many_events(owner, 30)
    await route_all(router)
    assert len(await pairs(owner)) == 1050


async def test_a_giant_transaction_that_commits_late_is_routed_whole(
    owner: Any, router: Router, database_url: str
) -> None:
    """Its pages lie among transactions that were under way when others were read already."""
    await a_subscription(owner)
    async with AsyncExitStack() as stack:
        writers = [
            await stack.enter_async_context(servers.connected(database_url)) for _ in range(3)
        ]
        transactions = [writer.transaction() for writer in writers]
        for writer, transaction in zip(writers, transactions, strict=True):
            await transaction.start()
            await many_events(writer, 130)
            await many_events(owner, 70)
            await route_all(router)
        assert len(await pairs(owner)) == 210
        await transactions[1].commit()
        await router.step()  # in the middle of the second one …
        await transactions[0].commit()  # … an older one commits
        await many_events(owner, 10)
        await route_all(router)
        await transactions[2].rollback()
        await route_all(router)
    assert len(await pairs(owner)) == 210 + 260 + 10
    await many_events(owner, 1)
    await route_all(router)
    assert len(await pairs(owner)) == 481


async def test_an_event_of_a_savepoint_and_of_an_aborted_transaction(
    owner: Any, router: Router
) -> None:
    await a_subscription(owner)
    async with owner.transaction():
        await an_event(owner)
        async with owner.transaction():
            kept = await an_event(owner)
        with pytest.raises(ZeroDivisionError):
            async with owner.transaction():
                await an_event(owner)
                raise ZeroDivisionError
    await route_all(router)
    found = {event_id for event_id, _ in await pairs(owner)}
    assert len(found) == 2 and kept in found


@dataclass
class Progress:
    """What all writers and routers of a test have done."""

    pages: Counter[int] = field(default_factory=Counter)  # read to their end, by bucket
    committed: int = 0
    routed: int = 0

    @property
    def waiting(self) -> int:
        return self.committed - self.routed


class Counting:
    """A store that says how far it has come."""

    def __init__(self, store: RouterStore, progress: Progress) -> None:
        self._store = store
        self._progress = progress

    async def route_page(self, bucket: int, count: int) -> tuple[list[RoutedSaga], bool] | None:
        result = await self._store.route_page(bucket, count)
        if result is not None:
            self._progress.pages[bucket] += 1
            self._progress.routed += len(result[0])
        return result


class WaitingStore(PostgresRouterStore):
    """Routing by watermark: reads only what is older than every open transaction."""

    async def _read_on(
        self, session: Any, bucket: int, cursor: Cursor, foreign_id_max: int, count: int
    ) -> tuple[list[RoutedSaga], bool]:
        oldest = await session.connection.fetchval("SELECT pg_snapshot_xmin(pg_current_snapshot())")
        rows = await session.connection.fetch(
            "SELECT id FROM events WHERE bucket = $1 AND xid >= $2 AND xid < $3",
            bucket,
            cursor.snapshot[1],
            oldest,
        )
        sagas = await self.insert(session, bucket, [row[0] for row in rows])
        snapshot = (oldest, oldest, ())
        await session.all(
            "save_cursor", bucket=bucket, snapshot=snapshot, partial_xid=0, partial_id=0
        )
        return sagas, False


NOT_ROUTED = "SELECT (SELECT count(*) FROM events) - (SELECT count(*) FROM webhook_delivery_sagas)"
PAGE = 500
# Who writes without end outruns any router in the end, and then nothing about delays can be said.
AHEAD_MAX = 3 * PAGE


async def _pages_read(pages: Counter[int], goal: dict[int, int]) -> None:
    await until(lambda: all(pages[bucket] >= goal[bucket] for bucket in goal))


async def _watch(watcher: Any, pages: Counter[int], buckets: int, seconds: float) -> float:
    """Nobody waits: what is committed is routed by the very next pages. Told in pages, since on a
    busy machine a page may take any time. The worst delay in seconds, for people."""
    loop = asyncio.get_running_loop()
    end, looks, worst = loop.time() + seconds, 0, 0.0
    while loop.time() < end or looks < 5:
        last_id = await watcher.fetchval("SELECT max(id) FROM events") or 0
        waiting = await not_routed(watcher, last_id - 3000)
        if not waiting:
            await asyncio.sleep(0.01)
            continue
        looks += 1
        worst = max(worst, *waiting.values())
        # The one under way, those that hold all that waits, one for who commits in between.
        before = await watcher.fetchval(NOT_ROUTED) + await dialects.ids_in_gaps(watcher)
        more = 2 + -(-before // PAGE)
        await _pages_read(pages, {bucket: pages[bucket] + more for bucket in range(buckets)})
        still = waiting.keys() & (await not_routed(watcher, min(waiting) - 1)).keys()
        assert not still, f"{len(still)} of {len(waiting)} events still wait after {more} pages"
    return worst


async def _writers_and_routers(
    configure: Configure,
    access: DatabaseAccess,
    database_url: str,
    *,
    seconds: float,
    routers: int,
    buckets: int,
    store: type[RouterStore] = RouterStore,
) -> tuple[int, float]:
    """Six writers, the first with its transaction open all the time; events and worst delay."""
    stop = asyncio.Event()
    progress = Progress()
    async with AsyncExitStack() as stack:
        for _ in range(routers):
            config = configure({"orchestrator.batch": PAGE})
            process = await stack.enter_async_context(running(config, access, ["router"]))
            component: Any = process.group.services[0].component
            component._store = Counting(store_of(store, process.databases["router"]), progress)
        await _pages_read(progress.pages, dict.fromkeys(range(buckets), 3))
        connections = [
            await stack.enter_async_context(servers.connected(database_url)) for _ in range(7)
        ]
        holder, *writers, watcher = connections
        held = holder.transaction()
        await held.start()
        await many_events(holder, 300)

        async def write(writer: Any, number: int) -> None:
            tens = 0
            while not stop.is_set():
                await until(lambda: progress.waiting < AHEAD_MAX or stop.is_set())
                async with writer.transaction():
                    for _ in range(tens := 1 + tens % 7):
                        await many_events(writer, 10, buckets=[number % buckets])
                progress.committed += 10 * tens

        work = [asyncio.ensure_future(write(w, n)) for n, w in enumerate(writers)]
        try:
            delay = await _watch(watcher, progress.pages, buckets, seconds)
        finally:
            stop.set()
            await asyncio.gather(*work)
        await until_row(watcher, NOT_ROUTED, wanted=0)
        assert await watcher.fetchval("SELECT count(*) FROM events") == progress.committed
        await many_events(holder, 300)
        await held.commit()
        await until_row(watcher, NOT_ROUTED, wanted=0)
    return progress.committed + 600, delay


@pytest.mark.parametrize(("buckets", "routers"), [(1, 1), (1, 3), (4, 2)])
async def test_six_writers_one_holding_its_transaction_open(
    owner: Any,
    configure: Configure,
    access: DatabaseAccess,
    database_url: str,
    buckets: int,
    routers: int,
) -> None:
    await a_subscription(owner)
    written, _ = await _writers_and_routers(
        configure, access, database_url, seconds=1.5, routers=routers, buckets=buckets
    )
    assert written > 1000
    assert await each_is_routed_once(owner)


@pytest.mark.only_on("postgres", reason="the wrong router is written with its snapshots")
@pytest.mark.parametrize("buckets", [1])
async def test_a_router_that_waits_for_an_open_transaction_would_be_found_out(
    owner: Any, configure: Configure, access: DatabaseAccess, database_url: str, buckets: int
) -> None:
    await a_subscription(owner)
    with pytest.raises(AssertionError, match="events still wait after"):
        await _writers_and_routers(
            configure,
            access,
            database_url,
            seconds=1.5,
            routers=1,
            buckets=buckets,
            store=WaitingStore,
        )


@pytest.mark.long
async def test_ten_seconds_of_an_open_transaction_while_ten_thousand_events_commit(
    owner: Any, configure: Configure, access: DatabaseAccess, database_url: str
) -> None:
    await a_subscription(owner)
    written, delay = await _writers_and_routers(
        configure, access, database_url, seconds=10, routers=4, buckets=1
    )
    print(f"\n{written} events, worst delay {delay:.3f} s")
    assert written >= 10_000
    assert delay <= 1.0  # alone on the machine, so that seconds mean something
    assert await each_is_routed_once(owner)


# ── Another server ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def other_server(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server of its own, with programs of the same version."""
    run = servers.Run()
    server = EmbeddedServer(
        run.directory / "other", binaries=Path(postgres.binaries), settings=servers.SETTINGS
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()
        run.end()


async def _burn_transactions(url: str, count: int) -> None:
    async with servers.connected(url) as connection:
        await connection.execute(
            f"DO $$ BEGIN FOR i IN 1..{count} LOOP PERFORM pg_current_xact_id(); COMMIT; "
            "END LOOP; END $$"
        )


def _dump_and_restore(postgres: Server, source: str, target: str) -> None:
    programs = Path(postgres.binaries)
    wanted = [programs / name for name in ("pg_dump", "psql")]
    if not all(program.exists() for program in wanted):
        pytest.skip("these binaries have no pg_dump")
    dump = subprocess.run(
        [wanted[0], "--no-owner", "--no-privileges", source], check=True, stdout=subprocess.PIPE
    )
    subprocess.run(
        [wanted[1], "-q", "-v", "ON_ERROR_STOP=1", target],
        input=dump.stdout,
        check=True,
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.only_on("postgres", reason="only there a cursor means nothing to another server")
@pytest.mark.parametrize("xids", ["ahead", "behind"])
async def test_a_dump_restored_into_another_server_gives_the_same_sagas(
    owner: Any,
    router: Router,
    postgres: Server,
    other_server: EmbeddedServer,
    database_url: str,
    xids: str,
) -> None:
    """`ahead`: the restored events carry xids that the new server has yet to reach."""
    subscription = await a_subscription(owner)
    await _burn_transactions(database_url, 3000)
    await many_events(owner, 130)
    await route_all(router)
    late = [await an_event(owner) for _ in range(70)]  # stored, not routed
    highest = await owner.fetchval("SELECT max(xid)::text::bigint FROM events")
    async with servers.connected(other_server.url) as admin:
        await admin.execute("CREATE DATABASE restored")
        here = await admin.fetchval("SELECT pg_current_xact_id()::text::bigint")
    url = other_server.url.replace("/surehook?", "/restored?", 1)
    if xids == "behind":
        await _burn_transactions(other_server.url, max(highest - here, 0) + 200)
    else:
        assert highest > here + 100
    await asyncio.to_thread(_dump_and_restore, postgres, database_url, url)

    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(servers.connected(url))
        await migrate(there, role_secret=servers.ROLE_SECRET)
        access = DatabaseAccess(url, servers.ROLE_SECRET, servers.ENCRYPTION_KEY)
        config = load(
            Path(os.devnull),
            {"SUREHOOK_DATABASE_URL": url, "SUREHOOK_ROLE_SECRET": servers.ROLE_SECRET},
        )
        database = await open_database(config, access, "router")
        stack.push_async_callback(database.close)
        restored = Router(store_of(RouterStore, database), Hints(), [0], batch=50)
        await route_all(restored)
        found = await pairs(there)
        assert len(found) == 200
        assert {event_id for event_id, _ in found} >= set(late)
        # Events that arrive while the new server's xids pass through those of the old ones.
        fresh = [await an_event(there) for _ in range(30)]
        await route_all(restored)
        if xids == "ahead":
            await _burn_transactions(url, highest - here + 100)
            fresh += [await an_event(there) for _ in range(30)]
            await route_all(restored)
        assert await pairs(there) == found | {(event_id, subscription) for event_id in fresh}


# ── The cursor, against a model ───────────────────────────────────────────────────────────────


def visible(cursor: Cursor, xid: int, row_id: int) -> bool:
    """Whether an event is routed according to this cursor."""
    _, xmax, in_flight = cursor.snapshot
    if xid == cursor.partial_xid and row_id <= cursor.partial_id:
        return True
    return xid < xmax and xid not in in_flight


class Model:
    """Transactions as PostgreSQL numbers them: in order, committing in any order."""

    def __init__(self) -> None:
        self.next_xid = 10
        self.open: dict[int, list[int]] = {}
        self.stored: list[tuple[int, int]] = []  # committed (xid, id)
        self.next_id = 1

    def begin(self) -> None:
        self.open[self.next_xid] = []
        self.next_xid += 1

    def insert(self, xid: int, count: int) -> None:
        self.open[xid] += range(self.next_id, self.next_id + count)
        self.next_id += count

    def end(self, xid: int, committed: bool) -> None:
        ids = self.open.pop(xid)
        if committed:
            self.stored += [(xid, number) for number in ids]

    def snapshot(self) -> Snapshot:
        in_flight = tuple(sorted(self.open))
        return (min((*in_flight, self.next_xid)), self.next_xid, in_flight)

    def sees(self, xid: int, now: Snapshot) -> bool:
        return xid < now[1] and xid not in now[2]

    def page(self, cursor: Cursor, count: int) -> tuple[list[tuple[int, int]], Snapshot]:
        """What router.sql reads: invisible to the cursor, visible now, in order."""
        now = self.snapshot()
        rows = [
            (xid, number)
            for xid, number in sorted(self.stored)
            if self.sees(xid, now) and not visible(cursor, xid, number)
        ]
        return rows[:count], now


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "insert", "commit", "abort", "route", "route"]),
        st.integers(0, 5),
        st.integers(1, 5),
    ),
    max_size=60,
)


def _play(steps: list[Step], page: int) -> None:
    model, cursor = Model(), Cursor((1, 1, ()))
    routed: list[tuple[int, int]] = []
    in_part: set[int] = set()

    def route() -> bool:
        nonlocal cursor
        rows, now = model.page(cursor, page)
        if not rows:
            return False
        full = len(rows) == page
        cursor = advance(cursor, now, rows[-1] if full else None)
        routed.extend(rows)
        in_part.add(cursor.partial_xid)
        # What is routed stays routed; only one transaction's part is remembered at a time.
        assert all(visible(cursor, *row) or row[0] in in_part for row in routed)
        for xid, number in model.stored:
            assert not visible(cursor, xid, number) or (xid, number) in routed
        for xid in model.open:
            assert not visible(cursor, xid, 1 << 60)
        return full

    for what, which, count in steps:
        active = sorted(model.open)
        if what == "begin" and len(active) < 6:
            model.begin()
        elif what == "route":
            route()
        elif active:
            xid = active[which % len(active)]
            if what == "insert":
                model.insert(xid, count)
            else:
                model.end(xid, what == "commit")
    for xid in list(model.open):
        model.end(xid, True)
    for _ in range(1000):
        if not route():
            break
    assert set(routed) == set(model.stored), "missed"


@given(STEPS, st.integers(1, 7))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_cursor_misses_nothing_whatever_commits_when(steps: list[Step], page: int) -> None:
    _play(steps, page)


def test_the_cursor_misses_nothing_in_any_interleaving_of_three_transactions() -> None:
    """Exhaustive: three transactions of two events, each commit and read in every order."""
    moves: list[Step] = [("commit", n, 1) for n in range(3)] + [("route", 0, 1)] * 3
    begun: list[Step] = [
        step for n in range(3) for step in (("begin", 0, 1), ("insert", n, 2), ("route", 0, 1))
    ]
    for order in set(itertools.permutations(moves)):
        for page in (1, 2, 3, 7):
            _play([*begun, *order], page)


# ── The component ─────────────────────────────────────────────────────────────────────────────


async def test_a_disabled_subscription_gets_nothing_two_seconds_later(
    owner: Any, configure: Configure, access: DatabaseAccess, clock: Clock
) -> None:
    subscription = await a_subscription(owner)
    async with running(configure(), access, ["router"]):
        event = await an_event(owner)
        await until(lambda: pairs(owner))
        await owner.execute("UPDATE subscriptions SET active = false")
        await clock.shift(2)
        await an_event(owner)
        witness = await a_subscription(owner)
        last = await an_event(owner)
        await until_row(
            owner, "SELECT count(*) FROM webhook_delivery_sagas WHERE event_id = $1", last, wanted=1
        )
    assert await pairs(owner) == {(event, subscription), (last, witness)}


async def test_an_event_inserted_by_an_application_is_routed_without_a_hint(
    owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    await a_subscription(owner)
    async with running(configure(), access, ["router"]):
        await an_event(owner)
        await until(lambda: pairs(owner))


@pytest.fixture
async def both_routers(open_store: OpenStore) -> AsyncIterator[list[Router]]:
    yield [
        Router(store_of(RouterStore, await open_store("router")), Hints(), [0], batch=50)
        for _ in (1, 2)
    ]


async def test_routers_side_by_side_share_the_work_and_double_nothing(
    owner: Any, both_routers: list[Router]
) -> None:
    await a_subscription(owner)
    await a_subscription(owner)
    await many_events(owner, 1000)
    await asyncio.gather(*(route_all(router) for router in both_routers))
    await route_all(both_routers[0])
    assert len(await pairs(owner)) == 2000
