"""An application holds its transaction open with an event in it, while others publish."""

from __future__ import annotations

import asyncio
import time

from faults.publishers import drop, open_connection, place_order
from faults.scenario import Bound, Figures, Scenario
from faults.world import EVENT_TYPE, World
from support.waiting import until

SECONDS, SHORT_SECONDS = 30.0, 12.0
TAG = "held"


class HeldTransaction(Scenario):
    name = "writer"
    fault = "a writer holds its transaction open with an event in it"
    bounds = (
        Bound("seconds held", at_least=SECONDS, short=SHORT_SECONDS, unit="s"),
        Bound("held event after its commit", at_most=5, unit="s"),
        Bound("others delayed", at_most=1, unit="s"),
    )

    async def run(self, world: World) -> Figures:
        await world.open()
        await world.start_everything()
        await world.subscribe("a", "b")
        async with world.load(http=40, outbox=10):
            await world.offered(100)
            began, ended = await self._hold(world, SECONDS if world.long else SHORT_SECONDS)
            await until(lambda: (TAG, "b") not in world.ledger.missing)
        await world.settle()
        acknowledged, delays = world.ledger.acknowledged, world.ledger.delays()
        others = [
            seconds
            for (tag, _), seconds in delays.items()
            if tag != TAG and began <= acknowledged[tag] <= ended
        ]
        return {
            **await world.figures(),
            "seconds held": ended - began,
            "held event after its commit": max(delays[TAG, "a"], delays[TAG, "b"]),
            "others delayed": max(others),
        }

    async def _hold(self, world: World, seconds: float) -> tuple[float, float]:
        """From when to when the transaction was open."""
        world.ledger.offer(TAG, world.owed())
        connection = await open_connection(world.shop_url())
        transaction = connection.transaction()
        await transaction.start()
        began = time.monotonic()
        await place_order(connection, TAG, EVENT_TYPE)
        await asyncio.sleep(seconds)
        await transaction.commit()
        world.ledger.acknowledge(TAG, time.monotonic())
        ended = time.monotonic()
        await drop(connection)
        return began, ended
