"""Someone else uses up all connections of the database, the product's own included."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from faults.databases import OWNER
from faults.outages import ANSWER_SECONDS, RESUME_SECONDS, Outage, outage_figures
from faults.publishers import drop, open_connection
from faults.scenario import Bound, Figures, Scenario
from faults.world import World

SECONDS, SHORT_SECONDS = 60.0, 15.0
CONNECTIONS_MAX = 200  # of the server, and some
OURS_POSTGRESQL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND usename <> current_user"
)
OURS_MARIADB = (
    "SELECT id FROM information_schema.processlist "
    f"WHERE user NOT IN ('{OWNER}', 'root', 'event_scheduler', 'system user')"
)


class ConnectionsTaken(Scenario):
    name = "connections"
    fault = "all database connections used up by someone else"
    bounds = (
        Bound("seconds without a connection", at_least=SECONDS, short=SHORT_SECONDS, unit="s"),
        Bound("refusals", at_least=10),
        Bound("slowest refusal", at_most=ANSWER_SECONDS, unit="s"),
        Bound("answers other than 503", at_most=0),
        Bound("slowest resume", at_most=RESUME_SECONDS, unit="s"),
    )

    async def run(self, world: World) -> Figures:
        await world.open()
        await world.start_everything()
        await world.subscribe("a", "b")
        hog = Hog(world.database.url)
        seconds = SECONDS if world.long else SHORT_SECONDS
        async with world.load(http=20, outbox=5):
            await world.offered(50)
            await hog.take_all()
            began = time.monotonic()
            await hog.hold(seconds)
            ended = time.monotonic()
            await hog.release()
            outage = Outage(began, ended, await world.resumed(ended))
        await world.settle()
        return {
            **await world.figures(),
            **outage_figures([outage], world.answers()),
            "seconds without a connection": ended - began,
        }


class Hog:
    """Takes every connection that the server gives, and takes those of others away."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._held: list[Any] = []

    async def take_all(self) -> None:
        """Until the server gives none and nobody else has one."""
        self._held.append(await open_connection(self._url))
        while True:
            await self._take()
            if not await self._end_others():
                return

    async def hold(self, seconds: float) -> None:
        """Whoever gets in between loses it again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await self._end_others()
            await self._take()
            await asyncio.sleep(0.05)

    async def release(self) -> None:
        held, self._held = self._held, []
        await asyncio.gather(*(drop(connection) for connection in held))

    async def _take(self) -> None:
        while len(self._held) < CONNECTIONS_MAX:
            with contextlib.suppress(Exception):  # too many connections
                self._held.append(await open_connection(self._url))
                continue
            return

    async def _end_others(self) -> int:
        """How many sessions of others there were."""
        first = self._held[0]
        if self._url.startswith("postgresql:"):
            return len(await first.fetch(OURS_POSTGRESQL))
        others = [row[0] for row in await first.native(OURS_MARIADB)]
        for number in others:
            with contextlib.suppress(Exception):  # it has just ended
                await first.native(f"KILL {int(number)}")
        return len(others)
