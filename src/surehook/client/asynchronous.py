"""AsyncClient: the API for programs on asyncio.

Reads   answers        Writes  requests, over connections that it keeps for the next call

    async with AsyncClient("https://surehook.example.com", "shk_…") as client:
        await client.publish("order.paid", {"order": 17})

The same calls as Client's, awaited; lists are asynchronous iterators. Connections belong to a loop:
in another one the client opens new ones.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from msgspec import structs

from surehook.client import calls
from surehook.client.calls import Call
from surehook.client.errors import ClientError
from surehook.client.results import DeliveryWithAttempts, EventWithDeliveries, Page
from surehook.client.settings import TIMEOUT_SECONDS, ClientSettings
from surehook.client.streams import Connections
from surehook.client.tries import Retry
from surehook.client.wire import Broken

P = ParamSpec("P")
T = TypeVar("T")


# ── From calls to methods ─────────────────────────────────────────────────────────────────────


class Resource:
    """A group of calls that belong together."""

    def __init__(self, run: Callable[[Call[Any]], Awaitable[Any]]) -> None:
        self._run = run


def _method(
    make: Callable[P, Call[T]],
) -> Callable[Concatenate[Resource, P], Coroutine[Any, Any, T]]:
    """The call as a method that makes it."""

    @functools.wraps(make)
    async def method(self: Resource, /, *arguments: P.args, **named: P.kwargs) -> T:
        result: T = await self._run(make(*arguments, **named))
        return result

    return calls.with_self(method, make)


def _paged(
    make: Callable[P, Call[Page[T]]],
) -> Callable[Concatenate[Resource, P], AsyncIterator[T]]:
    """The call as a method that iterates over all of its pages."""

    @functools.wraps(make)
    async def method(self: Resource, /, *arguments: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        while True:
            page: Page[T] = await self._run(make(*arguments, **named))
            for item in page.items:
                yield item
            if page.next is None:
                return
            named["cursor"] = page.next

    return calls.with_self(method, make)


class Events(Resource):
    list = _paged(calls.list_events)
    page = _method(calls.list_events)

    async def get(self, event_id: int) -> EventWithDeliveries:
        """One event with its payload and all of its deliveries."""
        found: EventWithDeliveries = await self._run(calls.get_event(event_id))
        if found.next is None:
            return found
        listed = Deliveries(self._run).list(event_id=event_id, cursor=found.next)
        rest = [delivery async for delivery in listed]
        return structs.replace(found, deliveries=[*found.deliveries, *rest], next=None)


class Subscriptions(Resource):
    create = _method(calls.create_subscription)
    list = _paged(calls.list_subscriptions)
    page = _method(calls.list_subscriptions)
    get = _method(calls.get_subscription)
    update = _method(calls.update_subscription)
    verify = _method(calls.verify_subscription)
    confirm = _method(calls.confirm_subscription)
    test = _method(calls.test_subscription)
    rotate_secret = _method(calls.rotate_secret)


class Deliveries(Resource):
    list = _paged(calls.list_deliveries)
    page = _method(calls.list_deliveries)
    get = _method(calls.get_delivery)

    async def wait_until_done(
        self, delivery_id: int, timeout: float = 60.0
    ) -> DeliveryWithAttempts:
        """The delivery once it is Completed or DeadLettered; TimeoutError if it takes longer."""
        calls.check_timeout(timeout)
        end, pause = time.monotonic() + timeout, 0.05
        while not (delivery := await self.get(delivery_id)).done:
            pause = min(pause * 1.5, 2.0)
            if time.monotonic() + pause > end:
                raise TimeoutError(f"delivery {delivery_id} is still {delivery.status}")
            await asyncio.sleep(pause)
        return delivery


class DeadLetters(Resource):
    list = _paged(calls.list_dead_letters)
    page = _method(calls.list_dead_letters)
    get = _method(calls.get_dead_letter)
    requeue = _method(calls.requeue_dead_letter)
    requeue_many = _method(calls.requeue_dead_letters)


class Keys(Resource):
    create = _method(calls.create_key)
    list = _paged(calls.list_keys)
    page = _method(calls.list_keys)
    revoke = _method(calls.revoke_key)


# ── The client ────────────────────────────────────────────────────────────────────────────────


class AsyncClient(Resource):
    """The API, for any number of tasks of one loop; close it, or use it as a context manager."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        retry: Retry | None = None,
        ca_file: str | Path | None = None,
    ) -> None:
        """The arguments are Client's."""
        super().__init__(self._call)
        self._settings = ClientSettings(url, key, timeout, retry, ca_file)
        self._connections = Connections(self._settings)
        self.events = Events(self._call)
        self.subscriptions = Subscriptions(self._call)
        self.deliveries = Deliveries(self._call)
        self.dead_letters = DeadLetters(self._call)
        self.keys = Keys(self._call)

    publish = _method(calls.publish)
    publish_batch = _method(calls.publish_batch)

    async def close(self) -> None:
        """Close the kept connections; a later call opens new ones."""
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self._settings!r})"

    async def _call(self, call: Call[T]) -> T:
        request_id, request, tries = self._settings.begin(call)
        try:
            while True:
                try:
                    answer = await self._connections.exchange(request, tries.deadline())
                except Broken as failure:
                    pause: float | None = tries.after_failure(failure)
                else:
                    pause = tries.after_answer(answer)
                    if pause is None:
                        return call.result(answer, request_id)
                assert pause is not None
                await asyncio.sleep(pause)
        except ClientError as error:
            error.external_id = call.external_id
            raise
