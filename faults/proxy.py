"""Proxy: the network between the product and its database, to be broken on purpose.

Reads   what either side sends      Writes  the same to the other side, or nothing, or a part of it

    stall   bytes no longer flow, in one direction or both, and nobody is told: what is sent is
            taken and kept; an end of either side is kept from the other too
    reset   both sides get RST
    cut     a part of the next message, then the end

A stall ends with `heal`: what was kept arrives late, or never (RST).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from enum import Flag, auto
from pathlib import Path
from typing import TypeAlias

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
CHUNK_BYTES = 64 * 1024


class Direction(Flag):
    TO_SERVER = auto()
    TO_CLIENT = auto()
    BOTH = TO_SERVER | TO_CLIENT


def dialling(port: int) -> Callable[[], Awaitable[Streams]]:
    """A target: a port of this machine."""
    return lambda: asyncio.open_connection("127.0.0.1", port)


class Link:
    """One connection of the product's, and the one to the server that belongs to it."""

    def __init__(self, client: Streams, server: Streams) -> None:
        self.waits_since: float | None = None
        """When, in a stall, the client first had something to wait for."""
        self.given_up_at: float | None = None
        """When, in a stall, the client's side ended."""
        self.healed_at: float | None = None
        self._sides = {Direction.TO_SERVER: (client, server), Direction.TO_CLIENT: (server, client)}
        self._silent = Direction(0)
        self._kept: list[tuple[Direction, bytes]] = []
        self._cut: tuple[Direction, int] | None = None

    def waited(self, now: float) -> float | None:
        """How long the client waited in the silence; None = it had nothing to wait for."""
        if self.waits_since is None:
            return None
        ends = [end for end in (self.given_up_at, self.healed_at) if end is not None]
        return min(ends, default=now) - self.waits_since

    async def run(self) -> None:
        """Until both sides have ended."""
        try:
            async with asyncio.TaskGroup() as group:
                for direction in self._sides:
                    group.create_task(self._pump(direction))
        finally:
            self.close()

    async def _pump(self, direction: Direction) -> None:
        (reader, _), (_, writer) = self._sides[direction]
        data = b"something"
        while data:
            try:
                data = await reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            if self._silent:
                self._note(direction, data)
            if direction in self._silent:
                self._kept.append((direction, data))
            elif self._cut is not None and direction in self._cut[0] and data:
                _say(writer, data[: self._cut[1]])
                self.close()
                return
            else:
                await self._pass_on(writer, data)

    def _note(self, direction: Direction, data: bytes) -> None:
        if data and self.waits_since is None:
            self.waits_since = time.monotonic()
        if not data and direction is Direction.TO_SERVER:
            self.given_up_at = time.monotonic()

    async def _pass_on(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """An end ends the whole link: databases know no half-open sessions."""
        if not data:
            self.close()
            return
        _say(writer, data)
        with contextlib.suppress(OSError):
            await writer.drain()

    # ── Faults ────────────────────────────────────────────────────────────────────────────────

    def stall(self, direction: Direction) -> None:
        self._silent = direction

    def heal(self, *, late: bool) -> None:
        """What was kept arrives now; or the link is reset."""
        if not self._silent:
            return
        self._silent = Direction(0)
        self.healed_at = time.monotonic()
        if not late:
            self.reset()
            return
        kept, self._kept = self._kept, []
        for direction, data in kept:
            _, writer = self._sides[direction][1]
            if data:
                _say(writer, data)
            else:
                self.close()

    def cut(self, direction: Direction, after_bytes: int) -> None:
        """Of the next message that goes this way so many bytes pass, and then both sides end."""
        self._cut = direction, after_bytes

    def reset(self) -> None:
        for (_, writer), _ in self._sides.values():
            made = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def close(self) -> None:
        for (_, writer), _ in self._sides.values():
            writer.close()


def _say(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Unless the link has just ended."""
    if not writer.transport.is_closing():
        writer.write(data)


class Proxy:
    """Listens on a port of its own; `target` may be changed at any time, for new connections."""

    def __init__(self, target: Callable[[], Awaitable[Streams]]) -> None:
        self.target = target
        self.port = 0
        self.path: Path | None = None
        self.links: set[Link] = set()
        self._dark = Direction(0)  # what new links are born with
        self._server: asyncio.Server | None = None

    async def start(self, path: Path | None = None) -> None:
        """On a port that is free, or on a socket of the file system."""
        if path is not None:
            self._server = await asyncio.start_unix_server(self._accept, path)
            self.path = path
            return
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self.links):
            link.reset()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await self.target()
        except OSError:  # nobody listens there
            writer.transport.abort()
            return
        link = Link((reader, writer), server)
        if self._dark:
            link.stall(self._dark)
        self.links.add(link)
        try:
            await link.run()
        finally:
            self.links.discard(link)

    # ── Faults: of all links that there are ───────────────────────────────────────────────────

    def stall(self, direction: Direction = Direction.BOTH, *, new_ones: bool = False) -> list[Link]:
        """Those stalled. `new_ones`: until `heal`, whoever connects meets the same silence."""
        if new_ones:
            self._dark = direction
        for link in self.links:
            link.stall(direction)
        return list(self.links)

    def heal(self, *, late: bool) -> None:
        self._dark = Direction(0)
        for link in list(self.links):
            link.heal(late=late)

    def cut(self, direction: Direction, after_bytes: int) -> None:
        for link in self.links:
            link.cut(direction, after_bytes)

    def reset(self) -> None:
        for link in list(self.links):
            link.reset()
