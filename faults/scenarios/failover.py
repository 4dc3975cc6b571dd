"""The primary dies and its standby takes over: with synchronous and asynchronous replication.

Half of the processes reach the database through an address that is moved to the new primary; on
PostgreSQL the other half have both servers in their URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from faults.proxy import Proxy, dialling
from faults.replication import PAIRS, Pair
from faults.scenario import PROMISES, Bound, Figures, Scenario
from faults.world import World, shop_url_at
from support.receiver import Answer
from surehook.process.components import COMPONENTS

FAILOVERS, SHORT_FAILOVERS = 4, 2
RESUME_SECONDS = 10.0
# Requests of before the standby fell behind may still be answered.
ANSWERED_SECONDS = 0.5
ANSWER_SECONDS = 4.0
LOSS = ("lost", "phantom", "second ids")


@dataclass(frozen=True)
class Turn:
    """One failover."""

    behind_at: float  # the standby heard nothing from then on
    died_at: float
    began: float  # the promotion
    resumed: float  # seconds after that


class Failover(Scenario):
    name = "failover"
    fault = "the primary killed, its standby promoted: synchronous replication"
    synchronous = True
    bounds: ClassVar[tuple[Bound, ...]] = (
        Bound("failovers", at_least=FAILOVERS, short=SHORT_FAILOVERS),
        Bound("acknowledged while the standby was behind", at_most=0),
        Bound("slowest resume", at_most=RESUME_SECONDS, unit="s"),
    )

    async def run(self, world: World) -> Figures:
        pair = PAIRS[world.engine](world.data, self.synchronous)
        way = Proxy(lambda: dialling(pair.primary.port)())
        await way.start()
        try:
            return await self._run(world, pair, way)
        finally:
            for program in world.programs:
                if program.is_running:
                    await program.kill()
            await pair.close()
            await way.close()

    async def _run(self, world: World, pair: Pair, way: Proxy) -> Figures:
        moved = pair.primary.url.replace(f":{pair.primary.port}/", f":{way.port}/")
        await world.open(database=pair.primary, url=moved)
        world.move_shop(shop_url_at(moved))
        await pair.add_standby()
        await self._start(world, pair)
        await world.subscribe("a", "b")
        self._prepare(world)
        turns: list[Turn] = []
        async with world.load(http=25, outbox=5):
            for number in range(FAILOVERS if world.long else SHORT_FAILOVERS):
                if number:
                    await pair.add_standby()
                    await self._restart_those_with_both(world, pair)
                await asyncio.sleep(world.dice.uniform(2, 4))
                turns.append(await self._fail_over(world, pair, self._behind(world, number)))
        await self._settle(world)
        return {**await world.figures(), **self._figures(world, turns)}

    def _prepare(self, world: World) -> None:
        """Before the load begins."""

    async def _settle(self, world: World) -> None:
        await world.settle()

    def _behind(self, world: World, number: int) -> float:
        """For how many seconds the standby hears nothing before the primary dies."""
        return world.dice.uniform(2, 5) if number % 2 else 0.0

    def _figures(self, world: World, turns: Sequence[Turn]) -> dict[str, float]:
        answers = [one for one in world.answers() if one.acknowledged]
        return {
            "failovers": len(turns),
            "acknowledged while the standby was behind": sum(
                turn.behind_at + ANSWERED_SECONDS < one.begun and one.ended < turn.died_at
                for turn in turns
                for one in answers
            ),
            "slowest resume": max(turn.resumed for turn in turns),
        }

    # ── Parts ─────────────────────────────────────────────────────────────────────────────────

    async def _start(self, world: World, pair: Pair) -> None:
        """Two processes of each component; the second of them knows both servers."""
        for component in COMPONENTS:
            for number in range(2):
                given = {"database_url": both(pair)} if number and _has_several(world) else {}
                world.program(component, **given)
        for program in world.programs:
            program.launch()
        for program in world.programs:
            await program.started()

    async def _restart_those_with_both(self, world: World, pair: Pair) -> None:
        """Where the new standby is, their operator has to tell them."""
        if not _has_several(world):
            return
        for program in world.programs:
            if "," in program.env["SUREHOOK_DATABASE_URL"]:
                program.env["SUREHOOK_DATABASE_URL"] = both(pair)
                await program.terminate()
                program.launch()
                await program.started()

    async def _fail_over(self, world: World, pair: Pair, behind: float) -> Turn:
        behind_at = time.monotonic()
        if behind:
            pair.fall_behind()
            await asyncio.sleep(behind)
        await pair.primary.kill()
        died_at = time.monotonic()
        if not behind:
            behind_at = died_at
        await asyncio.sleep(world.dice.uniform(0, 3))
        began = time.monotonic()
        await pair.fail_over()
        world.use(pair.primary)
        return Turn(behind_at, died_at, began, await world.resumed(began))


class FailoverAsync(Failover):
    """What was acknowledged and had not reached the standby is gone; nothing else is."""

    name = "failover-async"
    fault = "the primary killed, its standby promoted: asynchronous replication, 2 to 5 s behind"
    synchronous = False
    bounds = (
        Bound("failovers", at_least=FAILOVERS, short=SHORT_FAILOVERS),
        Bound("acknowledged while the standby was behind", at_least=1),
        Bound("lost that the standby had", at_most=0),
        Bound("slowest resume", at_most=RESUME_SECONDS, unit="s"),
    )

    def all_bounds(self) -> tuple[Bound, ...]:
        promises = tuple(bound for bound in PROMISES if bound.figure not in LOSS)
        return (*promises, *self.bounds)

    def _prepare(self, world: World) -> None:
        """Some requests outlast the failover: their jobs' numbers are given out again meanwhile."""
        dice = random.Random(world.dice.random())
        world.behave("b", lambda _: Answer(delay=ANSWER_SECONDS if dice.random() < 0.1 else 0))

    async def _settle(self, world: World) -> None:
        """What is lost is not waited for."""
        with contextlib.suppress(AssertionError):  # then the invariants say so
            await world.at_rest()

    def _behind(self, world: World, number: int) -> float:
        return world.dice.uniform(2, 5)

    def _figures(self, world: World, turns: Sequence[Turn]) -> dict[str, float]:
        acknowledged = world.ledger.acknowledged
        lost = {tag for tag, _ in world.ledger.missing}
        windows = [(turn.behind_at - ANSWERED_SECONDS, turn.began) for turn in turns]

        def while_behind(tag: str) -> bool:
            return any(began <= acknowledged[tag] <= ended for began, ended in windows)

        tags: defaultdict[str, set[str]] = defaultdict(set)
        for arrival in world.ledger.arrivals:
            tags[arrival.webhook_id].add(arrival.tag)
        return {
            "failovers": len(turns),
            "acknowledged while the standby was behind": sum(map(while_behind, acknowledged)),
            "lost that the standby had": sum(not while_behind(tag) for tag in lost),
            "webhook-ids of two events": sum(len(found) > 1 for found in tags.values()),
            "slowest resume": max(turn.resumed for turn in turns),
        }


def _has_several(world: World) -> bool:
    """Only PostgreSQL's URLs name several servers."""
    return world.engine == "postgresql"


def both(pair: Pair) -> str:
    """A URL with both servers."""
    first, second = pair.primary, pair.standby
    url = first.url.replace(
        f"127.0.0.1:{first.port}", f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
    )
    return f"{url}?target_session_attrs=primary"
