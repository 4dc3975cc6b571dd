"""A process that is started while the database is down: it exits with 3, in one line."""

from __future__ import annotations

import time

from faults.processes import Program
from faults.scenario import Bound, Figures, Scenario
from faults.world import World
from surehook.process.components import COMPONENTS

EVENTS = 60
UNREACHABLE = 3  # docs/troubleshooting.md


class StartedEarly(Scenario):
    name = "start"
    fault = "a process started while the database is down"
    bounds = (
        Bound("processes", exactly=len(COMPONENTS) + 1),
        Bound("did not exit with 3", at_most=0),
        Bound("without one clear line", at_most=0),
        Bound("half-started", at_most=0),
        Bound("slowest exit", at_most=10, unit="s"),
    )

    async def run(self, world: World) -> Figures:
        await world.open()
        await world.start(api=1, verifier=1)
        await world.subscribe("a", "b")
        async with world.load(http=30, outbox=10, events=EVENTS):
            pass
        for program in world.programs:
            await program.terminate()
        await world.database.stop_hard()
        early = [world.program(name) for name in (*COMPONENTS, "serve")]
        seconds = await self._until_ended(early)
        figures = {
            "processes": len(early),
            "did not exit with 3": sum(one.exit_code != UNREACHABLE for one in early),
            "without one clear line": sum(not _is_clear(one) for one in early),
            "half-started": sum(any(one.facts("component.started")) for one in early),
            "slowest exit": seconds,
        }
        await world.database.start()
        for program in world.programs:  # as whatever keeps processes alive does
            program.launch()
        for program in world.programs:
            await program.started(len(COMPONENTS) if program.component == "serve" else 1)
        async with world.load(http=30, outbox=10, events=EVENTS):
            pass
        await world.settle()
        return {**await world.figures(), **figures}

    async def _until_ended(self, programs: list[Program]) -> float:
        """Seconds until the last has ended by itself."""
        began = time.monotonic()
        for program in programs:
            program.launch()
            program.wanted = False  # it is to end
        for program in programs:
            await program.ended()
        return time.monotonic() - began


def _is_clear(program: Program) -> bool:
    lines = program.log.read_text().splitlines()
    return len(lines) == 1 and "The database does not answer" in lines[0]
