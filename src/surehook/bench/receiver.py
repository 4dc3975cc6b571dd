"""A TLS endpoint that does as little as possible, in a process of its own. Not for real use.

Reads   POSTs       Writes  answers; on standard output its port, and at the end what it received

It counts each webhook-id, so that the measurement can prove that nothing was lost or doubled.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections import Counter
from pathlib import Path

import httptools

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_ID = b"webhook-id"


class Counts:
    def __init__(self) -> None:
        self.posts: Counter[bytes] = Counter()
        self.connections = 0


class Endpoint(asyncio.Protocol):
    """One connection."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._counts.connections += 1

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == _ID:
            self._counts.posts[value] += 1

    def on_message_complete(self) -> None:
        if self._transport is not None:
            self._transport.write(_ANSWER)


async def _receive(server_file: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server_file)
    counts = Counts()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Endpoint(counts), "127.0.0.1", 0, ssl=tls, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until whoever started us closes it
    answer = {
        "posts": counts.posts.total(),
        "connections": counts.connections,
        "repeated": {key.decode(): n for key, n in counts.posts.items() if n > 1},
        "distinct": len(counts.posts),
    }
    print(json.dumps(answer), flush=True)
    server.close()


def main() -> None:
    import uvloop

    uvloop.run(_receive(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
