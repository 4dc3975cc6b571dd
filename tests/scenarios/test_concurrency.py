"""Many processes of each kind at once: nothing lost, nothing doubled, no deadlock storm."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from support import OpenStore, dialects, servers
from support.pipeline import UNFINISHED, broken_invariants, statuses
from support.processes import children, environment
from support.receiver import Answer, Receiver
from support.rows import a_subscription, many_events
from support.waiting import until_row
from surehook.store.logins import DatabaseAccess

pytestmark = pytest.mark.timeout(3600)
SUBSCRIPTIONS = 10


@dataclass(frozen=True)
class Size:
    routers: int
    orchestrators: int
    workers: int
    cleaners: int
    deliveries: int


@pytest.mark.parametrize("buckets", [1, 4])
async def test_processes_side_by_side_lose_and_double_nothing(
    owner: Any, access: DatabaseAccess, open_store: OpenStore, database_url: str, buckets: int
) -> None:
    size = Size(2, 2, 3, 1, deliveries=2000)
    await _deliver(owner, access, open_store, database_url, buckets, size)


@pytest.mark.long
@pytest.mark.parametrize("buckets", [1, 4])
async def test_four_routers_four_orchestrators_eight_workers_two_cleaners(
    owner: Any, access: DatabaseAccess, open_store: OpenStore, database_url: str, buckets: int
) -> None:
    size = Size(4, 4, 8, 2, deliveries=20_000)
    await _deliver(owner, access, open_store, database_url, buckets, size)


async def _deliver(
    owner: Any,
    access: DatabaseAccess,
    open_store: OpenStore,
    database_url: str,
    buckets: int,
    size: Size,
) -> None:
    events = size.deliveries // SUBSCRIPTIONS
    loop = asyncio.get_running_loop()
    before = await dialects.deadlocks(owner)
    async with Receiver() as receiver:
        # One answer in ten is a failure, in whatever order the requests come.
        answers = [Answer(status=503) if n % 10 == 7 else Answer() for n in range(5 * events)]
        for number in range(SUBSCRIPTIONS):
            receiver.script(f"/{number}", *answers)
            await a_subscription(owner, callback_url=f"{receiver.url}/{number}")
        env = environment(access, retry_base_delay="50ms", log_level="warning")
        kinds = {
            "router": size.routers,
            "orchestrator": size.orchestrators,
            "worker": size.workers,
            "cleaner": size.cleaners,
            "deadletters": 1,
        }
        with children() as start:
            processes = [
                start(["serve", kind], env) for kind, count in kinds.items() for _ in range(count)
            ]
            began = loop.time()
            await asyncio.gather(
                *(_write(database_url, events // 4, buckets, number) for number in range(4))
            )
            await until_row(
                owner,
                "SELECT count(*) FROM webhook_delivery_sagas",
                wanted=size.deliveries,
            )
            await until_row(owner, UNFINISHED, wanted=0)
            took = loop.time() - began
            await asyncio.gather(*(process.stop() for process in processes))
            errors = [
                line
                for process in processes
                for line in process.lines()
                if line["event"] in ("component.failed", "database.lost")
            ]
        sent = receiver.count
        messages = Counter(request.headers["webhook-id"] for request in receiver.requests)
    deadlocks = await dialects.deadlocks(owner) - before
    jobs, resets, failures = await owner.fetchrow(
        "SELECT count(*), sum(lease_resets), count(*) FILTER (WHERE status = 'Failed') "
        "FROM webhook_delivery_jobs"
    )
    print(
        f"\n{size.deliveries} deliveries, {jobs} attempts, {failures} failures in {took:.1f} s; "
        f"{resets} leases lost, {deadlocks} deadlocks"
    )
    assert errors == []
    assert deadlocks <= 5
    assert await broken_invariants(open_store) == {}
    assert len(messages) == size.deliveries
    found = await statuses(owner)
    assert sum(found.values()) == size.deliveries
    assert found.get("DeadLettered", 0) == await owner.fetchval("SELECT count(*) FROM dead_letters")
    assert failures > size.deliveries * 0.08
    assert resets == 0 and sent == jobs, "a lease was lost although no worker was"


async def _write(url: str, count: int, buckets: int, number: int) -> None:
    """Events in transactions of all sizes, as an application would."""
    async with servers.connected(url) as writer:
        written = 0
        while written < count:
            size = min(1 + written % 23, count - written)
            turn = [(number + access) % buckets for access in range(buckets)]
            await many_events(writer, size, buckets=turn)
            written += size
