"""A login's connections: as many as it may have, lent one at a time. Reads, writes nothing.

The driver's own pool connects while it holds everybody up and gives out what the server has closed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from surehook.store.mysql.connection import Connection

# Before the server ends a silent session (database.py), and with a good-bye: servers log others.
IDLE_SECONDS_MAX = 45.0


class Pool:
    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(size)
        self._idle: list[tuple[Connection, float]] = []  # and since when
        self._used: set[Connection] = set()
        self._ending: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def sizes(self) -> tuple[int, int]:
        """How many are used and idle."""
        return len(self._used), len(self._idle)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One for now. It comes back only if it is whole and in no transaction."""
        async with self._slots:
            connection = self._take_idle() or await self._connect()
            self._used.add(connection)
            try:
                yield connection
            finally:
                self._used.discard(connection)
                if connection.usable and not connection.in_transaction and not self._closed:
                    self._idle.append((connection, time.monotonic()))
                    self._watch_idle()
                else:
                    connection.terminate()

    def _take_idle(self) -> Connection | None:
        """The one used last, so that those which load no longer needs grow old and go."""
        while self._idle:
            connection, _ = self._idle.pop()
            if connection.usable:
                return connection
            connection.terminate()
        return None

    def _watch_idle(self) -> None:
        if self._timer is None and self._idle:
            due = self._idle[0][1] + IDLE_SECONDS_MAX - time.monotonic()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(due, 0.01), self._let_go_of_idle)

    def _let_go_of_idle(self) -> None:
        self._timer = None
        oldest = time.monotonic() - IDLE_SECONDS_MAX
        while self._idle and self._idle[0][1] <= oldest:
            ending = asyncio.ensure_future(self._idle.pop(0)[0].close())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        self._watch_idle()

    async def drop_idle(self) -> None:
        """None of them is to be trusted: the network has met one that was silent."""
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.terminate()

    async def close(self) -> None:
        """Idle ones say good-bye; one that is still in use is closed under its user."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        idle, self._idle = self._idle, []
        for connection in self._used:
            connection.terminate()
        await asyncio.gather(*self._ending, *(connection.close() for connection, _ in idle))
