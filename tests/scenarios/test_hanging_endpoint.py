"""One endpoint that hangs, with 30 % of all events, does not slow the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support import servers
from support.pipeline import UNFINISHED
from support.processes import children, environment
from support.receiver import Answer, Receiver
from support.rows import a_subscription
from support.waiting import until_row
from surehook.store.logins import DatabaseAccess

HEALTHY = 7
PER_SECOND = 140  # for the healthy ones together; the hanging one gets three sevenths beside it
SECONDS = 6  # of each phase
LATENCY = (
    "SELECT EXTRACT(EPOCH FROM s.updated_at - e.created_at)::float8 "
    "FROM webhook_delivery_sagas s JOIN events e ON e.id = s.event_id AND e.bucket = s.bucket "
    "WHERE e.event_type = ANY ($1) AND s.status = 'Completed'"
)


OF_OTHERS = (
    "SELECT count(*) FROM webhook_delivery_sagas s JOIN subscriptions u "
    "ON u.id = s.subscription_id WHERE u.event_type = $1 AND u.tenant <> 'hanging' "
    "AND s.status <> 'Completed'"
)


async def _offer(url: str, phase: str, hanging: bool) -> None:
    """Events at a steady rate, ten times a second."""
    loop = asyncio.get_running_loop()
    async with servers.connected(url) as writer:
        start = loop.time()
        for tick in range(SECONDS * 10):
            await writer.execute(
                "INSERT INTO events (event_type, tenant, payload) "
                "SELECT $1, 'healthy-' || g % $3, '{}' FROM generate_series(1, $2) AS g",
                phase,
                PER_SECOND // 10,
                HEALTHY,
            )
            if hanging:
                await writer.execute(
                    "INSERT INTO events (event_type, tenant, payload) "
                    "SELECT $1, 'hanging', '{}' FROM generate_series(1, $2)",
                    phase,
                    PER_SECOND * 3 // 70,
                )
            await asyncio.sleep(max(0, start + (tick + 1) / 10 - loop.time()))


@pytest.mark.long
async def test_a_hanging_endpoint_leaves_the_others_their_throughput_and_latency(
    owner: Any, access: DatabaseAccess, database_url: str
) -> None:
    """With and without in turn, in one run; what differs is the hanging endpoint alone."""
    phases = [f"{which}-{turn}" for turn in range(4) for which in ("without", "with")]
    async with Receiver(record=False) as receiver:
        receiver.script("/hangs", Answer(hang=True))
        for phase in phases:
            for number in range(HEALTHY):
                await a_subscription(
                    owner,
                    event_type=phase,
                    tenant=f"healthy-{number}",
                    callback_url=f"{receiver.url}/{phase}",
                )
            await a_subscription(
                owner, event_type=phase, tenant="hanging", callback_url=f"{receiver.url}/hangs"
            )
        env = environment(access, request_timeout="5s", lease_duration="12s", retry_base_delay="1s")
        with children() as start:
            process = start(["serve", "router,orchestrator,worker,cleaner,deadletters"], env)
            await process.started(5)
            for phase in phases:
                await _offer(database_url, phase, phase.startswith("with-"))
                await until_row(owner, OF_OTHERS, phase, wanted=0)
                # What hangs is out of the way before the next phase: it dies unsent.
                await owner.execute(
                    "UPDATE subscriptions SET active = false WHERE event_type = $1", phase
                )
                await until_row(owner, UNFINISHED, wanted=0)
            await process.kill()
    done: dict[bool, int] = {}
    late: dict[bool, float] = {}
    for hanging in (False, True):
        wanted = [phase for phase in phases if phase.startswith("with-") == hanging]
        latencies = sorted(row[0] for row in await owner.fetch(LATENCY, wanted))
        done[hanging] = len(latencies)
        late[hanging] = latencies[len(latencies) * 99 // 100]
        p99 = late[hanging] * 1000
        print(f"\n{' '.join(wanted)}: {done[hanging]} completed, p99 {p99:.1f} ms", end="")
    hung = await owner.fetchval(
        "SELECT count(*) FROM webhook_delivery_sagas s JOIN subscriptions u "
        "ON u.id = s.subscription_id WHERE u.tenant = 'hanging'"
    )
    assert hung / (hung + done[True]) == pytest.approx(0.3, abs=0.02)
    assert done[True] >= 0.9 * done[False]
    assert late[True] <= 1.5 * late[False]
