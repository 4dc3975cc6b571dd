"""Publishers: applications that hand in uniquely tagged events at a steady rate.

Reads   the API's answers; for the outbox, the application's own table of orders
Writes  events over HTTP, or in its own transaction beside an order; the ledger

HTTP: a request without a clear answer (no answer, 5xx, 429) is repeated with the same external_id,
at the next API, until it is acknowledged. Outbox: the order and its event are one transaction. If
a commit's answer is lost, the orders tell at the end whether it happened: an order that is there
must be delivered, one that is not must not.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from faults.ledger import Ledger
from support import mysql_connection
from support.connections import connected, is_mysql
from support.http import Client
from surehook import outbox

ANSWER_SECONDS_MAX = 30.0
PAUSE_SECONDS = 0.5
IN_FLIGHT_MAX = 64
BEHIND_SECONDS_MAX = 1.0
CLEAR_NO = range(400, 500)
TRY_AGAIN = (408, 425, 429)
ROLLED_BACK_EVERY = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """One request and what came of it; status 0 = no answer."""

    begun: float
    ended: float
    status: int

    @property
    def seconds(self) -> float:
        return self.ended - self.begun

    @property
    def acknowledged(self) -> bool:
        return 200 <= self.status < 300


class Publisher:
    """Publishes until it has published `events`, or until stop()."""

    def __init__(
        self, ledger: Ledger, prefix: str, rate: float, events: int | None, owed: Sequence[str]
    ) -> None:
        self.ledger = ledger
        self.offered = 0
        self._prefix = prefix
        self._rate = rate
        self._events = events
        self._owed = owed
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set() and self.offered != self._events:
            early = due - time.monotonic()
            if early > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(early):
                        await self._stopping.wait()
                continue
            # Held up for longer it does not catch up: a burst would be a load of its own.
            due = max(due, time.monotonic() - BEHIND_SECONDS_MAX) + 1 / self._rate
            tag = f"{self._prefix}-{self.offered:06}"
            self.ledger.offer(tag, self._owed)
            self.offered += 1
            await self._publish(tag)
        await self._finish()

    async def _publish(self, tag: str) -> None:
        raise NotImplementedError

    async def _finish(self) -> None:
        """All that was offered gets its answer."""


class HttpPublisher(Publisher):
    def __init__(
        self,
        ledger: Ledger,
        prefix: str,
        rate: float,
        events: int | None,
        owed: Sequence[str],
        *,
        addresses: Callable[[], Sequence[str]],
        key: str,
        event_type: str,
    ) -> None:
        super().__init__(ledger, prefix, rate, events, owed)
        self.answers: list[Answer] = []
        self.refused: list[str] = []
        self._addresses = addresses
        self._key = key
        self._event_type = event_type
        self._turn = 0
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    async def _publish(self, tag: str) -> None:
        await self._slots.acquire()
        task = asyncio.get_running_loop().create_task(self._until_acknowledged(tag))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled():
            task.result()

    async def _finish(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _until_acknowledged(self, tag: str) -> None:
        while True:
            answer = await self.post(tag)
            if answer.acknowledged:
                self.ledger.acknowledge(tag, answer.ended)
                return
            if answer.status in CLEAR_NO and answer.status not in TRY_AGAIN:
                self.refused.append(f"{tag}: {answer.status}")
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def post(self, tag: str, note: str = "") -> Answer:
        """One request, to the next API in turn."""
        body = {
            "event_type": self._event_type,
            "external_id": tag,
            "payload": {"tag": tag, **({"note": note} if note else {})},
        }
        addresses = self._addresses()
        self._turn += 1
        client = Client(addresses[self._turn % len(addresses)], self._key)
        begun, status = time.monotonic(), 0
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                status = (await client.post("/v1/events", body)).status
        except (OSError, EOFError, TimeoutError):
            pass  # nobody there, or no answer: unclear
        answer = Answer(begun, time.monotonic(), status)
        self.answers.append(answer)
        return answer


class OutboxPublisher(Publisher):
    """One transaction after the other, on one connection."""

    def __init__(
        self,
        ledger: Ledger,
        prefix: str,
        rate: float,
        events: int | None,
        owed: Sequence[str],
        *,
        url: Callable[[], str],
        event_type: str,
    ) -> None:
        super().__init__(ledger, prefix, rate, events, owed)
        self._url = url
        self._event_type = event_type
        self._connection: Any = None
        self._unclear: list[str] = []

    async def _publish(self, tag: str) -> None:
        keep = self.offered % ROLLED_BACK_EVERY != 0
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await self._order(tag, keep)
        except Exception:  # the driver's, the database's, the network's: unclear
            await self._forget_connection()
            self._unclear.append(tag)
            await asyncio.sleep(PAUSE_SECONDS)
            return
        if keep:
            self.ledger.acknowledge(tag, time.monotonic())
        else:
            self.ledger.withdraw(tag)

    async def _order(self, tag: str, keep: bool) -> None:
        if self._connection is None:
            self._connection = await open_connection(self._url())
        transaction = self._connection.transaction()
        await transaction.start()
        await place_order(self._connection, tag, self._event_type)
        await (transaction.commit() if keep else transaction.rollback())

    async def _finish(self) -> None:
        """What the orders say of those whose commit was not answered."""
        await self._forget_connection()
        if not self._unclear:
            return
        there = await patiently(lambda: self._orders(self._unclear))
        for tag in self._unclear:
            if tag in there:
                self.ledger.acknowledge(tag, time.monotonic())
            else:
                self.ledger.withdraw(tag)

    async def _orders(self, tags: Sequence[str]) -> set[str]:
        async with connected(self._url()) as connection:
            rows = await connection.fetch("SELECT tag FROM shop_orders")
        return {row[0] for row in rows} & set(tags)

    async def _forget_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await drop(connection)


async def place_order(connection: Any, tag: str, event_type: str) -> None:
    """An order and its event, in the transaction that is open on the connection."""
    await connection.execute("INSERT INTO shop_orders (tag) VALUES ($1)", tag)
    if isinstance(connection, mysql_connection.MysqlConnection):
        connection = connection._connection  # the driver's own, as an application has it
    await outbox.publish_async(connection, event_type, {"tag": tag}, external_id=tag)


async def open_connection(url: str) -> Any:
    """One that is closed with `drop`."""
    return await (mysql_connection.connect(url) if is_mysql(url) else asyncpg.connect(url))


async def drop(connection: Any) -> None:
    """However broken it is."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(2):
            await connection.close()


async def patiently(work: Callable[[], Awaitable[Any]], seconds: float = 120.0) -> Any:
    """What `work` returns, tried again while the database is away."""
    end = time.monotonic() + seconds
    while True:
        try:
            return await work()
        except Exception:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
