"""A TLS endpoint that does as little as possible, in its own process. Not for real use.

Reads   POSTs       Writes  answers; on standard output its port, and at the end what it received

It counts each webhook-id: proof that nothing was lost or doubled.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
from collections import Counter
from pathlib import Path

import httptools

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_ID = b"webhook-id"
_RECORD_BYTES = 16 * 1024


class Counts:
    def __init__(self) -> None:
        self.posts: Counter[bytes] = Counter()
        self.connections = 0


class Endpoint:
    """One connection, read when the loop says so: a transport would cost as much again."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: ssl.SSLSocket, counts: Counts
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._counts = counts
        self._parser = httptools.HttpRequestParser(self)
        self._shaken = False
        counts.connections += 1
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
        if name == _ID:
            self._counts.posts[value] += 1

    def on_message_complete(self) -> None:
        self._sock.send(_ANSWER)  # 38 bytes to a client that waits for them: never more than fits


async def _receive(server_file: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server_file)
    counts = Counts()
    loop = asyncio.get_running_loop()
    server = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server.setblocking(False)

    def accept() -> None:
        connection, _ = server.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wrapped = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        Endpoint(loop, wrapped, counts)

    loop.add_reader(server.fileno(), accept)
    print(server.getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until our parent closes it
    answer = {
        "posts": counts.posts.total(),
        "connections": counts.connections,
        "repeated": {key.decode(): n for key, n in counts.posts.items() if n > 1},
        "distinct": len(counts.posts),
    }
    print(json.dumps(answer), flush=True)
    loop.remove_reader(server.fileno())
    server.close()


def main() -> None:
    import uvloop

    uvloop.run(_receive(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
