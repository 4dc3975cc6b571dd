"""SIGTERM, one process after the other, as an upgrade does it."""

from __future__ import annotations

from faults.processes import Program
from faults.scenario import Bound, Figures, Scenario
from faults.world import REQUEST_SECONDS, World
from support.receiver import Answer

RESTARTS, SHORT_RESTARTS = 20, 8
# Requests are under way whenever a worker is told to end.
ANSWER_SECONDS = 0.3


class Restarted(Scenario):
    name = "restart"
    fault = "SIGTERM rolling restarts: one process after the other"
    bounds = (
        Bound("restarts", at_least=RESTARTS, short=SHORT_RESTARTS),
        Bound("extra sends", at_most=0),
        Bound("slowest exit", at_most=REQUEST_SECONDS + 2, unit="s"),
        Bound("bad exits", at_most=0),
    )

    async def run(self, world: World) -> Figures:
        await world.open()
        await world.start_everything()
        await world.subscribe("a", "b")
        world.behave("b", lambda _: Answer(delay=ANSWER_SECONDS))
        exits: list[float] = []
        bad = 0
        async with world.load(http=40, outbox=10):
            for program in self._order(world, RESTARTS if world.long else SHORT_RESTARTS):
                exits.append(await program.terminate())
                bad += program.exit_code != 0
                program.launch()
                await program.started()
        await world.settle()
        return {
            **await world.figures(),
            "restarts": len(exits),
            "slowest exit": max(exits),
            "bad exits": bad,
        }

    def _order(self, world: World, count: int) -> list[Program]:
        """Every process once, then again; the workers first, for they have most to lose."""
        workers = world.running("worker")
        others = [one for one in world.programs if one not in workers]
        world.dice.shuffle(others)
        order = [*workers, *others]
        return (order * count)[:count]
