"""Every call of the API, once: arguments in, a request and the way to read its answer out. Pure.

Client and AsyncClient turn these into methods; docs/client.md shows them in use. `repeatable` says
whether a call that may have happened can be sent again: publishing carries a key (yours or one
made here), so it always can.
"""

from __future__ import annotations

import base64
import inspect
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite, isnan
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, UnsetType

from surehook.client.errors import NotUnderstood, refusal
from surehook.client.results import (
    BatchItem,
    DeadLetter,
    Delivery,
    DeliveryWithAttempts,
    Event,
    EventWithDeliveries,
    Key,
    Page,
    Published,
    Requeued,
    RequeuedMany,
    RotatedSecret,
    Subscription,
    TestResult,
    Verification,
)
from surehook.client.wire import Answer
from surehook.model import payload as payloads
from surehook.model import rules

T = TypeVar("T")

BATCH_EVENTS_MAX = 1000
BATCH_BYTES_MAX = 8 * 1024 * 1024
ENVELOPE_LEVELS = 10  # of an answer, around a payload


class Call(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request, and how to read its answer."""

    method: str
    target: str
    read: Callable[[bytes], T]
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = True
    external_id: str | None = None
    """Of a publish: what makes it safe to repeat."""

    def result(self, answer: Answer, request_id: str) -> T:
        """The result, or the error that the answer stands for."""
        if not 200 <= answer.status <= 299:
            raise refusal(answer, request_id)
        try:
            rules.check_depth(answer.body, around=ENVELOPE_LEVELS)
            return self.read(answer.body)
        except (msgspec.DecodeError, ValueError) as error:
            reason = str(error).rstrip(".")
            raise NotUnderstood(f"The answer is not the API's: {reason}.", request_id) from None


def _as(kind: type[T]) -> Callable[[bytes], T]:
    return msgspec.json.Decoder(kind).decode


# ── Events ────────────────────────────────────────────────────────────────────────────────────


class NewEvent(msgspec.Struct, frozen=True):
    """One event of a batch; the fields are those of `publish`."""

    event_type: str
    payload: Any
    tenant: str | None = None
    external_id: str | None = None


class _Envelope(msgspec.Struct, frozen=True):
    event_type: str
    payload: msgspec.Raw
    external_id: str
    tenant: str | UnsetType = UNSET


class _Batch(msgspec.Struct, frozen=True):
    events: list[_Envelope]


class _BatchResults(msgspec.Struct, frozen=True):
    results: list[BatchItem]


def publish(
    event_type: str,
    payload: object,
    *,
    tenant: str | None = None,
    external_id: str | None = None,
) -> Call[Published]:
    """Publish one event; returns once it is durable.

    `payload`: bytes that are JSON already, sent as they are; or anything that can be written as
    JSON. `external_id`: your own id of the event; publishing it again with the same content
    returns the first one. Without it the client makes one, so that its own repetitions are safe.
    """
    event = NewEvent(event_type, payload, tenant, external_id)
    envelope = _envelope(event)

    def read(body: bytes) -> Published:
        published = _PUBLISHED(body)
        # A key made here is new: if it was there, then by an earlier try of this very call.
        duplicate = published.duplicate and external_id is not None
        return msgspec.structs.replace(
            published, external_id=envelope.external_id, duplicate=duplicate
        )

    return Call(
        method="POST",
        target="/v1/events",
        read=read,
        body=_ENCODER.encode(envelope),
        external_id=envelope.external_id,
    )


def publish_batch(events: Iterable[NewEvent | Mapping[str, Any]]) -> Call[list[BatchItem]]:
    """Publish up to 1,000 events (8 MiB) at once: all are stored, or none if one is invalid.

    One result per event, in order. A key that stands for another event (409), or that someone's
    open transaction holds (503), fails only its own.
    """
    given = [item if isinstance(item, NewEvent) else NewEvent(**item) for item in events]
    if not 1 <= len(given) <= BATCH_EVENTS_MAX:
        raise ValueError(f"a batch has 1 to {BATCH_EVENTS_MAX} events, not {len(given)}")
    envelopes = [_envelope(event) for event in given]
    body = _ENCODER.encode(_Batch(envelopes))
    if len(body) > BATCH_BYTES_MAX:
        raise ValueError(f"the batch has {len(body)} bytes; at most {BATCH_BYTES_MAX} are allowed")

    def read(answer: bytes) -> list[BatchItem]:
        items = _BATCH(answer).results
        if len(items) != len(given):
            raise msgspec.DecodeError(f"{len(items)} results for {len(given)} events")
        return [
            msgspec.structs.replace(
                item,
                external_id=envelope.external_id,
                duplicate=item.duplicate and event.external_id is not None,
            )
            for item, envelope, event in zip(items, envelopes, given, strict=True)
        ]

    return Call(method="POST", target="/v1/events/batch", read=read, body=body)


def _envelope(event: NewEvent) -> _Envelope:
    rules.check_names(event.event_type, event.tenant, event.external_id)
    return _Envelope(
        event.event_type,
        msgspec.Raw(payloads.encode(event.payload)),
        event.external_id if event.external_id is not None else str(uuid.uuid4()),
        UNSET if event.tenant is None else event.tenant,
    )


_ENCODER = msgspec.json.Encoder()
_PUBLISHED = _as(Published)
_BATCH = _as(_BatchResults)


def list_events(
    *,
    tenant: str | None = None,
    event_type: str | None = None,
    external_id: str | None = None,
    created_from: datetime | None = None,
    created_until: datetime | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Event]]:
    """Events, page by page as the iteration goes on; `limit` is the size of a page."""
    return _listing("/v1/events", Event, locals())


def get_event(event_id: int) -> Call[EventWithDeliveries]:
    """One event with its payload and the first of its deliveries."""
    return _getting(f"/v1/events/{int(event_id)}", EventWithDeliveries)


# ── Subscriptions ─────────────────────────────────────────────────────────────────────────────


def create_subscription(
    event_type: str,
    callback_url: str,
    *,
    tenant: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    active: bool | UnsetType = UNSET,
    max_attempts: int | UnsetType | None = UNSET,
    base_delay_seconds: float | UnsetType | None = UNSET,
    request_timeout_seconds: float | UnsetType | None = UNSET,
    concurrency_cap: int | UnsetType | None = UNSET,
    rate_limit_per_second: float | UnsetType | None = UNSET,
    custom_headers: Mapping[str, str] | UnsetType | None = UNSET,
    signature: str | UnsetType = UNSET,
    secret: str | UnsetType = UNSET,
    idempotency_key: str | None = None,
) -> Call[Subscription]:
    """Create a subscription; the result's `secret` is shown this once.

    A shared secret is made here unless you give one: then it is known even if the first answer
    is lost and the call repeated. With `signature` v1a the server makes the key pair.
    """
    fields = _given(locals(), but=("idempotency_key",))
    made = secret is UNSET and signature in (UNSET, "v1")
    if made:
        fields["secret"] = "whsec_" + base64.b64encode(os.urandom(32)).decode()

    def read(body: bytes) -> Subscription:
        subscription = _SUBSCRIPTION(body)
        # An answer without it means that an earlier call with this key created the subscription:
        # this very call if the key is ours, perhaps another one, with another secret, if not.
        if subscription.secret is None and made and idempotency_key is None:
            return msgspec.structs.replace(subscription, secret=fields["secret"])
        return subscription

    key = _one_line(idempotency_key or str(uuid.uuid4()))
    return Call(
        method="POST",
        target="/v1/subscriptions",
        read=read,
        body=_ENCODER.encode(fields),
        headers=(("idempotency-key", key),),
    )


_SUBSCRIPTION = _as(Subscription)


def list_subscriptions(
    *,
    tenant: str | None = None,
    event_type: str | None = None,
    active: bool | None = None,
    verified: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Subscription]]:
    """Subscriptions, page by page as the iteration goes on."""
    return _listing("/v1/subscriptions", Subscription, locals())


def get_subscription(subscription_id: int) -> Call[Subscription]:
    """One subscription with its latest verification."""
    return _getting(f"/v1/subscriptions/{int(subscription_id)}", Subscription)


def update_subscription(
    subscription_id: int,
    *,
    event_type: str | UnsetType = UNSET,
    callback_url: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    active: bool | UnsetType = UNSET,
    max_attempts: int | UnsetType | None = UNSET,
    base_delay_seconds: float | UnsetType | None = UNSET,
    request_timeout_seconds: float | UnsetType | None = UNSET,
    concurrency_cap: int | UnsetType | None = UNSET,
    rate_limit_per_second: float | UnsetType | None = UNSET,
    custom_headers: Mapping[str, str] | UnsetType | None = UNSET,
    if_version: int | None = None,
) -> Call[Subscription]:
    """Change what is given; None takes an optional setting away.

    `if_version`: the `version` of the subscription that the change is made from. If it has been
    changed since, nothing changes and Stale is raised.
    """
    fields = _given(locals(), but=("subscription_id", "if_version"))
    headers = () if if_version is None else (("if-match", f'"{int(if_version)}"'),)
    return Call(
        method="PATCH",
        target=f"/v1/subscriptions/{int(subscription_id)}",
        read=_SUBSCRIPTION,
        body=_ENCODER.encode(fields),
        headers=headers,
        # If the first try was done after all, its own change would make the second one stale.
        repeatable=if_version is None,
    )


def verify_subscription(subscription_id: int, *, wait: float | None = None) -> Call[Verification]:
    """Send the endpoint a challenge; `wait` up to 30 seconds for what comes of it."""
    _check_number("wait", wait)
    query = "" if wait is None else f"?wait={wait:g}"
    target = f"/v1/subscriptions/{int(subscription_id)}/verify{query}"
    return Call(method="POST", target=target, read=_as(Verification), body=b"{}")


def confirm_subscription(subscription_id: int, code: str) -> Call[Subscription]:
    """Verify by the one-time code that the challenge carried."""
    target = f"/v1/subscriptions/{int(subscription_id)}/verify"
    body = _ENCODER.encode({"code": code})
    return Call(method="POST", target=target, read=_SUBSCRIPTION, body=body, repeatable=False)


def test_subscription(subscription_id: int, *, payload: object = UNSET) -> Call[TestResult]:
    """Send one test delivery now, without an event, and see what comes of it."""
    fields = {} if payload is UNSET else {"payload": msgspec.Raw(payloads.encode(payload))}
    return Call(
        method="POST",
        target=f"/v1/subscriptions/{int(subscription_id)}/test",
        read=_as(TestResult),
        body=_ENCODER.encode(fields),
        repeatable=False,
    )


def rotate_secret(
    subscription_id: int,
    *,
    overlap_seconds: float | UnsetType = UNSET,
    secret: str | UnsetType = UNSET,
) -> Call[RotatedSecret]:
    """A new secret, shown this once; the old ones go on signing for the overlap (24 h)."""
    fields = _given(locals(), but=("subscription_id",))
    return Call(
        method="POST",
        target=f"/v1/subscriptions/{int(subscription_id)}/rotate-secret",
        read=_as(RotatedSecret),
        body=_ENCODER.encode(fields),
        repeatable=False,
    )


# ── Deliveries and dead letters ───────────────────────────────────────────────────────────────


def list_deliveries(
    *,
    tenant: str | None = None,
    event_id: int | None = None,
    subscription_id: int | None = None,
    status: str | None = None,
    event_type: str | None = None,
    created_from: datetime | None = None,
    created_until: datetime | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Delivery]]:
    """Deliveries, page by page as the iteration goes on."""
    return _listing("/v1/deliveries", Delivery, locals())


def get_delivery(delivery_id: int) -> Call[DeliveryWithAttempts]:
    """One delivery with its attempts."""
    return _getting(f"/v1/deliveries/{int(delivery_id)}", DeliveryWithAttempts)


def list_dead_letters(
    *,
    tenant: str | None = None,
    subscription_id: int | None = None,
    event_type: str | None = None,
    error_code: str | None = None,
    failed_from: datetime | None = None,
    failed_until: datetime | None = None,
    requeued: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[DeadLetter]]:
    """Dead letters, page by page as the iteration goes on."""
    return _listing("/v1/dead-letters", DeadLetter, locals())


def get_dead_letter(dead_letter_id: int) -> Call[DeadLetter]:
    """One dead letter with its payload."""
    return _getting(f"/v1/dead-letters/{int(dead_letter_id)}", DeadLetter)


def requeue_dead_letter(dead_letter_id: int) -> Call[Requeued]:
    """Deliver it again as a new delivery; repeating returns the same one."""
    target = f"/v1/dead-letters/{int(dead_letter_id)}/requeue"
    return Call(method="POST", target=target, read=_as(Requeued))


def requeue_dead_letters(
    *,
    tenant: str | UnsetType = UNSET,
    subscription_id: int | UnsetType = UNSET,
    event_type: str | UnsetType = UNSET,
    error_code: str | UnsetType = UNSET,
    failed_from: datetime | UnsetType = UNSET,
    failed_until: datetime | UnsetType = UNSET,
    all: bool | UnsetType = UNSET,
    limit: int | UnsetType = UNSET,
    dry_run: bool | UnsetType = UNSET,
) -> Call[RequeuedMany]:
    """Requeue those that fit the filter, or `all` without one, at most `limit`; `dry_run` only
    says which."""
    fields = {name: _text_of_time(value) for name, value in _given(locals()).items()}
    return Call(
        method="POST",
        target="/v1/dead-letters/requeue",
        read=_as(RequeuedMany),
        body=_ENCODER.encode(fields),
        repeatable=dry_run is True,  # a second run would take the next ones
    )


# ── Keys ──────────────────────────────────────────────────────────────────────────────────────


def create_key(name: str, scopes: Sequence[str], *, tenant: str | None = None) -> Call[Key]:
    """Create an API key; the result's `key` is shown this once."""
    fields: dict[str, Any] = {"name": name, "scopes": list(scopes)}
    if tenant is not None:
        fields["tenant"] = tenant
    body = _ENCODER.encode(fields)
    return Call(method="POST", target="/v1/keys", read=_as(Key), body=body, repeatable=False)


def list_keys(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Key]]:
    """API keys, page by page as the iteration goes on."""
    return _listing("/v1/keys", Key, locals())


