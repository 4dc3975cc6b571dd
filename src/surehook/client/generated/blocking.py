"""Client: the API for programs with threads, or without. Written by `make generate` from the
asynchronous one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec import UNSET, Raw, structs

from surehook.client import calls
from surehook.client.calls import Call, NewEvent, call
from surehook.client.errors import ClientError
from surehook.client.generated import blocking_namespaces as namespaces
from surehook.client.generated.blocking_namespaces import DeadLetters, Keys
from surehook.client.results import (
    BatchItem,
    DeliveryWithAttempts,
    EventWithDeliveries,
    Page,
    Published,
    Subscription,
    TestResult,
    Verification,
)
from surehook.client.settings import TIMEOUT_SECONDS, ClientSettings
from surehook.client.sockets import Connections
from surehook.client.tries import Retry
from surehook.client.wire import Broken
from surehook.model import payload as payloads

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


class Events(namespaces.Events):
    def get(self, event_id: int) -> EventWithDeliveries:
        """One event with its payload and all of its deliveries."""
        path = f"/v1/events/{int(event_id)}"
        found = self._client._run(call("GET", path, EventWithDeliveries))
        if found.next is None:
            return found
        listed = self._client.deliveries.list(event_id=event_id, cursor=found.next)
        rest = [delivery for delivery in listed]
        return structs.replace(found, deliveries=[*found.deliveries, *rest], next=None)


class Subscriptions(namespaces.Subscriptions):
    def verify(self, subscription_id: int, *, wait: float | None = None) -> Verification:
        """Send the endpoint a challenge; `wait` up to 30 seconds for what comes of it."""
        path = f"/v1/subscriptions/{int(subscription_id)}/verify"
        challenge = call("POST", path, Verification, {}, query={"wait": wait})
        return self._client._run(challenge)

    def confirm(self, subscription_id: int, code: str) -> Subscription:
        """Verify by the one-time code that the challenge carried."""
        path = f"/v1/subscriptions/{int(subscription_id)}/verify"
        confirmed = call("POST", path, Subscription, {"code": code}, repeatable=False)
        return self._client._run(confirmed)

    def test(self, subscription_id: int, *, payload: object = UNSET) -> TestResult:
        """Send one test delivery now, without an event, and see what comes of it."""
        path = f"/v1/subscriptions/{int(subscription_id)}/test"
        fields = {} if payload is UNSET else {"payload": Raw(payloads.encode(payload))}
        return self._client._run(call("POST", path, TestResult, fields, repeatable=False))


class Deliveries(namespaces.Deliveries):
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


class Client:
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
        self._settings = ClientSettings(url, key, timeout, retry, ca_file)
        self._connections = Connections(self._settings)
        self.events = Events(self)
        self.subscriptions = Subscriptions(self)
        self.deliveries = Deliveries(self)
        self.dead_letters = DeadLetters(self)
        self.keys = Keys(self)

    def publish(
        self,
        event_type: str,
        payload: object,
        *,
        tenant: str | None = None,
        external_id: str | None = None,
    ) -> Published:
        """Publish one event; returns once it is durable.

        `payload`: bytes that are JSON already, sent as they are; or anything that can be written as
        JSON. `external_id`: your own id of the event; publishing it again with the same content
        returns the first one. Without it the client makes one, which makes its own repetitions
        safe.
        """
        return self._run(calls.publish(NewEvent(event_type, payload, tenant, external_id)))

    def publish_batch(self, events: Iterable[NewEvent | Mapping[str, Any]]) -> list[BatchItem]:
        """Publish up to 1,000 events (8 MiB) at once: all are stored, or none if one is invalid.

        One result per event, in order. A key that belongs to another event (409), or that someone's
        open transaction holds (503), fails only its own.
        """
        return self._run(calls.publish_batch(events))

    def close(self) -> None:
        """Close the kept connections; a later call opens new ones."""
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._settings!r})"

    def _run(self, call: Call[T]) -> T:
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

    def _pages(self, path: str, kind: type[Page[T]], filters: Mapping[str, Any]) -> Iterator[T]:
        """All items, page after page as the iteration goes on."""
        while True:
            page = self._run(call("GET", path, kind, query=filters))
            yield from page.items
            if page.next is None:
                return
            filters = {**filters, "cursor": page.next}
