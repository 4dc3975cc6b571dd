"""Calls: a request, and the way to read its answer. Pure.

`call` is what every generated method uses; the other functions are for what needs more than its
fields sent. `repeatable` says whether a call that may have happened can be sent again: publishing
carries a key (yours or one made here), so it always can.
"""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from math import isfinite, isnan
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, UnsetType

from surehook.client.errors import NotUnderstood, refusal
from surehook.client.results import BatchAnswer, BatchItem, Published, Subscription
from surehook.client.wire import Answer
from surehook.model import payload as payloads
from surehook.model import rules

T = TypeVar("T")
Headers = tuple[tuple[str, str], ...]

BATCH_EVENTS_MAX = 1000
BATCH_BYTES_MAX = 8 * 1024 * 1024
ENVELOPE_LEVELS = 10  # of an answer, around a payload

_ENCODER = msgspec.json.Encoder()


class Call(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request, and how to read its answer."""

    method: str
    target: str
    read: Callable[[bytes], T]
    body: bytes = b""
    headers: Headers = ()
    repeatable: bool = True
    external_id: str | None = None
    """Of a publish: what makes it safe to repeat."""

    def result(self, answer: Answer, request_id: str) -> T:
        """The result, or the error that the answer means."""
        if not 200 <= answer.status <= 299:
            raise refusal(answer, request_id)
        try:
            rules.check_depth(answer.body, around=ENVELOPE_LEVELS)
            return self.read(answer.body)
        except (msgspec.DecodeError, ValueError) as error:
            reason = str(error).rstrip(".")
            raise NotUnderstood(f"The answer is not the API's: {reason}.", request_id) from None


def call(
    method: str,
    path: str,
    kind: type[T],
    fields: Mapping[str, Any] | None = None,
    *,
    query: Mapping[str, Any] | None = None,
    headers: Headers = (),
    repeatable: bool = True,
) -> Call[T]:
    """What is UNSET in the body or None in the query is left out."""
    body = {k: _sendable(k, v) for k, v in (fields or {}).items() if v is not UNSET}
    asked = {k: _sendable(k, v) for k, v in (query or {}).items() if v is not None}
    words = {k: str(v).lower() if isinstance(v, bool) else v for k, v in asked.items()}
    return Call(
        method=method,
        target=f"{path}?{urlencode(words)}" if words else path,
        read=msgspec.json.Decoder(kind).decode,
        body=b"" if fields is None else _ENCODER.encode(body),
        headers=headers,
        repeatable=repeatable,
    )


def idempotent(key: str | None) -> Headers:
    """The same key again is the same call: yours, or one made here for repetitions."""
    key = key or str(uuid.uuid4())
    rules.check_external_id(key, "idempotency_key")
    if not key.isascii():
        raise ValueError("idempotency_key must be ASCII: it travels in a header")
    return (("idempotency-key", key),)


def if_match(version: int | None) -> Headers:
    return () if version is None else (("if-match", f'"{int(version)}"'),)


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


_PUBLISHED = msgspec.json.Decoder(Published).decode
_BATCH = msgspec.json.Decoder(BatchAnswer).decode
Stored = TypeVar("Stored", Published, BatchItem)


def publish(event: NewEvent) -> Call[Published]:
    envelope = _envelope(event)
    return Call(
        method="POST",
        target="/v1/events",
        read=lambda answer: _with_key(_PUBLISHED(answer), event, envelope),
        body=_ENCODER.encode(envelope),
        external_id=envelope.external_id,
    )


def publish_batch(events: Iterable[NewEvent | Mapping[str, Any]]) -> Call[list[BatchItem]]:
    given = [item if isinstance(item, NewEvent) else NewEvent(**item) for item in events]
    if not 1 <= len(given) <= BATCH_EVENTS_MAX:
        raise ValueError(f"a batch has 1 to {BATCH_EVENTS_MAX} events, not {len(given)}")
    envelopes = [_envelope(event) for event in given]
    body = _ENCODER.encode({"events": envelopes})
    if len(body) > BATCH_BYTES_MAX:
        raise ValueError(f"the batch has {len(body)} bytes; at most {BATCH_BYTES_MAX} are allowed")

    def read(answer: bytes) -> list[BatchItem]:
        items = _BATCH(answer).results
        if len(items) != len(given):
            raise msgspec.DecodeError(f"{len(items)} results for {len(given)} events")
        return [_with_key(*one) for one in zip(items, given, envelopes, strict=True)]

    return Call(method="POST", target="/v1/events/batch", read=read, body=body)


def _envelope(event: NewEvent) -> _Envelope:
    rules.check_names(event.event_type, event.tenant, event.external_id)
    return _Envelope(
        event.event_type,
        msgspec.Raw(payloads.encode(event.payload)),
        event.external_id if event.external_id is not None else str(uuid.uuid4()),
        UNSET if event.tenant is None else event.tenant,
    )


def _with_key(stored: Stored, event: NewEvent, sent: _Envelope) -> Stored:
    # A key made here is new: if it was there, then by an earlier try of this very call.
    duplicate = stored.duplicate and event.external_id is not None
    return msgspec.structs.replace(stored, external_id=sent.external_id, duplicate=duplicate)


# ── Subscriptions ─────────────────────────────────────────────────────────────────────────────


def create_subscription(
    fields: dict[str, Any], idempotency_key: str | None = None
) -> Call[Subscription]:
    """Create a subscription; the result's `secret` is shown this once.

    A shared secret is made here unless you give one: then it is known even if the first answer is
    lost and the call repeated. With `signature` v1a the server makes the key pair.
    """
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    shared = fields.get("signature", UNSET) in (UNSET, "v1")
    makes = shared and fields.get("secret", UNSET) in (UNSET, None)
    if makes:
        fields = {**fields, "secret": secret}
    headers = idempotent(idempotency_key)
    made = call("POST", "/v1/subscriptions", Subscription, fields, headers=headers)

    def read(body: bytes) -> Subscription:
        subscription = made.read(body)
        # An answer without it means that an earlier call with this key created the subscription:
        # this very call if the key is ours, perhaps another one, with another secret, if not.
        if subscription.secret is None and makes and idempotency_key is None:
            return msgspec.structs.replace(subscription, secret=secret)
        return subscription

    return msgspec.structs.replace(made, read=read)


# ── Values ────────────────────────────────────────────────────────────────────────────────────


def check_timeout(seconds: float) -> None:
    """inf means no limit; nan would mean the same, which is certainly a mistake."""
    if isnan(seconds):
        raise ValueError("timeout must be a number of seconds")


def _sendable(name: str, value: Any) -> Any:
    """JSON knows neither nan nor inf: they would go out as null, which clears a setting."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{name} must be a finite number")
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError("a time must have a time zone: datetime(…, tzinfo=UTC)")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
