"""The disk under the database fills up, and later there is room again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from faults.databases import DatabaseServer, MariadbServer, PostgresServer
from faults.disks import MIB, SmallDisk, can_mount
from faults.scenario import Bound, Figures, Scenario
from faults.world import World
from support.waiting import until

TURNS, SHORT_TURNS = 6, 2
RESUME_SECONDS = 10.0
FULL_SECONDS = 4.0
EFFECT_SECONDS_MAX = 120.0
DATA_BYTES, LOG_BYTES = 256 * MIB, 48 * MIB


class _OnSmallDisks(DatabaseServer):
    """Data on one small disk, and on another what is written before it may be acknowledged."""

    looks_once_a_minute = False  # whether there is room for its log

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory, *options)
        self.disks = {
            "data": SmallDisk(directory / "data-disk", DATA_BYTES),
            "log": SmallDisk(directory / "log-disk", LOG_BYTES),
        }

    @property
    def data(self) -> Path:
        return self.disks["data"].path / "data"

    @property
    def write_ahead(self) -> Path:
        return self.disks["log"].path / "log"

    def _make_directory(self) -> None:
        super()._make_directory()
        for disk in self.disks.values():
            disk.mount(self._account)

    async def close(self) -> None:
        await super().close()
        for disk in self.disks.values():
            disk.unmount()


class _Postgres(_OnSmallDisks, PostgresServer):
    @property
    def create_options(self) -> tuple[str, ...]:
        # Small segments: else what is reserved lasts for as long as the disk is full.
        return ("--waldir", str(self.write_ahead), "--wal-segsize", "1")

    def _command(self) -> list[str]:
        sizes = ("-c", "min_wal_size=2MB", "-c", "max_wal_size=16MB")
        return [*super()._command(), *sizes]


class _Mariadb(_OnSmallDisks, MariadbServer):
    """InnoDB's own log has its size from the start; the binary log is what grows."""

    looks_once_a_minute = True

    def _command(self) -> list[str]:
        self.write_ahead.mkdir(mode=0o777, exist_ok=True)
        self.write_ahead.chmod(0o777)
        given = [one for one in super()._command() if one != "--skip-log-bin"]
        return [
            *given,
            f"--log-bin={self.write_ahead / 'bin'}",
            "--server-id=1",
            "--binlog-format=ROW",
            "--sync-binlog=1",
            "--max-binlog-size=4M",
        ]


SERVERS: dict[str, type[_OnSmallDisks]] = {"postgresql": _Postgres, "mariadb": _Mariadb}


class DiskFull(Scenario):
    name = "disk-full"
    fault = "the disk under the database is full: that of its data, or of its log"
    bounds = (
        Bound("times full", at_least=TURNS, short=SHORT_TURNS),
        Bound("times that publishing was refused", at_least=TURNS, short=SHORT_TURNS),
        Bound("answers other than 2xx and 503", at_most=0),
        Bound("slowest resume", at_most=RESUME_SECONDS, unit="s"),
    )

    def missing(self) -> str | None:
        return None if can_mount() else "needs root, to mount a small file system"

    async def run(self, world: World) -> Figures:
        server = SERVERS[world.engine](world.data / "database")
        try:
            return await self._run(world, server)
        finally:
            await server.close()

    async def _run(self, world: World, server: _OnSmallDisks) -> Figures:
        await world.open(database=server)
        await world.start_everything()
        await world.subscribe("a", "b")
        resumes: list[float] = []
        refused = 0
        async with world.load(http=60, outbox=10):
            for turn in range(TURNS if world.long else SHORT_TURNS):
                await asyncio.sleep(world.dice.uniform(1, 3))
                disk = server.disks["data" if turn % 2 == 0 else "log"]
                refused += await self._fill(world, disk)
                resumes.append(await self._free(world, server, disk))
        await world.settle()
        return {
            **await world.figures(),
            "times full": len(resumes),
            "times that publishing was refused": refused,
            "answers other than 2xx and 503": sum(
                not one.acknowledged and one.status != 503 for one in world.answers()
            ),
            "slowest resume": max(resumes),
        }

    async def _fill(self, world: World, disk: SmallDisk) -> bool:
        """Until the database feels it, and for some seconds more; whether it did."""
        before = _refusals(world)

        async def felt() -> bool:
            await asyncio.to_thread(disk.fill)
            return _refusals(world) > before

        try:
            await until(felt, EFFECT_SECONDS_MAX)
        except AssertionError:
            return False
        end = time.monotonic() + FULL_SECONDS
        while time.monotonic() < end:
            await asyncio.to_thread(disk.fill)
            await asyncio.sleep(0.1)
        return True

    async def _free(self, world: World, server: _OnSmallDisks, disk: SmallDisk) -> float:
        """Seconds from then until deliveries went on; a server that gave up is started again, as
        whatever keeps it does, and one that would wait for a minute too, as its operator does."""
        disk.free()
        began = time.monotonic()
        if server.looks_once_a_minute and disk is server.disks["log"]:
            await server.kill()
        await server.ready()
        return await world.resumed(began)


def _refusals(world: World) -> int:
    return sum(not one.acknowledged for one in world.answers())
