"""kill -9 of every component, at random moments under load."""

from __future__ import annotations

import asyncio

from faults.scenario import Bound, Figures, Scenario
from faults.schedule import hits
from faults.world import LEASE_SECONDS, WORKER_CONCURRENCY, World

# Workers hold what can be sent twice, so they are hit more often.
TARGETS = {
    "worker": 4.0,
    "api": 2.0,
    "router": 2.0,
    "orchestrator": 2.0,
    "cleaner": 1.0,
    "deadletters": 0.5,
    "verifier": 0.5,
}


class Killed(Scenario):
    name = "kill"
    fault = "kill -9 of every component at random, each started again"
    bounds = (
        Bound("kills", at_least=100, short=14),
        Bound("events", at_least=20_000, short=1_000),
        Bound("extra sends", at_most=100 * WORKER_CONCURRENCY, short=14 * WORKER_CONCURRENCY),
        Bound("extra sends, %", at_most=1),
        Bound("latest arrival", at_most=LEASE_SECONDS + 5, unit="s"),
    )

    async def run(self, world: World) -> Figures:
        kills, events, rate = (110, 21_500, 45) if world.long else (16, 1_100, 30)
        await world.open()
        await world.start_everything()
        await world.subscribe("a", "b")
        schedule = hits(world.dice, kills, events, TARGETS)
        async with world.load(http=rate * 0.8, outbox=rate * 0.2, events=events):
            for hit in schedule:
                await world.offered(hit.after_events)
                await asyncio.sleep(hit.delay_seconds)
                target = world.dice.choice(world.running(hit.target))
                await target.kill()
                target.launch()
        await world.settle()
        return {**await world.figures(), "kills": len(schedule)}
