"""TLS over a socket that does not block, one bounded step at a time.

Reads   the endpoint's records, READ_BYTES at a time
Writes  the records of what is to be sent, SEAL_BYTES of it at a time

ssl.SSLSocket is not enough: within one recv() OpenSSL goes on for as long as messages of TLS itself
arrive (session tickets, key updates), and an endpoint that sends them without end would hold the
event loop, with every other attempt and every deadline in it. Here the bytes come through memory:
what TLS adds to an answer is counted, and has a limit like the answer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

RECORD_BYTES = 16 * 1024  # no TLS record carries more: one read leaves nothing of it behind
READ_BYTES = 16 * 1024
SEAL_BYTES = 16 * 1024  # OpenSSL keeps buffers of this size for as long as the connection lives
# Certificates are most of a handshake; OpenSSL takes 100 KiB of them.
MAX_HANDSHAKE_BYTES = 256 * 1024
# The framing of records, tickets and key updates, and a record of which only a part is here.
MAX_TLS_BYTES = 48 * 1024

_NOTHING = memoryview(b"")  # an empty rest of a payload would keep the whole of it


class TlsSocket:
    """A client's end; the socket is its own from now on."""

    __slots__ = (
        "_incoming",
        "_outgoing",
        "_plain",
        "_record_head",
        "_record_rest",
        "_sealed",
        "_sock",
        "_tls",
        "overhead",
    )

    def __init__(self, context: ssl.SSLContext, sock: socket.socket, host: str) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._plain = self._sealed = _NOTHING
        self._record_head = b""
        self._record_rest = 0
        self.overhead = 0
        """Bytes that arrived and were not payload; set to 0 when an exchange begins."""

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._plain = self._sealed = _NOTHING
        self._sock.close()

    @property
    def unsent(self) -> bool:
        """Whether the kernel has not taken everything yet."""
        return bool(self._plain or self._sealed or self._outgoing.pending)

    @property
    def ending(self) -> bool:
        """Whether the next push() may complete the payload."""
        return len(self._plain) <= SEAL_BYTES

    @property
    def unread(self) -> bool:
        """Whether more has arrived than was read; the loop does not report it."""
        return bool(self._incoming.pending)

    @property
    def midway(self) -> bool:
        """Whether a record is here in part. OpenSSL holds it and says nothing of it."""
        return bool(self._record_rest or self._record_head)

    async def shake_hands(self) -> None:
        """The caller watches the deadline, and closes if this fails."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flushed(loop)
                self._take(await _read(loop, self._sock), MAX_HANDSHAKE_BYTES)
                continue
            except ssl.SSLError:
                with suppress(OSError):  # the alert says why; it need not arrive
                    self.flush()
                raise
            await self._flushed(loop)
            return

    async def _flushed(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                return self.flush()
            except ssl.SSLWantWriteError:
                await _ready(self._sock.fileno(), loop.add_writer, loop.remove_writer)

    def write(self, payload: bytes) -> None:
        """To be sent by flush()."""
        self._plain = memoryview(payload)

    def flush(self) -> None:
        """Give the kernel all that is left; raises what push() raises."""
        while self.unsent:
            self.push()

    def push(self) -> bool:
        """Give the kernel the next piece; whether the payload has left as a whole.

        SSLWantWriteError: the kernel takes no more for now.
        SSLWantReadError: the endpoint's TLS has something to say first.
        """
        if not self._sealed:
            self._seal()
        try:
            while self._sealed:
                self._sealed = self._sealed[self._sock.send(self._sealed) :]
        except BlockingIOError:
            raise ssl.SSLWantWriteError from None
        if self._plain:
            return False
        self._plain = self._sealed = _NOTHING
        return True

    def _seal(self) -> None:
        try:
            if self._plain:
                self._plain = self._plain[self._tls.write(self._plain[:SEAL_BYTES]) :]
        except ssl.SSLWantReadError:
            if not self._outgoing.pending:
                raise
        self._sealed = memoryview(self._outgoing.read())

    def read(self) -> bytes:
        """The payload of the next record, b"" at the end. SSLWantReadError: no more is here."""
        while True:
            if not self._incoming.pending:
                try:
                    data = self._sock.recv(READ_BYTES)
                except BlockingIOError:
                    raise ssl.SSLWantReadError from None
                if not data:
                    return b""
                self._take(data, MAX_TLS_BYTES)
            try:
                payload = self._tls.read(RECORD_BYTES)
            except ssl.SSLWantReadError:
                continue  # part of a record, or TLS's own affairs
            self.overhead -= len(payload)
            return payload

    def _take(self, data: bytes, limit: int) -> None:
        if self.overhead > limit:
            raise ConnectionError("too many messages of TLS itself")
        if not data:
            raise ConnectionError("closed")
        self.overhead += len(data)
        self._incoming.write(data)
        self._follow(data)

    def _follow(self, data: bytes) -> None:
        """From record to record: each begins with 5 bytes, the last two of which are its length."""
        if self._record_head:
            data = self._record_head + data
        at, size = self._record_rest, len(data)
        while at + 5 <= size:
            at += 5 + (data[at + 3] << 8) + data[at + 4]
        self._record_rest = max(0, at - size)
        self._record_head = data[at:]

    def say_goodbye(self) -> None:
        """TLS's close_notify; the endpoint's own is not awaited."""
        with suppress(OSError):
            self._tls.unwrap()
        with suppress(OSError):
            self.flush()


async def _read(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bytes:
    while True:
        try:
            return sock.recv(READ_BYTES)
        except BlockingIOError:
            await _ready(sock.fileno(), loop.add_reader, loop.remove_reader)


async def _ready(
    descriptor: int,
    watch: Callable[[int, Callable[[], None]], object],
    forget: Callable[[int], object],
) -> None:
    """Until the socket can be read, or written."""
    ready = asyncio.Event()
    watch(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        forget(descriptor)
