"""A TLS endpoint that does as little as possible, in its own process. Not for real use.

Reads   POSTs, and on standard input what it is asked
Writes  answers; on standard output its port, one line for each question, and at the end a summary

    count           how many webhook-ids it has accepted
    dump FILE       every webhook-id with its posts, those it accepted, and when the first came

Of some webhook-ids it answers the first POST with 503: python -m surehook.bench.receiver PEM 10
means ten in a hundred, the same ones in every run.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
import time
import zlib
from pathlib import Path

import httptools

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_UNWELL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
_ID = b"webhook-id"
_RECORD_BYTES = 16 * 1024
_BACKLOG = 4096


class Book:
    """What arrived: webhook-id → [posts, accepted, when the first came]."""

    def __init__(self, failures_percent: int) -> None:
        self.arrived: dict[bytes, list[float]] = {}
        self.connections = 0
        self.accepted = 0
        self._failures_percent = failures_percent

    def take(self, webhook_id: bytes) -> bytes:
        """Write it down; the answer."""
        entry = self.arrived.get(webhook_id)
        if entry is None:
            entry = self.arrived[webhook_id] = [0, 0, time.monotonic()]
            if self._failures_percent and zlib.crc32(webhook_id) % 100 < self._failures_percent:
                entry[0] = 1
                return _UNWELL
        entry[0] += 1
        entry[1] += 1
        if entry[1] == 1:
            self.accepted += 1
        return _ANSWER

    def summary(self) -> dict[str, object]:
        return {
            "posts": int(sum(entry[0] for entry in self.arrived.values())),
            "distinct": len(self.arrived),
            "repeated": {key.decode(): one[0] for key, one in self.arrived.items() if one[0] > 1},
            "connections": self.connections,
        }

    def dump(self, file: Path) -> None:
        file.write_text(json.dumps({key.decode(): entry for key, entry in self.arrived.items()}))


class Endpoint:
    """One connection, read when the loop says so: a transport would cost as much again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: ssl.SSLSocket, book: Book) -> None:
        self._loop = loop
        self._sock = sock
        self._book = book
        self._parser = httptools.HttpRequestParser(self)
        self._shaken = False
        self._webhook_id = b""
        book.connections += 1
        loop.add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            if not self._shaken:
                self._sock.do_handshake()
                self._shaken = True
            # Until TLS has nothing more: what it holds back wakes no reader.
            while data := self._sock.recv(_RECORD_BYTES):
                self._parser.feed_data(data)
                if not self._sock.pending():
                    return
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except (OSError, httptools.HttpParserError):
            pass
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == _ID or name.lower() == _ID:
            self._webhook_id = value

    def on_message_complete(self) -> None:
        # A few bytes to a client that waits for them: never more than fits.
        self._sock.send(self._book.take(self._webhook_id))


async def _receive(server_file: Path, failures_percent: int) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server_file)
    book = Book(failures_percent)
    loop = asyncio.get_running_loop()
    server = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    server.setblocking(False)

    def accept() -> None:
        connection, _ = server.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wrapped = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        Endpoint(loop, wrapped, book)

    loop.add_reader(server.fileno(), accept)
    print(server.getsockname()[1], flush=True)
    await _answer_questions(book)
    print(json.dumps(book.summary()), flush=True)
    loop.remove_reader(server.fileno())
    server.close()


async def _answer_questions(book: Book) -> None:
    """Until our parent closes the pipe."""
    loop = asyncio.get_running_loop()
    questions = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)
    while line := (await questions.readline()).decode():
        word, _, file = line.strip().partition(" ")
        if word == "dump":
            book.dump(Path(file))
        print(book.accepted, flush=True)


def main() -> None:
    import uvloop

    failures = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    uvloop.run(_receive(Path(sys.argv[1]), failures))


if __name__ == "__main__":
    main()
