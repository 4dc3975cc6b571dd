"""The database's clock, shifted for one test's own database.

On PostgreSQL surehook_now() is replaced in it. MySQL's UTC_TIMESTAMP() obeys the session variable
`timestamp`, so there every connection of this process and of its children to that database sets it
before each statement; what they set it to stands in a small file that they share.

Reads   that file, SUREHOOK_TEST_CLOCK
Writes  that file, surehook_now()
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from asyncmy.connection import Connection
from asyncmy.constants import COMMAND

VARIABLE = "SUREHOOK_TEST_CLOCK"
# The moment at which it was stopped (0 = it runs), and by how many seconds it is shifted.
LAYOUT = struct.Struct("=dd")


class Clock(ABC):
    """`await clock.shift(60)`: for every statement from now on it is a minute later."""

    @abstractmethod
    async def shift(self, seconds: float) -> None: ...

    @abstractmethod
    async def stop(self) -> None:
        """From now on only `shift` moves the time."""

    @abstractmethod
    async def now(self) -> datetime: ...


class PostgresClock(Clock):
    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._seconds = 0.0
        self._base = "statement_timestamp()"

    async def shift(self, seconds: float) -> None:
        self._seconds += seconds
        await self._owner.execute(
            "CREATE OR REPLACE FUNCTION surehook_now() RETURNS timestamptz "
            "LANGUAGE sql STABLE PARALLEL SAFE AS "
            f"$$SELECT {self._base} + interval '{self._seconds} seconds'$$"
        )

    async def stop(self) -> None:
        self._base = f"timestamptz '{await self._owner.fetchval('SELECT statement_timestamp()')}'"
        await self.shift(0)

    async def now(self) -> datetime:
        now: datetime = await self._owner.fetchval("SELECT surehook_now()")
        return now


class MysqlClock(Clock):
    def __init__(self, owner: Any, url: str) -> None:
        self._owner = owner
        self._shared = _shared[urlsplit(url).path[1:]]

    async def shift(self, seconds: float) -> None:
        base, shifted = LAYOUT.unpack(self._shared[:])
        self._shared[:] = LAYOUT.pack(base, shifted + seconds)

    async def stop(self) -> None:
        _, shifted = LAYOUT.unpack(self._shared[:])
        self._shared[:] = LAYOUT.pack(time.time(), shifted)

    async def now(self) -> datetime:
        now: datetime = await self._owner.fetchval("SELECT surehook_now()")
        return now


# ── The shared file ───────────────────────────────────────────────────────────────────────────

_shared: dict[str, mmap.mmap] = {}  # by database
_files: dict[str, Path] = {}


def wind(database: str, file: Path) -> None:
    """From now on this file says what time it is in that database: at first, what it really is."""
    file.write_bytes(LAYOUT.pack(0, 0))
    forget(database)
    _adopt(database, file)


def forget(database: str) -> None:
    if database in _shared:
        _shared.pop(database).close()
        _files.pop(database).unlink(missing_ok=True)


def _adopt(database: str, file: Path) -> None:
    with file.open("r+b") as opened:
        _shared[database] = mmap.mmap(opened.fileno(), LAYOUT.size)
    _files[database] = file


def environment(url: str) -> dict[str, str]:
    """What a child process must know to see the same time."""
    database = urlsplit(url).path[1:]
    return {VARIABLE: f"{database}={_files[database]}"} if database in _files else {}


def adopt_from_environment() -> None:
    database, _, file = os.environ.get(VARIABLE, "").partition("=")
    if file:
        _adopt(database, Path(file))


# ── The driver ────────────────────────────────────────────────────────────────────────────────

Command = Callable[[Any, int, Any], Awaitable[None]]
TIMED = {COMMAND.COM_QUERY, COMMAND.COM_STMT_EXECUTE}
_driver: Any = Connection  # its one way out to the server; compiled, so nothing is typed
_command: Command = _driver._execute_command


async def _command_at_the_set_time(self: Any, command: int, text: Any) -> None:
    if command in TIMED:
        wanted = _wanted(self._db)
        if wanted or getattr(self, "_time_is_set", False):
            await _command(self, COMMAND.COM_QUERY, f"SET timestamp = {wanted or 'DEFAULT'}")
            await self._read_query_result()
            self._time_is_set = wanted is not None
    await _command(self, command, text)


def _wanted(database: object) -> str | None:
    """The moment to set, None for the real time."""
    name = database.decode() if isinstance(database, bytes) else database
    shared = _shared.get(str(name))
    if shared is None:
        return None
    base, shifted = LAYOUT.unpack(shared[:])
    return f"{(base or time.time()) + shifted:.6f}" if base or shifted else None


_driver._execute_command = _command_at_the_set_time
