"""One client's connection: its requests, one after the other, and their answers in that order.

Reads   a socket        Writes  a socket

llhttp (httptools) parses HTTP/1.1 in its strict mode. Beyond it this module refuses whatever a
proxy in front could read in another way than we do: a request without a Host, a framing or
credential header that is repeated, any Transfer-Encoding but chunked, CONNECT. No byte of a body is
ever parsed as a request:

- An Upgrade is ignored, as RFC 9110 permits, and the body read. llhttp takes what follows such a
  head for another protocol, so a fresh parser is put where the body begins.
- A request that is answered before its body has arrived ends the connection: the rest of the body
  is read and thrown away for a moment, so that the client gets to read its answer.
- After something that is not a request nothing more is parsed. Those who asked before it get their
  answers first.
- Trailers are dropped: a header counts only where a proxy has seen it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from enum import IntEnum
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools
import msgspec

from surehook import observe
from surehook.api.problems import (
    BAD_REQUEST,
    BROKEN,
    HEADERS_TOO_LARGE,
    TIMED_OUT,
    UNAVAILABLE,
    Kind,
    Problem,
)
from surehook.api.wire import SECURITY_HEADERS, Receive, Send, new_request_id

HEAD_BYTES = 32 * 1024
HEADERS_MAX = 100
# Of a body that no handler has asked for yet; the client waits then.
BODY_AHEAD_BYTES = 64 * 1024
READ_ANSWER_SECONDS = 30.0
LINGER_SECONDS = 5.0

App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_ONCE = frozenset(
    (b"authorization", b"content-length", b"host", b"idempotency-key", b"transfer-encoding")
)
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:%\[\]-]*")
_MALFORMED = "The request is not well-formed HTTP/1.1."
# The route of a path that does not exist.
OTHER = "other"
_HEAD_LIMITS = f"At most {HEAD_BYTES} bytes, {HEADERS_MAX} headers."


class Phase(IntEnum):
    """What a connection waits for."""

    HEAD = 1  # the client, to send a request
    BODY = 2  # the client, to send the rest of it
    WORK = 3  # us
    IDLE = 4  # the client's next request
    LINGER = 5  # the client, to read the last answer


class Shared:
    """What the connections of one server have in common."""

    def __init__(self, app: App, admit: Callable[[Connection], None]) -> None:
        self.app = app
        self.admit = admit
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.date = b""  # the header line
        self.answered: Counter[tuple[str, int]] = Counter()  # by route and status


class Exchange:
    """One request and its answer."""

    def __init__(self, connection: Connection, scope: dict[str, Any], keep_alive: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.complete = False  # all of the request is here
        self.answered = False
        self.gone = False  # its client, or the end of its body
        self.ahead = 0  # bytes that wait to be received
        self._chunks: list[bytes] = []
        self._continue = scope["http_version"] == "1.1" and any(
            name == b"expect" and value.lower() == b"100-continue"
            for name, value in scope["headers"]
        )
        self._head: dict[str, Any] = {}
        self._connection = connection
        self._change = asyncio.Event()

    async def run(self, app: App) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            observe.emit("request.failed", request_id="", reason=reason)
        if not self.answered:
            self._connection.refuse(BROKEN, "The request was not answered.")

    def take(self, chunk: bytes) -> None:
        """A part of the body has arrived."""
        if not self.answered:
            self._chunks.append(chunk)
            self.ahead += len(chunk)
            self._change.set()

    def finish(self) -> None:
        self.complete = True
        self._change.set()

    def lose(self) -> None:
        """What is missing will not come."""
        self.gone = True
        self._change.set()

    async def receive(self) -> dict[str, Any]:
        if self._continue and not self._chunks and not self.complete:
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._continue = False
        while not (self._chunks or self.complete or self.gone):
            self._change.clear()
            await self._change.wait()
        if self.gone:
            return {"type": "http.disconnect"}
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self.ahead = 0
        self._connection.go_on_reading()
        return {"type": "http.request", "body": body, "more_body": not self.complete}

    async def send(self, message: dict[str, Any]) -> None:
        """Head and body are written at once, in one packet."""
        if message["type"] == "http.response.start":
            self._head = message
            return
        await self._connection.writable.wait()
        self._connection.answer(self, self._head["status"], self._head["headers"], message["body"])


class Connection(asyncio.Protocol):
    """One client. Called by the event loop (what arrives), by the parser (what it means), by an
    exchange (its answer) and by the server (time and room)."""

    transport: asyncio.Transport

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._parser = httptools.HttpRequestParser(self)
        self._client: tuple[str, int] | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._fault: tuple[Kind, str] | None = None
        self._unparsed = 0  # bytes since the parser last had something to say
        self._in_head = False
        self._standing_in = False  # the parser reads a head that we wrote
        self._upgrade_begins = False  # as the parser sees it
        self._receiving: Exchange | None = None  # its body is being read
        self._exchanges: deque[Exchange] = deque()  # the first is being answered
        self._last_words = b""  # after the answers that are owed
        self._no_more = False  # requests
        self._ending = False
        self._reading_paused = False
        self.writable = asyncio.Event()
        self.writable.set()
        self.phase = Phase.HEAD
        self.since = time.monotonic()
        self.stalled_since: float | None = None

    # ── The event loop ────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of no such class
        peer = transport.get_extra_info("peername")
        self._client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        self._shared.connections.add(self)
        self._shared.admit(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._shared.connections.discard(self)
        self._ending = True
        for exchange in self._exchanges:
            exchange.lose()
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        if self._ending or self._no_more:
            return
        if self.phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        self._unparsed += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError:
            if not self._no_more:  # else: bytes after the last request
                self._fail(*(self._fault or (BAD_REQUEST, _MALFORMED)))
        else:
            if self._unparsed > HEAD_BYTES:
                self._fail(HEADERS_TOO_LARGE, _HEAD_LIMITS)

    def eof_received(self) -> bool:
        """The client sends nothing more. True: we have still something to say."""
        self._no_more = True
        return not self._ending and bool(self._exchanges) and self._exchanges[0].complete

    def pause_writing(self) -> None:
        self.stalled_since = time.monotonic()
        self.writable.clear()

    def resume_writing(self) -> None:
        self.stalled_since = None
        self.writable.set()

    # ── The parser ────────────────────────────────────────────────────────────────────────────

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._read_body_of_upgrade()

    def _read_body_of_upgrade(self) -> None:
        """Put a new parser where the body begins: behind a head with the same framing."""
        assert self._receiving is not None
        head = [b"POST / HTTP/1.1\r\nhost: x\r\n"]
        for name, value in self._receiving.scope["headers"]:
            if name in (b"content-length", b"transfer-encoding"):
                head.append(b"%s: %s\r\n" % (name, value))
        if not self._receiving.keep_alive:
            head.append(b"connection: close\r\n")
        self._parser = httptools.HttpRequestParser(self)
        self._standing_in = True
        self._parser.feed_data(b"".join([*head, b"\r\n"]))

    def on_message_begin(self) -> None:
        if not self._standing_in:
            self._in_head = True
            self._url = b""
            self._headers = []

    def on_url(self, part: bytes) -> None:
        if self._in_head:
            self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else: a trailer
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        if self._standing_in:
            self._standing_in = False
            return
        self._in_head = False
        parser = self._parser
        method, version = parser.get_method().decode("ascii"), parser.get_http_version()
        self._fault = _fault_of(method, version, self._url, self._headers)
        if self._fault is not None:
            raise ValueError(self._fault)
        keep_alive = version == "1.1" and parser.should_keep_alive()
        exchange = Exchange(self, self._scope(method, version), keep_alive)
        self._upgrade_begins = parser.should_upgrade()
        self._receiving = exchange
        self._exchanges.append(exchange)
        if len(self._exchanges) == 1:
            self._begin(exchange)
        else:  # sent before the answer to the one before: it has to wait
            self._pause_reading()

    def _scope(self, method: str, version: str) -> dict[str, Any]:
        url = httptools.parse_url(self._url)
        raw_path = url.path or b"/"
        path = raw_path.decode("ascii")
        return {
            "type": "http",
            "method": method,
            "http_version": version,
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "headers": self._headers,
            "client": self._client,
        }

    def on_body(self, chunk: bytes) -> None:
        assert self._receiving is not None
        self._unparsed = 0
        self._receiving.take(chunk)
        if self._receiving.ahead > BODY_AHEAD_BYTES:
            self._pause_reading()

    def on_message_complete(self) -> None:
        self._unparsed = 0
        if self._upgrade_begins:
            self._upgrade_begins = False  # not for us: now comes the body
            return
        exchange, self._receiving = self._receiving, None
        assert exchange is not None
        exchange.finish()
        self._no_more = not exchange.keep_alive
        if self.phase is Phase.BODY and exchange is self._exchanges[0]:
            self._enter(Phase.WORK)

    # ── Answers ───────────────────────────────────────────────────────────────────────────────

    def _begin(self, exchange: Exchange) -> None:
        self._enter(Phase.WORK if exchange.complete else Phase.BODY)
        task = asyncio.get_running_loop().create_task(exchange.run(self._shared.app))
        self._shared.tasks.add(task)
        task.add_done_callback(self._shared.tasks.discard)

    def write(self, data: bytes) -> None:
        if not self._ending:
            self.transport.write(data)

    def answer(
        self, exchange: Exchange, status: int, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """The answer to the request whose turn it is; then on to the next, or the end."""
        exchange.answered = True
        self._shared.answered[exchange.scope.get("route", OTHER), status] += 1
        if self._ending:
            return
        assert exchange is self._exchanges[0]
        last = not (exchange.keep_alive and exchange.complete)
        lines = [_STATUS_LINES[status], self._shared.date]
        lines += [b"%s: %s\r\n" % header for header in headers]
        if last:
            lines.append(b"connection: close\r\n")
        if exchange.scope["method"] == "HEAD":
            body = b""
        self.transport.write(b"".join([*lines, b"\r\n", body]))
        self._exchanges.popleft()
        if last:
            self._end(lingering=not exchange.complete)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """To the request that waits for its turn, or to the one that may come."""
        following = self._exchanges[0] if self._exchanges else None
        if following and (following.complete or not self._no_more):
            self._begin(following)
        elif self._last_words:
            self.transport.write(self._last_words)
            self._end(lingering=True)
        elif self._no_more:
            self.transport.close()
        else:
            self._enter(Phase.HEAD if self._in_head else Phase.IDLE)
        self.go_on_reading()

    def _fail(self, kind: Kind, detail: str) -> None:
        """What arrived is not a request: say so after the answers that are owed, and end."""
        self._no_more = True
        owed = [exchange for exchange in self._exchanges if exchange.complete]
        if not owed:
            self.refuse(kind, detail)
            return
        self._exchanges = deque(owed)
        self._last_words = _refusal(kind, detail)

    def refuse(self, kind: Kind, detail: str) -> None:
        """Answer without a request, or in place of the application, and end."""
        if not self._ending:
            self.transport.write(_refusal(kind, detail))
            self._end(lingering=True)

    def _end(self, lingering: bool) -> None:
        """Nothing is read or answered from here on. A client that is still sending would lose its
        answer if the connection were closed at once."""
        self._ending = True
        for exchange in self._exchanges:
            exchange.lose()
        if lingering and not self.transport.is_closing():
            self._enter(Phase.LINGER)
            self.transport.write_eof()
            self.go_on_reading()
        else:
            self.transport.close()

    # ── Time and room ─────────────────────────────────────────────────────────────────────────

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = time.monotonic()

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self.transport.is_closing():
            self._reading_paused = True
            self.transport.pause_reading()

    def go_on_reading(self) -> None:
        if self._reading_paused and len(self._exchanges) < 2 and not self.transport.is_closing():
            self._reading_paused = False
            self.transport.resume_reading()

    def expire(self, now: float, request_seconds: float, idle_seconds: float) -> None:
        """Let go of a client that takes too long."""
        waited = now - self.since
        stalled = 0.0 if self.stalled_since is None else now - self.stalled_since
        lingered = waited if self.phase is Phase.LINGER else 0.0
        if stalled > READ_ANSWER_SECONDS or lingered > LINGER_SECONDS:
            self.transport.abort()
        elif self.phase is Phase.IDLE and waited > idle_seconds:
            self.transport.close()
        elif self.phase in (Phase.HEAD, Phase.BODY) and waited > request_seconds:
            self.refuse(TIMED_OUT, f"It took longer than {request_seconds:g} s.")

    def shut_down(self) -> None:
        """Finish what is under way, then end."""
        if self._exchanges:
            self._exchanges[0].keep_alive = False
        else:
            self.transport.close()


def _fault_of(
    method: str, version: str, url: bytes, headers: list[tuple[bytes, bytes]]
) -> tuple[Kind, str] | None:
    """Why a head that llhttp accepts is refused all the same."""
    size = len(url) + sum(len(name) + len(value) for name, value in headers)
    if size > HEAD_BYTES or len(headers) > HEADERS_MAX:
        return HEADERS_TOO_LARGE, _HEAD_LIMITS
    if version not in ("1.0", "1.1"):
        return BAD_REQUEST, "Only HTTP/1.1 and HTTP/1.0 are spoken here."
    if method == "CONNECT":
        return BAD_REQUEST, "This is not a proxy: CONNECT is not possible."
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _ONCE:
            if name in found:
                return BAD_REQUEST, f"The header {name.decode()} is repeated."
            found[name] = value
    if b"host" not in found:
        if version == "1.1":
            return BAD_REQUEST, "The header host is missing."
    elif not _HOST.fullmatch(found[b"host"]):
        return BAD_REQUEST, "The header host is not a host name."
    coding = found.get(b"transfer-encoding")
    if coding is not None and (coding.lower() != b"chunked" or version == "1.0"):
        return BAD_REQUEST, "The only transfer-encoding is chunked, in HTTP/1.1."
    return None


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
    lines = [_STATUS_LINES[kind.status], *(b"%s: %s\r\n" % header for header in headers)]
    return b"".join([*lines, b"\r\n", body])
