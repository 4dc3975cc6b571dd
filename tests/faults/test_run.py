"""A whole run of the harness on a system that is broken: it says so, and keeps the logs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from faults.run import run_one
from faults.scenario import Bound, Figures, Scenario
from faults.world import World

# Nobody gives back what a dead worker held, so waiting for longer changes nothing.
SETTLE_SECONDS = 10.0


class Uncleaned(Scenario):
    """A worker dies between lease and request, and no cleaner runs."""

    name = "uncleaned"
    fault = "kill -9 of a worker where no cleaner runs"
    bounds = (Bound("events", at_least=20),)

    async def run(self, world: World) -> Figures:
        await world.open()
        await world.start(api=1, verifier=1, router=1, orchestrator=1)
        await world.subscribe("a")
        victim = world.program("worker", test_crashpoint="worker.before_send=kill")
        victim.launch()
        async with world.load(http=20, events=20):
            await victim.ended()
            victim.wanted = False
            await world.start(worker=1)
        await world.settle(SETTLE_SECONDS)
        return await world.figures()


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql", "mariadb"])
async def test_a_system_without_a_cleaner_loses_events_and_the_run_fails(engine: str) -> None:
    result = await run_one(Uncleaned(), engine, seed=1, long=False)
    try:
        assert not result.passed and not result.error
        assert result.figures["lost"] >= 1 and result.figures["phantom"] == 0
        assert [line.split()[0] for line in result.missed] == ["lost"]
        assert (Path(result.logs) / "worker-1.log").exists()
    finally:
        shutil.rmtree(result.logs, ignore_errors=True)
