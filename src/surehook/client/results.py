"""What the client's calls return: frozen, typed, times aware. Pure.

Fields that a newer server adds are ignored; those that an older one lacks have a default.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from surehook.client.errors import Problem

T = TypeVar("T")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all."""


class Page(Result, Generic[T], frozen=True, kw_only=True):
    """Part of a list; iterating over a list fetches one after the other."""

    items: list[T]
    next: str | None = None


class Published(Result, frozen=True, kw_only=True):
    """The event is durable."""

    id: int
    created_at: datetime
    duplicate: bool = False
    """It had been published before, with the same external_id and content."""
    external_id: str | None = None
    """The key that it was sent with: yours, or the one that the client made."""


class BatchItem(Result, frozen=True, kw_only=True):
    """What became of one event of a batch: stored, or its key stands for another event (409) or is
    held by a transaction that is still open (503: publish this one again)."""

    status: int
    id: int | None = None
    created_at: datetime | None = None
    duplicate: bool = False
    error: Problem | None = None
    external_id: str | None = None

    @property
    def stored(self) -> bool:
        return self.error is None


class Delivery(Result, frozen=True, kw_only=True):
    """One event on its way to one subscription."""

    id: int
    event_id: int
    subscription_id: int
    status: str
    """Pending, InProgress, PendingRetry, Completed or DeadLettered."""
    attempt_count: int = 0
    next_attempt_at: datetime | None = None
    final_error_code: str | None = None
    requeued_from: int | None = None
    created_at: datetime
    updated_at: datetime | None = None

    @property
    def done(self) -> bool:
        return self.status in ("Completed", "DeadLettered")


class Attempt(Result, frozen=True, kw_only=True):
    """One try of a delivery."""

    id: int
    status: str
    attempt_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    response_status: int | None = None
    error_code: str | None = None
    retry_after: float | None = None
    response_excerpt: str | None = None
    """What the endpoint answered or, without an answer, what went wrong."""
    worker_id: str | None = None
    lease_resets: int = 0


class DeliveryWithAttempts(Delivery, frozen=True, kw_only=True):
    dead_letter_id: int | None = None
    attempts: list[Attempt] = []


class Event(Result, frozen=True, kw_only=True):
    """An event as lists show it."""

    id: int
    event_type: str
    tenant: str = ""
    external_id: str | None = None
    created_at: datetime


class EventWithDeliveries(Event, frozen=True, kw_only=True):
    payload: msgspec.Raw
    """The bytes as they were published."""
    deliveries: list[Delivery] = []
    next: str | None = None
    """The cursor of the deliveries that follow; None: these are all."""

    def json(self) -> Any:
        """The payload, parsed."""
        return msgspec.json.decode(self.payload)


class Verification(Result, frozen=True, kw_only=True):
    """A challenge to an endpoint and what came of it."""

    id: int
    callback_url: str = ""
    attempts: int = 0
    last_result: str | None = None
    last_reason: str | None = None
    created_at: datetime | None = None
    last_attempt_at: datetime | None = None
    expires_at: datetime | None = None
    verified_at: datetime | None = None


class Missed(Result, frozen=True, kw_only=True):
    """Events that were created while a subscription was not both active and verified."""

    count: int
    more: bool = False
    """There may be more: not all were looked at."""
    first_at: datetime
    last_at: datetime


class Subscription(Result, frozen=True, kw_only=True):
    """Who gets which events. `secret` and `public_key` are there at its creation only."""

    id: int
    tenant: str = ""
    event_type: str
    callback_url: str
    pending_callback_url: str | None = None
    active: bool = True
    verified: bool = False
    eligible_from: datetime | None = None
    max_attempts: int | None = None
    base_delay_seconds: float | None = None
    request_timeout_seconds: float | None = None
    concurrency_cap: int | None = None
    rate_limit_per_second: float | None = None
    custom_header_names: list[str] | None = None
    description: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    version: int | None = None
    verification: Verification | None = None
    missed: Missed | None = None
    """What it missed while it last was off, or misses now; of one that was read or changed."""
    secret: str | None = None
    public_key: str | None = None

    def __repr__(self) -> str:  # a secret must not get into a log
        return f"Subscription(id={self.id}, {self.event_type!r} → {self.callback_url!r})"


class TestResult(Result, frozen=True, kw_only=True):
    """What came of a test delivery."""

    __test__ = False  # no test class, whatever pytest thinks

    callback_url: str = ""
    """What was tested: the pending URL, where there is one."""
    sent: bool = True
    """False: nothing was sent, the endpoint cannot have seen it."""
    delivered: bool
    response_status: int | None = None
    error_code: str | None = None
    detail: str | None = None
    excerpt: str | None = None
    milliseconds: float | None = None


class RotatedSecret(Result, frozen=True, kw_only=True):
    """The new secret; the old ones go on for the overlap."""

    secret: str
    public_key: str | None = None
    old_secrets_expire_at: datetime | None = None

    def __repr__(self) -> str:
        return f"RotatedSecret(old_secrets_expire_at={self.old_secrets_expire_at})"


class DeadLetter(Result, frozen=True, kw_only=True):
    """A delivery that was given up."""

    id: int
    saga_id: int
    event_id: int
    subscription_id: int
    final_error_code: str | None = None
    failed_at: datetime
    requeued_as: int | None = None
    payload: msgspec.Raw = msgspec.Raw(b"")
    """The event's bytes when one dead letter is asked for; empty in lists."""


class Requeued(Result, frozen=True, kw_only=True):
    """A dead letter's new delivery."""

    dead_letter_id: int
    saga_id: int
    created: bool = True
    """False: it had been requeued before."""


class RequeuedMany(Result, frozen=True, kw_only=True):
    """What a requeue by filter did, or would do."""

    count: int
    dead_letter_ids: list[int] = []
    sagas: list[Requeued] = []
    skipped: list[Any] = []


class Key(Result, frozen=True, kw_only=True):
    """An API key; `key` is there at its creation only."""

    id: int
    name: str
    scopes: list[str] = []
    tenant: str | None = None
    created_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return f"Key(id={self.id}, {self.name!r}, scopes={self.scopes})"
