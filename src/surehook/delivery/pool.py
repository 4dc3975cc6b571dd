"""Connections kept for the next POST to the same origin.

Reads   the clock of the event loop
Writes  nothing; closes connections that are too old, idle for too long, or too many

The youngest is taken first: a burst's extra connections grow idle and go. The caller that takes one
gets it checked: the socket is asked, right before use, whether the endpoint has closed it or sent
something unasked for.
"""

from __future__ import annotations

import asyncio

import msgspec

from surehook.delivery.connection import Connection

SWEEP_SECONDS = 1.0


class PoolLimits(msgspec.Struct, frozen=True):
    """How many idle connections are kept, and for how long."""

    per_origin: int = 64
    total: int = 2048
    idle_seconds: float = 20.0
    age_seconds: float = 120.0


class Pool:
    """Idle connections by origin; use it from one event loop."""

    def __init__(self, limits: PoolLimits) -> None:
        self._limits = limits
        self._by_origin: dict[tuple[str, int], list[Connection]] = {}
        self._idle: dict[Connection, None] = {}  # in the order in which they became idle
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._idle)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._idle):
            self._drop(connection)
            connection.abort()

    def take(self, origin: tuple[str, int]) -> Connection | None:
        """A connection that is open and silent at this moment, or None."""
        kept = self._by_origin.get(origin)
        if not kept:
            return None
        now = self._loop.time()
        while kept:
            connection = kept.pop()
            del self._idle[connection]
            if now < connection.expires and connection.silent():
                return connection
            connection.abort()
        return None

    def give(self, connection: Connection) -> None:
        """Keep it until it expires, or close it if that is now."""
        limits = self._limits
        now = self._loop.time()
        connection.expires = min(
            connection.born + limits.age_seconds,
            now + limits.idle_seconds,
            now + connection.idle_limit,
        )
        if connection.expires <= now:
            connection.close()
            return
        connection.on_idle_end = self._drop
        self._idle[connection] = None
        kept = self._by_origin.get(connection.origin)
        if kept is None:
            kept = self._by_origin[connection.origin] = []
        kept.append(connection)
        if len(kept) > limits.per_origin:
            self._retire(kept[0])
        elif len(self._idle) > limits.total:
            self._retire(next(iter(self._idle)))

    def _retire(self, connection: Connection) -> None:
        self._drop(connection)
        connection.close()

    def _drop(self, connection: Connection) -> None:
        """Forget a connection if it is here."""
        if connection not in self._idle:
            return
        del self._idle[connection]
        self._by_origin[connection.origin].remove(connection)

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in [each for each in self._idle if each.expires <= now]:
            self._retire(connection)
        for origin in [origin for origin, kept in self._by_origin.items() if not kept]:
            del self._by_origin[origin]
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
