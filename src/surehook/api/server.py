"""The server: connections and their limits, in front of the application.

Reads   sockets     Writes  sockets

uvicorn's protocol speaks HTTP/1.1; this adds what it leaves open: how large headers may be, how
long a client may take to send them and its body, how long it may take to read an answer, and how
many connections there may be. When all are taken, the one that has kept us waiting for longest
makes room, so that slow clients cannot lock out good ones.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from email.utils import formatdate
from enum import IntEnum
from typing import Any
from urllib.parse import unquote

import httptools
import msgspec
import uvicorn
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from surehook.api.app import Api
from surehook.api.problems import (
    BAD_REQUEST,
    HEADERS_TOO_LARGE,
    TIMED_OUT,
    UNAVAILABLE,
    Kind,
    Problem,
)
from surehook.api.wire import SECURITY_HEADERS, new_request_id
from surehook.errors import Unreachable
from surehook.pipeline.service import Component

HEAD_BYTES = 32 * 1024
HEADERS_MAX = 100
SWEEP_SECONDS = 0.25
READ_ANSWER_SECONDS = 30.0
DRAIN_SECONDS = 10.0
BACKLOG = 2048
# Descriptors that the rest of the process needs: databases, deliveries, files.
DESCRIPTORS_SPARE = 512

_silent = logging.Logger("surehook.silent", logging.CRITICAL + 1)


class Phase(IntEnum):
    """What a connection waits for."""

    HEAD = 1  # the client, to send a request
    BODY = 2  # the client, to send the rest of it
    WORK = 3  # us
    IDLE = 4  # the client's next request


class Cycle(RequestResponseCycle):
    """One request and its answer, written at once: head and body in one packet."""

    _head: ASGISendEvent | None = None

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start":
            self._head = message
            return
        assert message["type"] == "http.response.body" and self._head is not None
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        head: Any = self._head
        lines = [STATUS_LINE[head["status"]]]
        headers: list[tuple[bytes, bytes]] = [*self.default_headers, *head["headers"]]
        lines += [b"%s: %s\r\n" % header for header in headers]
        if (b"connection", b"close") in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        body = b"" if self.scope["method"] == "HEAD" else message["body"]
        self.transport.write(b"".join([*lines, b"\r\n", body]))
        self.response_started = self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


class Connection(HttpToolsProtocol):
    """One client."""

    def __init__(self, server: Server, **given: Any) -> None:
        super().__init__(**given)
        self.logger = _silent
        self.access_log = False
        self._server = server
        self._head_bytes = 0
        self._refusal = BAD_REQUEST
        self.phase = Phase.HEAD
        self.since = time.monotonic()
        self.stalled_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._server.admit(self)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        if self.phase is Phase.HEAD:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.phase is Phase.HEAD and self._head_bytes > HEAD_BYTES:
            self.refuse(HEADERS_TOO_LARGE, f"At most {HEAD_BYTES} bytes, {HEADERS_MAX} headers.")

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_BYTES or len(self.headers) > HEADERS_MAX:
            self._refusal = HEADERS_TOO_LARGE
            raise ValueError("headers too large")
        self._enter(Phase.BODY)
        self._begin_request()

    def _begin_request(self) -> None:
        """As uvicorn does it, without what we have no use for, and with our own cycle."""
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        before = self.cycle
        self.cycle = Cycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:  # sent before the answer to the one before: it has to wait
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_message_complete(self) -> None:
        if self.phase is Phase.BODY:
            self._enter(Phase.WORK)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._enter(Phase.IDLE)
        super().on_response_complete()

    def pause_writing(self) -> None:
        self.stalled_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.stalled_since = None
        super().resume_writing()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = time.monotonic()
        self._head_bytes = 0

    def send_400_response(self, msg: str) -> None:
        self.refuse(self._refusal, "The request is not well-formed HTTP/1.1.")

    def refuse(self, kind: Kind, detail: str) -> None:
        """Answer what is not even a request, and close."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_refusal(kind, detail))
        self.transport.close()

    def expire(self, now: float, request_seconds: float, idle_seconds: float) -> None:
        """Let go of a client that takes too long."""
        waited = now - self.since
        if self.stalled_since is not None and now - self.stalled_since > READ_ANSWER_SECONDS:
            self.transport.abort()
        elif self.phase is Phase.IDLE and waited > idle_seconds:
            self.transport.close()
        elif self.phase in (Phase.HEAD, Phase.BODY) and waited > request_seconds:
            self.refuse(TIMED_OUT, f"It took longer than {request_seconds:g} s.")


def _refusal(kind: Kind, detail: str) -> bytes:
    request_id = new_request_id()
    body = msgspec.json.encode(Problem(kind, detail).body(request_id))
    headers = [
        *SECURITY_HEADERS,
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
        (b"connection", b"close"),
    ]
    if kind is UNAVAILABLE:
        headers.append((b"retry-after", b"1"))
    lines = [STATUS_LINE[kind.status], *(b"%s: %s\r\n" % header for header in headers)]
    return b"".join([*lines, b"\r\n", body])


class Server(Component):
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
        self._state = ServerState()
        self._config = uvicorn.Config(
            api,
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # whoever we talk to is who they are
            timeout_keep_alive=int(idle_seconds) + 1,
        )
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """host:port, with the port that was really taken."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def introduction(self) -> dict[str, object]:
        return {"listen": self.address}

    @property
    def accepting(self) -> bool:
        return self._server is not None and self._server.is_serving()

    def bind(self) -> None:
        """Take the address; Unreachable if that cannot be."""
        host, _, port = self._listen.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, int(port)))
            self._socket.listen(BACKLOG)  # who comes before the loops run waits a moment
        except OSError as error:
            self._socket.close()
            raise Unreachable(
                f"The API cannot listen on {self._listen} ({error.strerror or error}).",
                "Choose another address with SUREHOOK_LISTEN.",
            ) from None

    async def start(self) -> None:
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        self._config.load()
        self._tick()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connection, sock=self._socket, backlog=BACKLOG
        )

    def _connection(self) -> Connection:
        return Connection(
            self,
            config=self._config,
            server_state=self._state,
            app_state={},
            _loop=asyncio.get_running_loop(),
        )

    def admit(self, newcomer: Connection) -> None:
        """A place for a newcomer: the longest silent one gives up its own."""
        if len(self._state.connections) <= self._connections_max:
            return
        waiting = [
            connection
            for connection in self._state.connections
            if isinstance(connection, Connection)
            and connection is not newcomer
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
        for connection in list(self._state.connections):
            if isinstance(connection, Connection):
                connection.expire(now, self._request_seconds, self._idle_seconds)
        return SWEEP_SECONDS

    def _tick(self) -> None:
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]

    async def drain(self) -> None:
        """Accept nothing new, finish what is under way, close."""
        self._api.vitals.drain()
        if self._server is not None:
            self._server.close()
        deadline = time.monotonic() + DRAIN_SECONDS
        for connection in list(self._state.connections):
            connection.shutdown()
        while self._state.connections and time.monotonic() < deadline:
            await self.step()
            await asyncio.sleep(0.02)
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        if self._server is None and self._socket is not None:
            self._socket.close()
        await self._api.close()


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
