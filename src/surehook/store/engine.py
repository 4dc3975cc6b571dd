"""What the rest of the program asks of an engine as a whole. Pure; each engine fills one in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from surehook.config import Config
from surehook.store.database import Database
from surehook.store.findings import Finding
from surehook.store.logins import DatabaseAccess, Login
from surehook.store.migrations import State

GOODBYE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine's ways; a connection is its driver's and goes back to the engine only."""

    name: str
    database: type[Database]
    connect: Callable[[Login, float], Awaitable[Any]]
    # Around work on such a connection: one that is lost is DatabaseUnreachable.
    losing: Callable[[Login], AbstractContextManager[None]]
    migrate: Callable[..., Awaitable[None]]  # (connection, *, buckets, role_secret, …)
    read_state: Callable[[Any], Awaitable[State]]
    set_installation: Callable[[Any, str], Awaitable[None]]
    as_sql: Callable[[State, int, bool], str]  # …, buckets, with roles → everything to run
    durability: Callable[[Config, Any], Awaitable[Finding]]  # may it forget what it took?
    examine: Callable[[Config, DatabaseAccess], Awaitable[list[Finding]]]

    @asynccontextmanager
    async def session(self, login: Login, timeout: float) -> AsyncIterator[Any]:
        """A connection for as long as the block lasts."""
        with self.losing(login):
            connection = await self.connect(login, timeout)
            try:
                yield connection
            finally:
                await _close(connection)


async def _close(connection: Any) -> None:
    """Say good-bye, but do not wait for long for a server that has gone silent."""
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await connection.close()
    except TimeoutError:
        connection.terminate()
