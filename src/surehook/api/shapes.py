"""The bodies of requests and answers, and the queries. The OpenAPI is made from these.

Reads   nothing     Writes  nothing

Requests forbid unknown fields. Times are text: always UTC, always with microseconds.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from surehook import __version__
from surehook.api.problems import ProblemBody
from surehook.model import rules
from surehook.model.error_codes import ErrorCode
from surehook.model.resources.shared import (
    LIMIT_MAX,
    TEXT,
    TIME_EXAMPLE,
    EventType,
    Id,
    ListQuery,
    Payload,
    Request,
    Tenant,
)
from surehook.model.states import JobStatus, SagaStatus

Item = TypeVar("Item")
Whole = TypeVar("Whole", bound=Struct)

Time = Annotated[str, Meta(examples=[TIME_EXAMPLE], extra_json_schema={"format": "date-time"})]
Moment = Annotated[datetime, Meta(tz=True)]
ExternalId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=rules.EXTERNAL_ID_MAX,
        description="The sender's own id: the same one again is stored once",
        examples=["payment-4711"],
        extra_json_schema=TEXT,
    ),
]
ScopeName = Literal["ingest", "read", "operator", "admin"]


def rfc3339(moment: datetime) -> str:
    """UTC with microseconds, as every answer shows a time."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def rfc3339_or_none(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)


class Page(Struct, Generic[Item], frozen=True):
    """A page; `next` is the cursor of the next one, null at the end."""

    items: list[Item]
    next: str | None


# ── Events ────────────────────────────────────────────────────────────────────────────────────


class NewEventBody(Request, frozen=True):
    """An event to store and to deliver to every matching subscription."""

    event_type: EventType
    payload: Payload
    tenant: Tenant | UnsetType | None = UNSET
    external_id: ExternalId | UnsetType | None = UNSET


class BatchBody(Request, frozen=True):
    """Up to 1,000 events; if one is wrong, none is stored."""

    events: Annotated[list[NewEventBody], Meta(min_length=1, max_length=1000)]


class Accepted(Struct, frozen=True):
    """The event is durable."""

    id: Id
    created_at: Time
    duplicate: bool


class BatchResult(Struct, frozen=True, omit_defaults=True):
    """One event's answer: 202 stored, 200 was there already, 409 its key has other content, 503 an
    open transaction holds its key: send that one again."""

    status: Literal[200, 202, 409, 503]
    id: Id | None = None
    created_at: Time | None = None
    duplicate: bool | None = None
    error: ProblemBody | None = None


class BatchAnswer(Struct, frozen=True):
    """The first result is the first event's, and so on. The ids are in no order: events with a
    key and events without one are stored side by side."""

    results: list[BatchResult]


class EventsQuery(ListQuery, frozen=True, kw_only=True):
    tenant: Tenant | None = None
    event_type: EventType | None = None
    external_id: ExternalId | None = None
    created_from: Moment | None = None
    created_until: Moment | None = None


class Event(Struct, frozen=True):
    id: Id
    event_type: str
    tenant: str
    external_id: str | None
    created_at: Time


# ── Deliveries ────────────────────────────────────────────────────────────────────────────────


class DeliveriesQuery(ListQuery, frozen=True, kw_only=True):
    tenant: Tenant | None = None
    event_id: Id | None = None
    subscription_id: Id | None = None
    status: SagaStatus | None = None
    event_type: EventType | None = None
    created_from: Moment | None = None
    created_until: Moment | None = None


class Delivery(Struct, frozen=True):
    """One event on its way to one subscription (a saga)."""

    id: Id
    event_id: Id
    subscription_id: Id
    status: SagaStatus
    attempt_count: int
    next_attempt_at: Time
    final_error_code: str | None
    requeued_from: Annotated[
        Id | None, Meta(description="The dead letter that it was requeued from")
    ]
    created_at: Time
    updated_at: Time


