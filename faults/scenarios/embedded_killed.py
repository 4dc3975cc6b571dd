"""kill -9 of the embedded PostgreSQL: its postmaster, or the supervisor that keeps it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

from faults.databases import PostgresServer
from faults.outages import ANSWER_SECONDS, RESUME_SECONDS, Outage, outage_figures
from faults.scenario import Bound, Figures, Scenario
from faults.world import World
from surehook.embedded.server import EmbeddedServer

KILLS, SHORT_KILLS = 10, 3


class Embedded(PostgresServer):
    """The server that `surehook serve` runs; others start and stop it."""

    def __init__(self, data_dir: Path) -> None:
        self._server = EmbeddedServer(data_dir)
        super().__init__(data_dir)

    @property
    def url(self) -> str:
        return self._server.url

    async def start(self) -> None:
        assert self._server.attach()

    async def close(self) -> None:
        pass

    def kill_supervisor(self) -> None:
        os.kill(self._server.supervisor_pid, signal.SIGKILL)

    def kill_postmaster(self) -> None:
        os.kill(self._server.pid, signal.SIGKILL)


class EmbeddedKilled(Scenario):
    name = "embedded"
    fault = "kill -9 of the embedded server, or of its supervisor, under load"
    engines = ("postgresql",)
    bounds = (
        Bound("outages", at_least=KILLS, short=SHORT_KILLS),
        Bound("slowest refusal", at_most=ANSWER_SECONDS, unit="s"),
        Bound("answers other than 503", at_most=0),
        Bound("slowest resume", at_most=RESUME_SECONDS, unit="s"),
    )

    async def run(self, world: World) -> Figures:
        data_dir = world.data / "embedded"
        server = Embedded(data_dir)
        serve = await world.open_embedded(server, data_dir)
        await world.subscribe("a", "b")
        outages = []
        async with world.load(http=20, outbox=5):
            for turn in range(KILLS if world.long else SHORT_KILLS):
                await asyncio.sleep(world.dice.uniform(1, 3))
                outages.append(await self._kill(world, server, supervisor=turn % 3 == 2))
        await world.settle()
        figures = {**await world.figures(), **outage_figures(outages, world.answers())}
        del figures["acknowledged while down"]  # from outside nobody sees when it is back
        await serve.terminate()  # its server goes with it
        return figures

    async def _kill(self, world: World, server: Embedded, supervisor: bool) -> Outage:
        """Nobody but surehook starts it again, so the time until it is back counts too."""
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            (server.kill_supervisor if supervisor else server.kill_postmaster)()
        resumed = await world.resumed(began)
        return Outage(began, time.monotonic(), resumed)