def revoke_key(key_id: int) -> Call[Key]:
    """Revoke a key; within 2 seconds nobody gets in with it."""
    return Call(method="DELETE", target=f"/v1/keys/{int(key_id)}", read=_as(Key))


# ── Pieces ────────────────────────────────────────────────────────────────────────────────────


def _getting(target: str, kind: type[T]) -> Call[T]:
    return Call(method="GET", target=target, read=_as(kind))


def _listing(path: str, kind: type[T], filters: Mapping[str, Any]) -> Call[Page[T]]:
    query = {
        name: str(value).lower() if isinstance(value, bool) else _text_of_time(value)
        for name, value in filters.items()
        if value is not None
    }
    target = f"{path}?{urlencode(query)}" if query else path
    return Call(method="GET", target=target, read=_as(Page[kind]))  # type: ignore[valid-type]


def _given(arguments: Mapping[str, Any], but: tuple[str, ...] = ()) -> dict[str, Any]:
    given = {k: v for k, v in arguments.items() if v is not UNSET and k not in but}
    for name, value in given.items():
        _check_number(name, value)
    return given


def check_timeout(seconds: float) -> None:
    """inf is for ever; with nan no end would be reached either, which nobody means."""
    if isnan(seconds):
        raise ValueError("timeout must be a number of seconds")


def _check_number(name: str, value: Any) -> None:
    """JSON knows neither nan nor inf: they would go out as null, which clears a setting."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{name} must be a finite number")


def _text_of_time(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError("a time must have a time zone: datetime(…, tzinfo=UTC)")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _one_line(value: str) -> str:
    rules.check_external_id(value, "idempotency_key")
    if not value.isascii():
        raise ValueError("idempotency_key must be ASCII: it travels in a header")
    return value


def with_self(method: T, make: Callable[..., Any]) -> T:
    """Give a method that makes a call the call's signature, for help() and editors."""
    given = inspect.signature(make)
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = given.replace(parameters=[self, *given.parameters.values()])
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method