class Attempt(Struct, frozen=True):
    """One POST to the endpoint (a job)."""

    id: Id
    status: JobStatus
    attempt_at: Time
    started_at: Time | None
    finished_at: Time | None
    response_status: int | None
    error_code: str | None
    retry_after: int | None
    response_excerpt: Annotated[
        str | None, Meta(description="The beginning of what the endpoint answered")
    ]
    failure_detail: Annotated[
        str | None, Meta(description="What went wrong, in surehook's own words")
    ]
    worker_id: str | None
    lease_resets: int


class DeliveryWithAttempts(Delivery, frozen=True):
    dead_letter_id: Annotated[Id | None, Meta(description="The dead letter that it became")]
    attempts: list[Attempt]


class EventQuery(ListQuery, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="How many deliveries at most")] = (
        LIMIT_MAX
    )


class EventWithDeliveries(Event, frozen=True):
    payload: Payload
    deliveries: Annotated[list[Delivery], Meta(description="Newest first")]
    next: Annotated[
        str | None,
        Meta(
            description="The `cursor` of the deliveries that follow, here or in "
            "`GET /v1/deliveries?event_id=…`; null: these are all"
        ),
    ]


# ── Dead letters ──────────────────────────────────────────────────────────────────────────────


class DeadLettersQuery(ListQuery, frozen=True, kw_only=True):
    tenant: Tenant | None = None
    subscription_id: Id | None = None
    event_type: EventType | None = None
    error_code: ErrorCode | None = None
    failed_from: Moment | None = None
    failed_until: Moment | None = None
    requeued: bool | None = None


class DeadLetter(Struct, frozen=True):
    """A delivery that was given up."""

    id: Id
    saga_id: Id
    event_id: Id
    subscription_id: Id
    final_error_code: str | None
    failed_at: Time
    requeued_as: Annotated[Id | None, Meta(description="The delivery that it began anew as")]


class DeadLetterWithPayload(DeadLetter, frozen=True):
    payload: Payload


class RequeuedOne(Struct, frozen=True):
    dead_letter_id: Id
    saga_id: Id
    created: bool


class RequeueBody(Request, frozen=True):
    """Which dead letters of those that were not requeued yet: at least one filter, or `all`."""

    tenant: Tenant | None = None
    subscription_id: Id | None = None
    event_type: EventType | None = None
    error_code: ErrorCode | None = None
    failed_from: Moment | None = None
    failed_until: Moment | None = None
    all: Annotated[bool, Meta(description="All of them, without a filter")] = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    dry_run: bool = False


class RequeuedPair(Struct, frozen=True):
    dead_letter_id: Id
    saga_id: Id


class RequeueAnswer(Struct, frozen=True):
    """`skipped`: the subscription is not active and verified."""

    count: int
    dead_letter_ids: list[Id]
    sagas: list[RequeuedPair]
    skipped: list[Id]


# ── Keys ──────────────────────────────────────────────────────────────────────────────────────


class NewKeyBody(Request, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=rules.NAME_MAX, extra_json_schema=TEXT)]
    scopes: Annotated[list[ScopeName], Meta(min_length=1, max_length=4)]
    tenant: Tenant | None = None


class Key(Struct, frozen=True):
    id: Id
    name: str
    scopes: list[ScopeName]
    tenant: str | None
    created_at: Time
    last_used_at: Time | None
    revoked_at: Time | None


class KeyWithSecret(Key, frozen=True):
    key: Annotated[str, Meta(description="Shown this once", examples=["shk_…"])]


class KeysQuery(ListQuery, frozen=True, kw_only=True):
    tenant: Tenant | None = None


# ── Start ─────────────────────────────────────────────────────────────────────────────────────


class Start(Struct, frozen=True):
    """Where things are."""

    name: str = "surehook"
    version: str = __version__
    docs: str = "/docs"
    openapi: str = "/openapi.json"
    api: str = "/v1"
    health: str = "/healthz"
    readiness: str = "/readyz"
    metrics: str = "/metrics"


def extended(shape: type[Whole], part: Struct, **more: object) -> Whole:
    """A shape that has all of a smaller one's fields, and more."""
    return shape(**msgspec.structs.asdict(part), **more)
