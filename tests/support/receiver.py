"""A scripted HTTPS endpoint: records every POST and answers as configured.

Reads   what is sent to it
Writes  nothing but answers

    async with Receiver() as receiver:
        receiver.script("/orders", Answer(status=503), Answer(hang=True), Answer())
        ... send to receiver.url + "/orders", trusting receiver.ca_file ...
        await receiver.received(3)
        assert [request.path for request in receiver.requests] == ["/orders"] * 3

A path without a script gets 200 each time; the last answer of a script repeats.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import httptools

from support import certificates
from support.waiting import PATIENCE

# For connections that nobody closes; they are aborted before.
GOODBYE_SECONDS = 5.0


@dataclass(frozen=True)
class Answer:
    """What to do with one request."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    delay: float = 0.0
    """Seconds before answering."""
    after: asyncio.Event | None = None
    """Answer when it is set."""
    hang: bool = False
    """Never answer; the connection stays open."""
    close: bool = False
    """Close without answering, as soon as the request has arrived."""
    close_after: bool = False
    """Answer without announcing anything, then close."""
    raw: bytes | None = None
    """Send exactly these bytes instead of an answer made from the fields above."""

    def encode(self) -> bytes:
        if self.raw is not None:
            return self.raw
        head = [f"HTTP/1.1 {self.status} Scripted\r\n", f"content-length: {len(self.body)}\r\n"]
        head += [f"{name}: {value}\r\n" for name, value in self.headers]
        return "".join([*head, "\r\n"]).encode("latin-1") + self.body


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    at: float


class Receiver:
    """An HTTPS endpoint on 127.0.0.1 for as long as the `async with` lasts."""

    def __init__(self, host: str = "127.0.0.1", *, record: bool = True) -> None:
        self.requests: list[ReceivedRequest] = []
        self.count = 0
        """Complete requests so far; goes on counting when `record` is off."""
        self.connections = 0
        """Connections accepted so far (TLS done)."""
        self.ca_file = str(certificates.ca_file())
        self.url = ""
        self.port = 0
        self._host = host
        self._record = record
        self._scripts: dict[str, tuple[Answer, ...]] = {}
        self._turns: Counter[str] = Counter()
        self._answerers: dict[str, Callable[[ReceivedRequest], Answer]] = {}
        self._open: set[_Connection] = set()
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._plain = Answer().encode()

    def script(self, path: str, *answers: Answer) -> None:
        """Answer requests for `path` (without query) in this order; the last one repeats."""
        self._scripts[path] = answers
        self._turns[path] = 0

    def answer_with(self, path: str, answer: Callable[[ReceivedRequest], Answer]) -> None:
        """Answer requests for `path` with whatever this makes of them."""
        self._answerers[path] = answer

    async def received(self, count: int, timeout: float = PATIENCE) -> None:
        """Wait until so many requests have arrived in all."""
        async with asyncio.timeout(timeout):
            while self.count < count:
                self._news.clear()
                await self._news.wait()

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def close_connections(self) -> None:
        """Close every open connection without a word."""
        for connection in list(self._open):
            connection.abort()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self),
            self._host,
            0,
            ssl=certificates.server_context(),
            # With the usual 100 the kernel drops what a busy machine does not accept in time, and
            # whoever connects tries again after 1, 3, 7, 15 and 31 seconds.
            backlog=4096,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"https://{host}:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.close_connections()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._server.wait_closed()

    # --- what connections call -------------------------------------------------------------------

    def _joined(self, connection: _Connection) -> int:
        self._open.add(connection)
        self.connections += 1
        return self.connections

    def _left(self, connection: _Connection) -> None:
        self._open.discard(connection)

    def _arrived(self, request: ReceivedRequest | None) -> None:
        self.count += 1
        if request is not None:
            self.requests.append(request)
        self._news.set()

    def _answer_for(self, path: str, request: ReceivedRequest | None) -> Answer | None:
        if request is not None and path in self._answerers:
            return self._answerers[path](request)
        answers = self._scripts.get(path)
        if not answers:
            return None
        turn = self._turns[path]
        self._turns[path] += 1
        return answers[min(turn, len(answers) - 1)]


class _Connection(asyncio.Protocol):
    """One connection of a client; requests on it are answered one after the other."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._reset()

    def _reset(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._number = self._receiver._joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._receiver._left(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()

    def on_url(self, target: bytes) -> None:
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._receiver._record:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path = self._target.decode("latin-1")
        request = None
        if self._receiver._record:
            request = ReceivedRequest(
                self._parser.get_method().decode("ascii"),
                path,
                self._headers,
                b"".join(self._body),
                self._number,
                asyncio.get_running_loop().time(),
            )
        self._reset()
        self._receiver._arrived(request)
        self._respond(self._receiver._answer_for(path.partition("?")[0], request))

    def _respond(self, answer: Answer | None) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if answer is None:
            self._transport.write(self._receiver._plain)
        elif answer.hang:
            return
        elif answer.close:
            self._transport.abort()
        elif answer.delay:
            asyncio.get_running_loop().call_later(answer.delay, self._write, answer)
        elif answer.after is not None:
            waiting = asyncio.ensure_future(answer.after.wait())
            waiting.add_done_callback(lambda _: self._write(answer))
        else:
            self._write(answer)

    def _write(self, answer: Answer) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(answer.encode())
        if answer.close_after:
            self._transport.close()
