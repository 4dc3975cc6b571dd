"""The database server ends without a word and is started again, under load."""

from __future__ import annotations

import asyncio
import time

from faults.outages import BOUNDS, Outage, outage_figures
from faults.scenario import Bound, Figures, Scenario
from faults.world import World

OUTAGES, SHORT_OUTAGES = 10, 3


class DatabaseStopped(Scenario):
    name = "database"
    fault = "the database stopped hard (immediate, kill -9) and restarted under load"
    bounds = (Bound("outages", at_least=OUTAGES, short=SHORT_OUTAGES), *BOUNDS)

    async def run(self, world: World) -> Figures:
        await world.open()
        await world.start_everything()
        await world.subscribe("a", "b")
        outages = []
        async with world.load(http=20, outbox=5):
            for turn in range(OUTAGES if world.long else SHORT_OUTAGES):
                await asyncio.sleep(world.dice.uniform(1, 3))
                outages.append(await self._outage(world, turn))
        await world.settle()
        return {**await world.figures(), **outage_figures(outages, world.answers())}

    async def _outage(self, world: World, turn: int) -> Outage:
        """One in three is long enough for every back-off to reach its end."""
        seconds = world.dice.uniform(12, 16) if turn % 3 == 2 else world.dice.uniform(0.5, 4)
        await world.dice.choice([world.database.stop_hard, world.database.kill])()
        began = time.monotonic()
        await asyncio.sleep(seconds)
        ended = time.monotonic()
        await world.database.start()
        return Outage(began, ended, await world.resumed(time.monotonic()))
