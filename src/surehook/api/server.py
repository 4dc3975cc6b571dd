"""The server: connections and their limits, in front of the application.

Reads   an address      Writes  nothing itself

connection.py speaks HTTP/1.1. This says how long a client may take to send a request, to read an
answer and to send the next one, and how many connections there may be. When all are taken, the one
that has kept us waiting for longest makes room, so that slow clients cannot lock out good ones.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from email.utils import formatdate

from surehook.api.app import Api
from surehook.api.connection import Connection, Phase, Shared
from surehook.api.problems import UNAVAILABLE
from surehook.observe.listener import address_of, bound
from surehook.observe.metrics import Sample
from surehook.pipeline.service import Loop

SWEEP_SECONDS = 0.25
DRAIN_SECONDS = 10.0
BACKLOG = 2048
# Descriptors that the rest of the process needs: databases, deliveries, files.
DESCRIPTORS_SPARE = 512


class Server(Loop):
    """The component `api`: listens, keeps its limits, drains."""

    name = "api"

    def __init__(
        self,
        api: Api,
        listen: str,
        *,
        connections: int,
        request_seconds: float,
        idle_seconds: float,
    ) -> None:
        super().__init__()
        self._api = api
        self._listen = listen
        self._request_seconds = request_seconds
        self._idle_seconds = idle_seconds
        self._connections_max = _descriptors(connections)
        self._shared = Shared(api, self.admit)
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        assert self._socket is not None
        return address_of(self._socket)

    def start_fields(self) -> dict[str, object]:
        return {"listen": self.address}

    def figures(self) -> Iterator[Sample]:
        yield "surehook_requests_bytes", [], self._api.room.held
        for (route, status), number in sorted(self._shared.answered.items()):
            yield "surehook_api_requests_total", [route, str(status)], number

    @property
    def accepting(self) -> bool:
        return self._server is not None and self._server.is_serving()

    def bind(self, taken: socket.socket | None = None) -> None:
        """Take the address, unless it was taken for us; Unreachable if that cannot be."""
        self._socket = taken or bound_for_api(self._listen)

    async def start(self) -> None:
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        self._tick()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._shared), sock=self._socket, backlog=BACKLOG
        )

    def admit(self, newcomer: Connection) -> None:
        """A place for a newcomer: the longest silent one gives up its own."""
        if len(self._shared.connections) <= self._connections_max:
            return
        waiting = [
            connection
            for connection in self._shared.connections
            if connection is not newcomer
            and connection.phase is not Phase.WORK
            and not connection.transport.is_closing()
        ]
        if waiting:
            min(waiting, key=lambda connection: connection.since).transport.abort()
        else:
            newcomer.refuse(UNAVAILABLE, "Too many connections are open.")

    async def step(self) -> float:
        self._tick()
        now = time.monotonic()
        for connection in list(self._shared.connections):
            connection.expire(now, self._request_seconds, self._idle_seconds)
        return SWEEP_SECONDS

    def _tick(self) -> None:
        self._shared.date = f"date: {formatdate(usegmt=True)}\r\n".encode()

    async def drain(self) -> None:
        """Accept nothing new, finish what is under way, close."""
        self._api.vitals.drain()
        if self._server is not None:
            self._server.close()
        deadline = time.monotonic() + DRAIN_SECONDS
        for connection in list(self._shared.connections):
            connection.shut_down()
        while self._shared.connections and time.monotonic() < deadline:
            await self.step()
            await asyncio.sleep(0.02)
        for connection in list(self._shared.connections):
            connection.transport.abort()
        for task in list(self._shared.tasks):
            task.cancel()
        await asyncio.gather(*self._shared.tasks, return_exceptions=True)
        if self._server is None and self._socket is not None:
            self._socket.close()
        await self._api.close()


def bound_for_api(listen: str) -> socket.socket:
    """A listening socket; Unreachable if the address cannot be taken."""
    refused = f"The API cannot listen on {listen}"
    return bound(listen, BACKLOG, refused, "Choose another address with SUREHOOK_LISTEN.")


def _descriptors(wanted: int) -> int:
    """As many connections as were asked for, if the system lets us have the descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + DESCRIPTORS_SPARE
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(16, min(wanted, soft - DESCRIPTORS_SPARE))
