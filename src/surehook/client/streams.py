"""Connections of AsyncClient, on asyncio.

Reads   answers        Writes  requests, over connections that it keeps for the next call

Connections belong to a loop: in another one new ones are opened. sockets.py is the same for
programs with threads.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

from surehook.client.settings import IDLE_MAX, IDLE_SECONDS_MAX, ClientSettings
from surehook.client.wire import Answer, Broken, Parser, is_silent


class Connections:
    """Connections to one origin: one exchange at a time on each, idle ones kept."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._idle: list[tuple[_Connection, float]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def exchange(self, request: bytes, deadline: float) -> Answer:
        """Send and read the whole answer. Raises Broken; the connection is then gone."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # those of a loop that has ended are dead
            self._loop, self._idle = loop, []
        ends = loop.time() + deadline - time.monotonic()
        connection = self._take(loop.time()) or await self._connect(loop, ends)
        answer = None
        try:
            answer = await connection.exchange(request, ends)
        finally:
            if answer is not None and answer.keep_alive and len(self._idle) < IDLE_MAX:
                self._idle.append((connection, loop.time()))
            else:
                connection.abort()
        return answer

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.abort()
        await asyncio.sleep(0)  # lets the transports see it

    def _take(self, now: float) -> _Connection | None:
        while self._idle:
            connection, since = self._idle.pop()
            if now - since < IDLE_SECONDS_MAX and connection.is_silent():
                return connection
            connection.abort()
        return None

    async def _connect(self, loop: asyncio.AbstractEventLoop, ends: float) -> _Connection:
        origin, tls = self._settings.origin, self._settings.tls()
        try:
            async with asyncio.timeout_at(ends):
                _, connection = await loop.create_connection(
                    _Connection, origin.host, origin.port, ssl=tls
                )
                return connection
        except OSError as error:  # TimeoutError too
            raise self._settings.failure(error) from error


class _Connection(asyncio.Protocol):
    """What arrives is parsed at once; data outside of an exchange ends the connection."""

    _transport: asyncio.Transport
    _parser: Parser
    _answered: asyncio.Future[Answer] | None = None

    async def exchange(self, request: bytes, ends: float) -> Answer:
        self._parser, self._answered = Parser(), asyncio.get_running_loop().create_future()
        if self._transport.is_closing():  # since it was connected
            self.connection_lost(None)
        try:
            async with asyncio.timeout_at(ends):
                self._transport.write(request)
                return await self._answered
        except TimeoutError:
            raise Broken("timed out") from None

    def is_silent(self) -> bool:
        """Neither closed nor anything to read: what the server says unasked would be taken for the
        answer to the next request."""
        if self._transport.is_closing():
            return False
        return is_silent(self._transport.get_extra_info("socket").fileno())

    def abort(self) -> None:
        self._transport.abort()

    # --- the loop calls these -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        if self._answered is None or self._answered.done():  # unasked
            self.abort()
            return
        try:
            self._parser.feed(data)
        except Broken as failure:
            self._answered.set_exception(failure)
        else:
            if self._parser.answer is not None:
                self._answered.set_result(self._parser.answer)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answered is None or self._answered.done():
            return
        reason = "the connection was closed before the answer was complete"
        if error is not None:
            reason = f"the connection broke: {error}"
        self._answered.set_exception(Broken(reason))
