"""A small HTTP listener for health and figures, in processes that serve no API.

Reads   GET requests without a body        Writes  their answers

One request per connection: what follows the headers is never looked at, so nothing in it can be
taken for a request. Few connections, small heads and a deadline bound what a stranger can cost.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from surehook.errors import Unreachable

HEAD_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 32
SECONDS_MAX = 5.0
BACKLOG = 64


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    body: bytes
    content_type: str = "application/json"


Pages = Mapping[str, Callable[[], Awaitable[Page]]]


class Listener:
    """Has its address from the beginning; answers from start() to close()."""

    def __init__(self, address: str) -> None:
        self._pages: Pages = {}
        self._socket = bound(
            address,
            BACKLOG,
            f"Health and metrics cannot be served on {address}",
            "Give each process on this machine its own address with SUREHOOK_OBSERVE_LISTEN,"
            " or `auto` for any free port, or `off`.",
        )
        self._server: asyncio.Server | None = None
        self._open = 0

    @property
    def address(self) -> str:
        return address_of(self._socket)

    async def start(self, pages: Pages) -> None:
        self._pages = pages
        self._server = await asyncio.start_server(
            self._serve, sock=self._socket, limit=HEAD_BYTES_MAX, backlog=BACKLOG
        )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(SECONDS_MAX):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer(head))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a malformed request gets no answer
        finally:
            self._open -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            page = _text(HTTPStatus.BAD_REQUEST, "This is not HTTP/1.1.")
        elif (asked := self._pages.get(words[1].partition("?")[0])) is None:
            page = _text(HTTPStatus.NOT_FOUND, f"Here are {', '.join(self._pages)}.")
        elif words[0] not in ("GET", "HEAD"):
            page = _text(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered here.")
        else:
            page = await asked()
        status = HTTPStatus(page.status)
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"content-type: {page.content_type}",
            f"content-length: {len(page.body)}",
            "cache-control: no-store",
            "connection: close",
            "\r\n",
        )
        return "\r\n".join(lines).encode() + (b"" if words[0] == "HEAD" else page.body)


def _text(status: HTTPStatus, text: str) -> Page:
    return Page(status, f"{text}\n".encode(), "text/plain; charset=utf-8")


def bound(address: str, backlog: int, refused: str, advice: str) -> socket.socket:
    """A socket that listens there, before anything answers: who comes early waits a moment."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, int(port)))
        made.listen(backlog)
    except OSError as error:
        made.close()
        raise Unreachable(f"{refused} ({error.strerror or error}).", advice) from None
    return made


def address_of(listening: socket.socket) -> str:
    """host:port, with the port that was really taken."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
