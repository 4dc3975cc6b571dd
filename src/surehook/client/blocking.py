"""Client: the API for programs with threads, or without.

Reads   answers        Writes  requests, over connections that it keeps for the next call

    client = Client("https://surehook.example.com", "shk_…")
    client.publish("order.paid", {"order": 17})

One client serves any number of threads: each call has a connection to itself while it lasts. After
a fork the child opens connections of its own.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from msgspec import structs

from surehook.client import calls
from surehook.client.calls import Call
from surehook.client.errors import ClientError
from surehook.client.results import DeliveryWithAttempts, EventWithDeliveries, Page
from surehook.client.settings import TIMEOUT_SECONDS, ClientSettings
from surehook.client.sockets import Connections
from surehook.client.tries import Retry
from surehook.client.wire import Broken

if TYPE_CHECKING:
    from pathlib import Path

P = ParamSpec("P")
T = TypeVar("T")


# ── From calls to methods ─────────────────────────────────────────────────────────────────────


class Resource:
    """A group of calls that belong together."""

    def __init__(self, run: Callable[[Call[Any]], Any]) -> None:
        self._run = run


def _method(make: Callable[P, Call[T]]) -> Callable[Concatenate[Resource, P], T]:
    """The call as a method that makes it."""

    @functools.wraps(make)
    def method(self: Resource, /, *arguments: P.args, **named: P.kwargs) -> T:
        result: T = self._run(make(*arguments, **named))
        return result

    return calls.with_self(method, make)


def _paged(make: Callable[P, Call[Page[T]]]) -> Callable[Concatenate[Resource, P], Iterator[T]]:
    """The call as a method that iterates over all of its pages."""

    @functools.wraps(make)
    def method(self: Resource, /, *arguments: P.args, **named: P.kwargs) -> Iterator[T]:
        while True:
            page: Page[T] = self._run(make(*arguments, **named))
            yield from page.items
            if page.next is None:
                return
            named["cursor"] = page.next

    return calls.with_self(method, make)


class Events(Resource):
    list = _paged(calls.list_events)
    page = _method(calls.list_events)

    def get(self, event_id: int) -> EventWithDeliveries:
        """One event with its payload and all of its deliveries."""
        found: EventWithDeliveries = self._run(calls.get_event(event_id))
        if found.next is None:
            return found
        rest = Deliveries(self._run).list(event_id=event_id, cursor=found.next)
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

    def wait_until_done(self, delivery_id: int, timeout: float = 60.0) -> DeliveryWithAttempts:
        """The delivery once it is Completed or DeadLettered; TimeoutError if it takes longer."""
        calls.check_timeout(timeout)
        end, pause = time.monotonic() + timeout, 0.05
        while not (delivery := self.get(delivery_id)).done:
            pause = min(pause * 1.5, 2.0)
            if time.monotonic() + pause > end:
                raise TimeoutError(f"delivery {delivery_id} is still {delivery.status}")
            time.sleep(pause)
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


class Client(Resource):
    """The API, for any number of threads; close it, or use it as a context manager."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        retry: Retry | None = None,
        ca_file: str | Path | None = None,
    ) -> None:
        """`timeout` is for one try, all of it; `retry` says how many there are. Left out, `url`
        and `key` come from SUREHOOK_URL and SUREHOOK_API_KEY. `ca_file`: more authorities to trust.
        """
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

    def close(self) -> None:
        """Close the kept connections; a later call opens new ones."""
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._settings!r})"

    def _call(self, call: Call[T]) -> T:
        request_id, request, tries = self._settings.begin(call)
        try:
            while True:
                try:
                    answer = self._connections.exchange(request, tries.deadline())
                except Broken as failure:
                    pause: float | None = tries.after_failure(failure)
                else:
                    pause = tries.after_answer(answer)
                    if pause is None:
                        return call.result(answer, request_id)
                assert pause is not None
                time.sleep(pause)
        except ClientError as error:
            error.external_id = call.external_id
            raise
