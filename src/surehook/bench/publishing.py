"""Publishing for measurements: straight into the database as the API does it, and over HTTP.

Reads   nothing      Writes  events; the ledger
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from surehook.actions.ingest import Ingest
from surehook.bench.system import ADMIN_KEY, System
from surehook.delivery.signature import message_id
from surehook.errors import Unreachable
from surehook.model.records import NewEvent
from surehook.process.database import opened
from surehook.store import store_of
from surehook.store.hints import Hints
from surehook.store.ingest import IngestStore

PUBLISHERS = 64
BATCH = 500


def payload_of(size: int) -> str:
    head = '{"order": "A-1001", "note": "'
    return head + "x" * (size - len(head) - 2) + '"}'


Store = Callable[[str], Awaitable[int]]


class Publisher:
    """Hands events in and writes down in the ledger what is owed."""

    def __init__(self, system: System, store: Store) -> None:
        """`store` makes an event of this type durable and returns its id."""
        self._system = system
        self._store = store
        self._types = list(system.types)

    async def publish(self, count: int, per_second: float | None = None) -> list[str]:
        """By 64 publishers as fast as it goes, or at a steady rate; the webhook-ids owed for it."""
        owed: list[str] = []
        numbers = iter(range(count))
        began = time.monotonic()

        async def publisher() -> None:
            for number in numbers:
                if per_second is not None:
                    due = began + number / per_second
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                owed.extend(await self._publish_one(self._types[number % len(self._types)]))

        await asyncio.gather(*(publisher() for _ in range(min(PUBLISHERS, count))))
        return owed

    async def _publish_one(self, event_type: str) -> list[str]:
        at = time.monotonic()
        event_id = await self._store(event_type)
        owed = [
            message_id(self._system.installation, event_id, subscription_id)
            for subscription_id in self._system.types[event_type]
        ]
        self._system.ledger.owe(owed, at)
        return owed


@asynccontextmanager
async def publishing(system: System) -> AsyncIterator[Publisher]:
    """Over HTTP where the case has an API; else in this process, as the API does it."""
    how = _through_the_api if system.case.run.over_http else _straight
    async with how(system, payload_of(system.case.payload_bytes)) as store:
        yield Publisher(system, store)


@asynccontextmanager
async def _straight(system: System, payload: str) -> AsyncIterator[Store]:
    async with opened(system.config, system.access, "ingest") as database:
        hints = Hints()
        hints.send_outward(database.notify)
        ingest = Ingest(store_of(IngestStore, database), hints)

        async def store(event_type: str) -> int:
            return (await ingest.publish(NewEvent(event_type, payload))).id

        try:
            yield store
        finally:
            await hints.close()


@asynccontextmanager
async def _through_the_api(system: System, payload: str) -> AsyncIterator[Store]:
    address = await system.api_address()
    bodies = {
        event_type: _request(address, "/v1/events", _event(event_type, payload))
        for event_type in system.types
    }
    free: asyncio.Queue[Connection] = asyncio.Queue()
    connections = [await Connection.opened(address) for _ in range(PUBLISHERS)]
    for connection in connections:
        free.put_nowait(connection)

    async def store(event_type: str) -> int:
        connection = await free.get()
        answer = await connection.ask(bodies[event_type])
        free.put_nowait(connection)
        return int(json.loads(answer)["id"])

    try:
        yield store
    finally:
        for connection in connections:
            connection.close()


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────


class Connection:
    """One kept connection to the API, one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def opened(cls, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer, which must be a good one."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        body = await self._reader.readexactly(_length(head))
        if not head.startswith(b"HTTP/1.1 20"):
            raise Unreachable(f"The API answered {head.split()[1].decode()}.")
        return body

    def close(self) -> None:
        self._writer.close()


async def publish_over_http(address: str, seconds: float, batch: int) -> tuple[int, float]:
    """Events that were acknowledged, and in how many seconds; 64 connections, or 4 of batches."""
    event = _event("bench.nobody", payload_of(1024))
    if batch == 1:
        request = _request(address, "/v1/events", event)
    else:
        events = b",".join([event] * batch)
        request = _request(address, "/v1/events/batch", b'{"events": [' + events + b"]}")
    began = time.monotonic()
    clients = PUBLISHERS if batch == 1 else 4
    counts = await asyncio.gather(
        *(_client(address, request, began + seconds) for _ in range(clients))
    )
    return sum(counts) * batch, time.monotonic() - began


def _event(event_type: str, payload: str) -> bytes:
    return f'{{"event_type": "{event_type}", "payload": {payload}}}'.encode()


def _request(address: str, path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1",
        f"host: {address}",
        f"authorization: Bearer {ADMIN_KEY}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "\r\n",
    )
    return "\r\n".join(head).encode() + body


async def _client(address: str, request: bytes, end: float) -> int:
    connection = await Connection.opened(address)
    count = 0
    try:
        while time.monotonic() < end:
            await connection.ask(request)
            count += 1
    finally:
        connection.close()
    return count


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
