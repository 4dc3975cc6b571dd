"""Many of one component on the same rows at once: each row is taken once, and nobody is in the way.

The stores themselves, on connections of their own, without anything between them and the rows.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asyncmy.errors import MySQLError

from support import OpenStore, dialects
from support.rows import a_subscription, many_events
from support.waiting import until
from surehook.model.records import JobReport
from surehook.model.states import JobStatus
from surehook.store import store_of
from surehook.store.mysql import failures
from surehook.store.mysql.connection import Connection
from surehook.store.router import RouterStore
from surehook.store.worker import WorkerStore

WORKERS, JOBS = 6, 6000
ROUTERS, EVENTS, SUBSCRIPTIONS = 4, 600, 100
PAIRS = EVENTS * SUBSCRIPTIONS


@pytest.fixture
def deadlocks(owner: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[int]]:
    """How many there were in this database. MySQL counts them for the whole server, where other
    tests are at work: there those are counted that our connections were told of."""
    if not dialects.speaks_mysql(owner):
        return lambda: dialects.deadlocks(owner)
    told: list[BaseException] = []
    run = Connection._run

    async def noting(connection: Connection, text: str) -> Any:
        try:
            return await run(connection, text)
        except MySQLError as error:
            if failures.number(error) == failures.DEADLOCK:
                told.append(error)
            raise

    async def count() -> int:
        return len(told)

    monkeypatch.setattr(Connection, "_run", noting)
    return count


async def test_six_workers_lease_six_thousand_jobs_once_each(
    owner: Any, open_store: OpenStore, deadlocks: Callable[[], Awaitable[int]]
) -> None:
    await _pending_jobs(owner)
    leased: Counter[int] = Counter()
    written: Counter[int] = Counter()

    async def work(number: int) -> None:
        store = store_of(WorkerStore, await open_store("worker"), f"worker-{number}")
        generator = random.Random(number)
        while True:
            token = generator.getrandbits(62)
            jobs = await store.lease_jobs(
                0, (0, 3), generator.randint(5, 120), 1 << 30, 30.0, token
            )
            if not jobs:
                return  # what the others hold is theirs, and will be finished by them
            leased.update(job.job_id for job in jobs)
            done = [
                JobReport(job.job_id, JobStatus.COMPLETED, 200, None, None, "ok", None, token, 0)
                for job in jobs
            ]
            written.update(job_id for job_id, _ in await store.finish_jobs(0, done))

    await asyncio.gather(*(work(number) for number in range(WORKERS)))
    assert len(leased) == len(written) == JOBS
    assert set(leased.values()) == set(written.values()) == {1}
    rows = await owner.fetch("SELECT status, count(*) FROM webhook_delivery_jobs GROUP BY status")
    assert [tuple(row) for row in rows] == [("Completed", JOBS)]
    assert await deadlocks() <= JOBS / 1000


async def _pending_jobs(owner: Any) -> None:
    """Each with the event and the saga that it belongs to."""
    subscription_id = await a_subscription(owner)
    await many_events(owner, JOBS)
    await owner.execute(
        "INSERT INTO webhook_delivery_sagas (event_id, subscription_id) "
        "SELECT id, $1 FROM events ORDER BY id",
        subscription_id,
    )
    await owner.execute(
        "INSERT INTO webhook_delivery_jobs (saga_id, event_id, subscription_id, attempt_at) "
        "SELECT id, event_id, subscription_id, next_attempt_at FROM webhook_delivery_sagas "
        "ORDER BY id"
    )


async def test_four_routers_make_sixty_thousand_sagas_beside_what_a_crash_left(
    owner: Any, open_store: OpenStore, deadlocks: Callable[[], Awaitable[int]]
) -> None:
    for _ in range(SUBSCRIPTIONS):
        await a_subscription(owner, secret=None)
    routers = [store_of(RouterStore, await open_store("router")) for _ in range(ROUTERS)]
    while (await routers[0].route_page(0, 10)) != ([], False):
        pass  # the first looks, at the empty table
    start = await dialects.saved_cursors(owner)
    await many_events(owner, EVENTS)
    await _leftovers(owner)
    left = await owner.fetchval("SELECT count(*) FROM webhook_delivery_sagas")
    assert 0 < left < PAIRS
    made: Counter[tuple[int, int]] = Counter()

    async def route(store: RouterStore) -> None:
        while True:
            result = await store.route_page(0, 40)
            if result is None:
                await asyncio.sleep(0.001)  # another one has it
                continue
            made.update((saga.event_id, saga.subscription_id) for saga in result[0])
            if not any(result):
                return

    async def wind_back() -> None:
        await until(lambda: len(made) > PAIRS // 3)
        await dialects.wind_back(owner, start)

    await asyncio.gather(*(route(store) for store in routers), wind_back())
    await asyncio.gather(*(route(store) for store in routers))  # what was wound back last
    assert set(made.values()) == {1}
    assert len(made) == PAIRS - left
    distinct = await owner.fetchval(
        "SELECT count(*) FROM (SELECT DISTINCT event_id, subscription_id "
        "FROM webhook_delivery_sagas) AS pairs"
    )
    assert distinct == await owner.fetchval("SELECT count(*) FROM webhook_delivery_sagas") == PAIRS
    assert await deadlocks() == 0


async def _leftovers(owner: Any) -> None:
    """Sagas of pages whose cursor was not saved: some whole, some in part."""
    await owner.execute(
        "INSERT INTO webhook_delivery_sagas (event_id, subscription_id) "
        "SELECT e.id, s.id FROM events e CROSS JOIN subscriptions s "
        "WHERE e.id % 7 = 0 AND (e.id % 2 = 0 OR s.id % 3 = 0) ORDER BY e.id, s.id"
    )


async def test_event_types_that_differ_in_case_accent_or_a_space_stay_different(
    owner: Any, open_store: OpenStore
) -> None:
    """The API takes none but plain ones; the tables must not take two for one either."""
    types = ["order", "Order", "ORDER", "órder", "order ", " order", "order\u0301", "orderß"]
    wanted = {await a_subscription(owner, event_type=one, secret=None): one for one in types}
    store = store_of(RouterStore, await open_store("router"))
    while (await store.route_page(0, 10)) != ([], False):
        pass
    for one in types:
        await owner.execute("INSERT INTO events (event_type, payload) VALUES ($1, '{}')", one)
    while (await store.route_page(0, 10)) != ([], False):
        pass
    rows = await owner.fetch(
        "SELECT e.event_type, g.subscription_id FROM webhook_delivery_sagas g "
        "JOIN events e ON e.id = g.event_id"
    )
    assert sorted((row[0], wanted[row[1]]) for row in rows) == sorted((one, one) for one in types)
