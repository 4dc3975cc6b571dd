"""What the client's calls return. Written by `make generate` from the API's answers."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, field

from surehook.client import behaviour
from surehook.client.behaviour import Result
from surehook.client.errors import Problem


class Published(Result, frozen=True, kw_only=True):
    """The event is durable."""

    id: int
    created_at: datetime
    duplicate: bool = False
    external_id: str | None = None
    """The key that it was sent with: yours, or the one that the client made."""


class BatchItem(behaviour.BatchItem, Result, frozen=True, kw_only=True):
    """One event's answer: 202 stored, 200 was there already, 409 its key has other content, 503 an
    open transaction holds its key: send that one again."""

    status: int
    id: int | None = None
    created_at: datetime | None = None
    duplicate: bool = False
    error: Problem | None = None
    external_id: str | None = None
    """The key that it was sent with: yours, or the one that the client made."""


class BatchAnswer(Result, frozen=True, kw_only=True):
    """The first result is the first event's, and so on. The ids are in no order: events with a key
    and events without one are stored side by side."""

    results: list[BatchItem]


class Event(Result, frozen=True, kw_only=True):
    id: int
    event_type: str = ""
    tenant: str = ""
    external_id: str | None = None
    created_at: datetime


class Delivery(behaviour.Delivery, Result, frozen=True, kw_only=True):
    """One event on its way to one subscription (a saga)."""

    id: int
    event_id: int
    subscription_id: int
    status: str = ""
    attempt_count: int = 0
    next_attempt_at: datetime
    final_error_code: str | None = None
    requeued_from: int | None = None
    """The dead letter that it was requeued from."""
    created_at: datetime
    updated_at: datetime


class EventWithDeliveries(behaviour.EventWithDeliveries, Event, frozen=True, kw_only=True):
    payload: Raw = Raw(b"")
    """Any JSON; stored and delivered byte for byte as received."""
    deliveries: list[Delivery] = field(default_factory=list)
    """Newest first."""
    next: str | None = None
    """The `cursor` of the deliveries that follow, here or in `GET /v1/deliveries?event_id=…`; null:
    these are all."""


class Verification(Result, frozen=True, kw_only=True):
    """An attempt to prove that the endpoint holds the secret."""

    id: int
    callback_url: str = ""
    attempts: int = 0
    last_result: str | None = None
    last_reason: str | None = None
    created_at: datetime
    last_attempt_at: datetime | None = None
    expires_at: datetime
    verified_at: datetime | None = None


class Missed(Result, frozen=True, kw_only=True):
    """Events that were created while the subscription last was not both active and verified, or is
    not now. They are not delivered to it."""

    count: int
    more: bool = False
    """There may be more: not all were looked at."""
    first_at: datetime
    last_at: datetime


class Subscription(behaviour.Subscription, Result, frozen=True, kw_only=True):
    """Who gets which events, and where."""

    id: int
    tenant: str = ""
    """One of your customers, or another part of your system: an event goes only to subscriptions of
    the same tenant. No control characters; empty = no tenant."""
    event_type: str = ""
    callback_url: str = ""
    """https only."""
    pending_callback_url: str | None = None
    """A new URL that has not proved itself yet."""
    active: bool = False
    """False: events created from then on never go to it, not even when it is active again, and
    deliveries that wait or are being retried become dead letters (SUBSCRIPTION_INACTIVE)."""
    verified: bool = False
    eligible_from: datetime | None = None
    """Events from then on are delivered."""
    max_attempts: int | None = None
    base_delay_seconds: float | None = None
    request_timeout_seconds: float | None = None
    concurrency_cap: int | None = None
    rate_limit_per_second: float | None = None
    custom_header_names: list[str] | None = None
    description: str | None = None
    created_at: datetime
    updated_at: datetime
    version: int = 0
    """Grows with every change; the ETag, for If-Match."""
    verification: Verification | None = None
    """The newest one."""
    missed: Missed | None = None
    secret: str | None = None
    """Shown this once."""
    public_key: str | None = None
    """For v1a signatures."""


class TestResult(behaviour.TestResult, Result, frozen=True, kw_only=True):
    """What one guarded POST came to; it is neither an event nor a delivery."""

    callback_url: str
    """What was tested: `pending_callback_url`, where there is one."""
    sent: bool = False
    """False: nothing was sent, the endpoint cannot have seen it."""
    delivered: bool = False
    response_status: int | None = None
    error_code: str | None = None
    response_excerpt: str | None = None
    failure_detail: str | None = None
    milliseconds: float = 0.0


class RotatedSecret(behaviour.RotatedSecret, Result, frozen=True, kw_only=True):
    """The new shared secret, or the new key pair's public key."""

    secret: str | None = None
    """Shown this once."""
    old_secrets_expire_at: datetime | None = None
    public_key: str | None = None
    """For v1a signatures."""


class Attempt(Result, frozen=True, kw_only=True):
    """One POST to the endpoint (a job)."""

    id: int
    status: str = ""
    attempt_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    response_status: int | None = None
    error_code: str | None = None
    retry_after: int | None = None
    response_excerpt: str | None = None
    """The beginning of what the endpoint answered."""
    failure_detail: str | None = None
    """What went wrong, in surehook's own words."""
    worker_id: str | None = None
    lease_resets: int = 0


class DeliveryWithAttempts(Delivery, frozen=True, kw_only=True):
    dead_letter_id: int | None = None
    """The dead letter that it became."""
    attempts: list[Attempt] = field(default_factory=list)


class DeadLetter(Result, frozen=True, kw_only=True):
    """A delivery that was given up."""

    id: int
    delivery_id: int
    event_id: int
    subscription_id: int
    final_error_code: str | None = None
    failed_at: datetime
    requeued_as: int | None = None
    """The delivery that it began anew as."""
    payload: Raw = Raw(b"")
    """Any JSON; stored and delivered byte for byte as received."""


class Requeued(Result, frozen=True, kw_only=True):
    """A dead letter's new delivery."""

    dead_letter_id: int
    delivery_id: int
    created: bool | None = None


class RequeuedMany(Result, frozen=True, kw_only=True):
    """`skipped`: the subscription is not active and verified."""

    count: int
    dead_letter_ids: list[int] = field(default_factory=list)
    deliveries: list[Requeued] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)


class Key(behaviour.Key, Result, frozen=True, kw_only=True):
    """An API key as people see it; `key` itself only when it is made."""

    id: int
    name: str = ""
    scopes: list[str] = field(default_factory=list)
    tenant: str | None = None
    created_at: datetime
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    key: str | None = None
    """Shown this once."""
