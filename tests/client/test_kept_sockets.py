"""What a server says unasked is never the answer to the next call: an event that was not stored
must not count as published."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from support.either import Either
from support.waiting import PATIENCE
from surehook.client import AsyncClient, Client, Retry, ServiceUnavailable

FORGED, HONEST = 66, 99


def answer(number: int, status: int = 202) -> bytes:
    body = b'{"id":%d,"created_at":"2026-01-01T00:00:00Z","duplicate":false}' % number
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


class Server:
    """On its first connection it answers, and then once more, unasked; on the next as it should."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.go, self.forged = threading.Event(), threading.Event()
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        open_ones = []
        for number, first in enumerate((answer(1, self._first), answer(HONEST))):
            connection, _ = self._listener.accept()
            open_ones.append(connection)
            self.connections += 1
            connection.recv(65536)
            connection.sendall(first)
            if number == 0:
                self.go.wait(PATIENCE)
                connection.sendall(answer(FORGED))
                self.forged.set()
        self.go.clear()
        self.go.wait(PATIENCE)
        for connection in open_ones:
            connection.close()

    def close(self) -> None:
        self.go.set()
        self._thread.join(PATIENCE)
        self._listener.close()


@contextmanager
def serving(first: int) -> Iterator[Server]:
    server = Server(first)
    try:
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("seen", [False, True], ids=["in the socket", "in the loop"])
@pytest.mark.parametrize("first", [202, 503])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_an_unrequested_answer_is_not_taken_for_the_next_one(
    kind: Any, first: int, seen: bool
) -> None:
    with serving(first) as server:
        client = Either(kind(server.url, "shk_x", retry=Retry(tries_max=1)))
        try:
            if first == 202:
                assert (await client("publish", "a.b", {})).id == 1
            else:
                with pytest.raises(ServiceUnavailable):
                    await client("publish", "a.b", {})
            server.go.set()
            if seen:  # the loop goes on, and reads what has come
                await asyncio.to_thread(server.forged.wait, 30)
                for _ in range(10):
                    await asyncio.sleep(0.001)
            else:
                server.forged.wait(PATIENCE)
            assert (await client("publish", "a.b", {})).id == HONEST
            assert server.connections == 2
        finally:
            await client.close()


def test_the_asynchronous_client_does_the_same_on_uvloop() -> None:
    async def publish(server: Server) -> tuple[int, int]:
        async with AsyncClient(server.url, "shk_x") as client:
            first = await client.publish("a.b", {})
            server.go.set()
            await asyncio.to_thread(server.forged.wait, PATIENCE)
            return first.id, (await client.publish("a.b", {})).id

    with serving(202) as server:
        assert uvloop.run(publish(server)) == (1, HONEST)
