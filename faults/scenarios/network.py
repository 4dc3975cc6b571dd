"""The network between components and the database goes silent, resets, or cuts messages short."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from faults.outages import ANSWER_SECONDS
from faults.proxy import Direction, Link, Proxy, dialling
from faults.scenario import Bound, Figures, Scenario
from faults.world import World
from support.waiting import until
from surehook.process.components import COMPONENTS

FAULTS, SHORT_FAULTS = 35, 8
NOTICE_SECONDS = 10.0
LOOK_SECONDS_MAX = 30.0
# A silence that new connections meet too: long enough to be noticed.
DARK_SECONDS = 12.0
EVERYTHING = "everything"
WAYS = (Direction.BOTH, Direction.TO_SERVER, Direction.TO_CLIENT)


@dataclass(frozen=True)
class Fault:
    kind: str  # stall, dark (new connections too), reset, cut
    target: str  # a component, or all of them
    direction: Direction
    late: bool  # what a silence has kept arrives in the end
    after_bytes: int


def plan(dice: random.Random, count: int) -> list[Fault]:
    """Every kind, and every component where there are enough; half of them are silences."""
    kinds = ["stall", "reset", "stall", "cut", "stall", "dark", "stall", "cut"]
    targets = [*COMPONENTS, EVERYTHING]
    dice.shuffle(targets)
    return [
        Fault(
            kinds[number % len(kinds)],
            targets[number % len(targets)],
            dice.choice(WAYS),
            dice.random() < 0.5,
            dice.randrange(1, 40),
        )
        for number in range(count)
    ]


def slowest_notice(links: Sequence[Link]) -> float:
    """The longest that a component waited on a silent connection."""
    now = time.monotonic()
    return max((link.waited(now) or 0.0 for link in links), default=0.0)


class Network(Scenario):
    name = "network"
    fault = "the network to the database stalls, resets, or cuts bytes"
    bounds = (
        Bound("faults", at_least=FAULTS, short=SHORT_FAULTS),
        Bound("silent connections that were waited on", at_least=FAULTS, short=SHORT_FAULTS),
        Bound("slowest notice", at_most=NOTICE_SECONDS, unit="s"),
        Bound("slowest resume", at_most=NOTICE_SECONDS, unit="s"),
        Bound("slowest refusal", at_most=ANSWER_SECONDS, unit="s"),
    )

    async def run(self, world: World) -> Figures:
        await world.open()
        proxies = await self._start(world)
        await world.subscribe("a", "b")
        faults = plan(world.dice, FAULTS if world.long else SHORT_FAULTS)
        notices: list[float] = []
        resumes: list[float] = []
        waited_on = 0
        try:
            async with world.load(http=20, outbox=5):
                for fault in faults:
                    await asyncio.sleep(world.dice.uniform(1, 3))
                    hit = [p for name, p in proxies.items() if fault.target in (name, EVERYTHING)]
                    links, resumed = await self._break(world, fault, hit)
                    notices.append(slowest_notice(links))
                    resumes.append(resumed)
                    waited_on += sum(link.waits_since is not None for link in links)
            await world.settle()
        finally:
            for proxy in proxies.values():
                await proxy.close()
        refused = [one for one in world.answers() if not one.acknowledged]
        return {
            **await world.figures(),
            "faults": len(faults),
            "silent connections that were waited on": waited_on,
            "slowest notice": max(notices),
            "slowest resume": max(resumes),
            "slowest refusal": max((one.seconds for one in refused), default=0.0),
        }

    async def _start(self, world: World) -> dict[str, Proxy]:
        """Two processes of each component; each component has a network of its own."""
        proxies = {}
        for component in COMPONENTS:
            proxy = proxies[component] = Proxy(dialling(world.database.port))
            await proxy.start()
            url = world.url.replace(f":{world.database.port}/", f":{proxy.port}/")
            for _ in range(2):
                world.program(component, database_url=url)
        for program in world.programs:
            program.launch()
        for program in world.programs:
            await program.started()
        return proxies

    async def _break(
        self, world: World, fault: Fault, hit: Sequence[Proxy]
    ) -> tuple[list[Link], float]:
        """The connections that went silent, and how soon deliveries went on: from the fault, or
        from the end of a silence that new connections met too."""
        began = time.monotonic()
        if fault.kind == "reset":
            for proxy in hit:
                proxy.reset()
            return [], await world.resumed(began)
        if fault.kind == "cut":
            for proxy in hit:
                proxy.cut(fault.direction, fault.after_bytes)
            return [], await world.resumed(began)
        dark = fault.kind == "dark"
        links = [one for proxy in hit for one in proxy.stall(fault.direction, new_ones=dark)]
        if dark:
            await asyncio.sleep(DARK_SECONDS)
            for proxy in hit:
                proxy.heal(late=fault.late)
            return links, await world.resumed(time.monotonic())
        resumed = await world.resumed(began)
        with contextlib.suppress(AssertionError):  # then the figure says so
            await until(
                lambda: all(one.given_up_at for one in links if one.waits_since is not None),
                LOOK_SECONDS_MAX,
            )
        for proxy in hit:
            proxy.heal(late=fault.late)
        return links, resumed
