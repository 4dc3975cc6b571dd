"""Replication: a primary, a standby that follows it over a network of its own, and a promotion.

Reads   what the servers say of their replication
Writes  the standby's data directory; replication settings of both servers

PostgreSQL streams its log; MariaDB replays its binary log, semi-synchronously (AFTER_SYNC, and it
waits for the standby without end). Synchronous means: a commit is answered when the standby has it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from faults.databases import OWNER, PASSWORD, DatabaseServer, MariadbServer, PostgresServer
from faults.proxy import Direction, Proxy, dialling
from support.connections import connected
from support.waiting import until

FOR_EVER_MS = 4_000_000_000


class Pair(ABC):
    """A primary and its standby."""

    primary: DatabaseServer
    standby: DatabaseServer

    def __init__(self, directory: Path, synchronous: bool) -> None:
        self.directory = directory
        self.synchronous = synchronous
        self.stream = Proxy(lambda: dialling(self.primary.port)())  # between the two
        self._number = 1
        self.primary = self._server(1)

    @abstractmethod
    def _server(self, number: int) -> DatabaseServer:
        """A server that may be either."""

    @abstractmethod
    def _follower(self, number: int) -> DatabaseServer:
        """A server that begins with what the primary has."""

    @abstractmethod
    async def _follow(self) -> None:
        """Until the standby has all that the primary has; then, if synchronous, commits wait."""

    @abstractmethod
    async def _promoted(self) -> None:
        """Make the standby a primary with all that reached it."""

    async def add_standby(self) -> None:
        """Of a primary that runs."""
        if not self.stream.port:
            await self.stream.start()
        self._number += 1
        self.standby = self._follower(self._number)
        await self.standby.start()
        await self._follow()

    def fall_behind(self) -> None:
        """From now on nothing that the primary writes reaches the standby."""
        self.stream.stall(Direction.BOTH, new_ones=True)

    async def fail_over(self) -> None:
        """The primary is gone (the caller ended it); the standby becomes the primary."""
        self.stream.heal(late=False)
        await self._promoted()
        self.primary = self.standby

    async def close(self) -> None:
        for server in (self.primary, getattr(self, "standby", None)):
            if server is not None:
                await server.close()
        await self.stream.close()


# ── PostgreSQL ────────────────────────────────────────────────────────────────────────────────


class _PostgresStandby(PostgresServer):
    """Its data directory is a copy of the primary's, which it then follows."""

    source = ""

    def _create(self) -> None:
        self.run_program(
            *(self.binaries / "pg_basebackup", "-D", str(self.data), "-d", self.source),
            *("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"),
        )


class PostgresPair(Pair):
    def _server(self, number: int) -> DatabaseServer:
        return PostgresServer(self.directory / f"server-{number}")

    def _follower(self, number: int) -> DatabaseServer:
        made = _PostgresStandby(self.directory / f"server-{number}")
        made.source = f"postgresql://{OWNER}:{PASSWORD}@127.0.0.1:{self.stream.port}/postgres"
        return made

    async def _follow(self) -> None:
        async with connected(self.primary.admin_url) as primary:
            # After the copy was made: a promoted standby is not to wait for one of its own.
            names = "*" if self.synchronous else ""
            await primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            await primary.execute("SELECT pg_reload_conf()")
            wanted = "sync" if self.synchronous else "async"
            question = (
                "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' "
                "AND sync_state = $1 AND replay_lsn >= pg_current_wal_lsn()"
            )
            await until(lambda: primary.fetchval(question, wanted))

    async def _promoted(self) -> None:
        async with connected(self.standby.admin_url) as standby:
            assert await standby.fetchval("SELECT pg_promote(true, 60)")


# ── MariaDB ───────────────────────────────────────────────────────────────────────────────────


class _MariadbMember(MariadbServer):
    number = 1

    def _command(self) -> list[str]:
        given = [one for one in super()._command() if one != "--skip-log-bin"]
        return [
            *given,
            f"--server-id={self.number}",
            f"--log-bin={self.directory / 'data' / 'bin'}",
            f"--relay-log={self.directory / 'data' / 'relay'}",
            "--binlog-format=ROW",
            "--sync-binlog=1",
            "--log-slave-updates",
            "--skip-slave-start",
            "--slave-net-timeout=5",
            "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
            f"--rpl-semi-sync-master-timeout={FOR_EVER_MS}",
            "--rpl-semi-sync-slave-enabled=1",
        ]


class MariadbPair(Pair):
    def _server(self, number: int) -> DatabaseServer:
        made = _MariadbMember(self.directory / f"server-{number}")
        made.number = number
        return made

    def _follower(self, number: int) -> DatabaseServer:
        """An empty one: the primary's binary log has all of its history."""
        return self._server(number)

    async def _follow(self) -> None:
        async with connected(self.standby.url) as standby:
            await standby.native(
                f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {self.stream.port}, "
                f"MASTER_USER = '{OWNER}', MASTER_PASSWORD = '{PASSWORD}', "
                "MASTER_LOG_FILE = 'bin.000001', MASTER_LOG_POS = 4, MASTER_CONNECT_RETRY = 1, "
                "MASTER_USE_GTID = no"
            )
            await standby.native("START SLAVE")
        await until(self._caught_up)
        async with connected(self.primary.url) as primary:
            on = "ON" if self.synchronous else "OFF"
            await primary.native(f"SET GLOBAL rpl_semi_sync_master_enabled = {on}")
            if self.synchronous:
                await until(lambda: self._has_client(primary))

    async def _caught_up(self) -> bool:
        async with connected(self.primary.url) as primary, connected(self.standby.url) as standby:
            (file, position, *_), *_ = await primary.native("SHOW MASTER STATUS")
            (reached,), *_ = await standby.native(
                f"SELECT MASTER_POS_WAIT('{file}', {position}, 1)"
            )
        return reached is not None and int(reached) >= 0

    async def _has_client(self, primary: Any) -> bool:
        (_, count), *_ = await primary.native("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")
        return int(count) > 0

    async def _promoted(self) -> None:
        """All that has reached it is applied before it takes anything new."""
        async with connected(self.standby.url) as standby:
            await standby.native("STOP SLAVE IO_THREAD")
            await until(lambda: self._has_applied(standby))
            await standby.native("STOP SLAVE")

    async def _has_applied(self, standby: Any) -> bool:
        rows = await standby.native(
            "SELECT COUNT(*) FROM information_schema.processlist "
            "WHERE state LIKE '%has read all relay log%'"
        )
        return int(rows[0][0]) > 0


PAIRS: dict[str, type[Pair]] = {"postgresql": PostgresPair, "mariadb": MariadbPair}
