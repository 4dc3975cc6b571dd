"""Soak: half of what this machine can do, for as long as it takes to see that nothing grows."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict

from faults.processes import Program
from faults.scenario import Bound, Figures, Scenario
from faults.upkeep import Sample, megabytes_per_minute, more_descriptors, sample
from faults.world import World

MINUTES, SHORT_MINUTES = 30.0, 2.0
WARM_SHARE = 0.25  # of the time: caches fill, pools reach their size
BURST, SHORT_BURST = 3_000, 800
FASTER_THAN_ANY = 5_000.0  # per second
LOOK_SECONDS = 2.0
CAP = 256  # what a subscription may have open: it is not what limits the burst
OUTBOX_SHARE = 0.2
# Dead row versions and how many were made in all. MariaDB counts the transactions whose versions
# are not purged yet.
POSTGRESQL = """
    SELECT sum(n_dead_tup)::float8, sum(n_tup_upd + n_tup_del)::float8 FROM pg_stat_user_tables
"""
MARIADB = """
    SELECT sum(if(variable_name = 'innodb_history_list_length', variable_value, 0)),
           sum(if(variable_name IN ('handler_update', 'handler_delete'), variable_value, 0))
    FROM information_schema.global_status
"""


class Soaked(Scenario):
    name = "soak"
    fault = "half of the load that this machine can take, for long"
    bounds = (
        Bound("minutes", at_least=MINUTES, short=SHORT_MINUTES),
        Bound("events per second", at_least=1),
        Bound("steepest memory, MB/min", at_most=1, short=4),
        Bound("more file descriptors", at_most=2, short=8),
        Bound("dead rows, % of those made", at_most=10, short=50),
    )

    async def run(self, world: World) -> Figures:
        await world.open()
        programs = await world.start_everything()
        await world.subscribe("a", "b", concurrency_cap=CAP)
        rate = await self._capacity(world) / 2
        before = len(world.ledger.acknowledged)
        began = time.monotonic()
        async with world.load(http=rate * (1 - OUTBOX_SHARE), outbox=rate * OUTBOX_SHARE):
            watched = await self._watch(world, programs, MINUTES if world.long else SHORT_MINUTES)
        seconds = time.monotonic() - began
        events = len(world.ledger.acknowledged) - before
        await world.settle()
        return {
            **await world.figures(),
            **watched,
            "minutes": seconds / 60,
            "events per second": events / seconds,
        }

    async def _capacity(self, world: World) -> float:
        """Events per second, from the first offer of a burst until the last has arrived."""
        began = time.monotonic()
        async with world.load(http=FASTER_THAN_ANY, events=BURST if world.long else SHORT_BURST):
            pass
        await world.settle()
        return len(world.ledger.acknowledged) / (time.monotonic() - began)

    async def _watch(self, world: World, programs: list[Program], minutes: float) -> Figures:
        end = time.monotonic() + 60 * minutes
        await asyncio.sleep(60 * minutes * WARM_SHARE)
        samples: dict[str, list[Sample]] = {one.name: [] for one in programs}
        dead, made = [], 0.0
        while (now := time.monotonic()) < end:
            for program in programs:
                samples[program.name].append(sample(program.pid, now))
            unused, made = await versions(world)
            dead.append(unused)
            world.receiver.requests.clear()  # what counts is in the ledger
            await asyncio.sleep(LOOK_SECONDS)
        (world.logs / "samples.json").write_text(json.dumps([samples, dead], default=asdict))
        return {
            "steepest memory, MB/min": max(map(megabytes_per_minute, samples.values())),
            "more file descriptors": max(map(more_descriptors, samples.values())),
            "dead rows, % of those made": 100 * max(dead) / made,
        }


async def versions(world: World) -> tuple[float, float]:
    """Rows that are dead now, and how many were made since the beginning."""
    async with world.database.connect() as connection:
        if world.engine == "postgresql":
            (row,) = await connection.fetch(POSTGRESQL)
        else:
            (row,) = await connection.native(MARIADB)
        return float(row[0]), float(row[1])
