"""The bodies of requests and answers, and the queries. The OpenAPI is made from these.

Reads   nothing     Writes  nothing

Requests forbid unknown fields. Times are text: always UTC, always with microseconds.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from surehook import __version__
from surehook.api.problems import ProblemBody
from surehook.delivery.outcome import ErrorCode
from surehook.model import rules
from surehook.model.states import JobStatus, SagaStatus

Item = TypeVar("Item")
Whole = TypeVar("Whole", bound=Struct)

BIGGEST_ID = 2**63 - 1
LIMIT_DEFAULT = 50
LIMIT_MAX = 200
TIME_EXAMPLE = "2026-11-15T20:55:01.123456Z"

Id = Annotated[int, Meta(ge=1, le=BIGGEST_ID)]
Time = Annotated[str, Meta(examples=[TIME_EXAMPLE], extra_json_schema={"format": "date-time"})]
Moment = Annotated[datetime, Meta(tz=True)]
EventType = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=rules.EVENT_TYPE_MAX,
        examples=["order.paid"],
        extra_json_schema={"pattern": f"^{rules.EVENT_TYPE_CHARACTER}+$"},
    ),
]
_TEXT = {"pattern": f"^{rules.TEXT_CHARACTER}*$"}
Tenant = Annotated[
    str,
    Meta(
        max_length=rules.TENANT_MAX,
        description="One of your customers, or another part of your system: an event goes only "
        "to subscriptions of the same tenant. No control characters; empty = no tenant",
        examples=["acme"],
        extra_json_schema=_TEXT,
    ),
]
ExternalId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=rules.EXTERNAL_ID_MAX,
        description="The sender's own id: the same one again is stored once",
        examples=["payment-4711"],
        extra_json_schema=_TEXT,
    ),
]
Payload = Annotated[
    Raw,
    Meta(
        description="Any JSON; stored and delivered byte for byte as received",
        extra_json_schema={"examples": [{"order": 4711, "total": "12.50"}]},
    ),
]
ScopeName = Literal["ingest", "read", "operator", "admin"]


def rfc3339(moment: datetime) -> str:
    """UTC with microseconds, as every answer shows a time."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def rfc3339_or_none(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)


class Request(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What clients send."""


class Page(Struct, Generic[Item], frozen=True):
    """A page; `next` is the cursor of the next one, null at the end."""

    items: list[Item]
    next: str | None


class ListQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="How many items at most")] = (
        LIMIT_DEFAULT
    )
    cursor: Annotated[
        str | None, Meta(description="`next` of the page before; it fits the same filters only")
    ] = None


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


# ── Subscriptions ─────────────────────────────────────────────────────────────────────────────

Url = Annotated[
    str,
    Meta(
        max_length=500,
        description="https only",
        examples=["https://shop.example.com/hooks/orders"],
    ),
]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Seconds = Annotated[float, Meta(gt=0, le=604_800)]
Rate = Annotated[float, Meta(gt=0, le=1_000_000)]
Description = Annotated[str, Meta(max_length=1000)]
CustomHeaders = Annotated[
    dict[str, str],
    Meta(
        max_length=20,
        description="Sent with every delivery; stored encrypted, the values are never shown",
        examples=[{"x-shop": "4711"}],
    ),
]
Secret = Annotated[str, Meta(max_length=200, examples=["whsec_…"])]


Active = Annotated[
    bool,
    Meta(
        description="False: events created from then on never go to it, not even when it is "
        "active again, and deliveries that wait or are being retried become dead letters "
        "(SUBSCRIPTION_INACTIVE)"
    ),
]


class NewSubscriptionBody(Request, frozen=True, kw_only=True):
    """Events of this type (and tenant) are to be delivered to this URL."""

    event_type: EventType
    callback_url: Url
    tenant: Tenant | None = None
    description: Description | None = None
    active: Active = True
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    base_delay_seconds: Seconds | None = None
    request_timeout_seconds: Seconds | None = None
    concurrency_cap: Count | None = None
    rate_limit_per_second: Rate | None = None
    custom_headers: CustomHeaders | None = None
    signature: Literal["v1", "v1a", "v1,v1a"] = "v1"
    secret: Secret | None = None


class SubscriptionChanges(Request, frozen=True, kw_only=True):
    """What is named changes; null takes an override away."""

    event_type: EventType | UnsetType = UNSET
    callback_url: Url | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
    active: Active | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] | UnsetType | None = UNSET
    base_delay_seconds: Seconds | UnsetType | None = UNSET
    request_timeout_seconds: Seconds | UnsetType | None = UNSET
    concurrency_cap: Count | UnsetType | None = UNSET
    rate_limit_per_second: Rate | UnsetType | None = UNSET
    custom_headers: CustomHeaders | UnsetType | None = UNSET


class SubscriptionsQuery(ListQuery, frozen=True, kw_only=True):
    tenant: Tenant | None = None
    event_type: EventType | None = None
    active: bool | None = None
    verified: bool | None = None


class Verification(Struct, frozen=True):
    """An attempt to prove that the endpoint holds the secret."""

    id: Id
    callback_url: str
    attempts: int
    last_result: str | None
    last_reason: str | None
    created_at: Time
    last_attempt_at: Time | None
    expires_at: Time
    verified_at: Time | None


class Subscription(Struct, frozen=True, kw_only=True):
    id: Id
    tenant: str
    event_type: str
    callback_url: str
    pending_callback_url: Annotated[
        str | None, Meta(description="A new URL that has not proved itself yet")
    ]
    active: Active
    verified: bool
    eligible_from: Annotated[Time | None, Meta(description="Events from then on are delivered")]
    max_attempts: int | None
    base_delay_seconds: float | None
    request_timeout_seconds: float | None
    concurrency_cap: int | None
    rate_limit_per_second: float | None
    custom_header_names: list[str] | None
    description: str | None
    created_at: Time
    updated_at: Time
    version: Annotated[
        int, Meta(ge=1, description="Grows with every change; the ETag, for If-Match")
    ]
    verification: Annotated[Verification | None, Meta(description="The newest one")]


class Missed(Struct, frozen=True):
    """Events that were created while the subscription last was not both active and verified, or
    is not now. They are not delivered to it."""

    count: int
    more: Annotated[bool, Meta(description="There may be more: not all were looked at")]
    first_at: Time
    last_at: Time


class OneSubscription(Subscription, frozen=True, kw_only=True, omit_defaults=True):
    missed: Missed | None = None


class NewSubscription(Subscription, frozen=True, kw_only=True, omit_defaults=True):
    secret: Annotated[str | None, Meta(description="Shown this once", examples=["whsec_…"])] = None
    public_key: Annotated[
        str | None, Meta(description="For v1a signatures", examples=["whpk_…"])
    ] = None


class VerifyBody(Request, frozen=True):
    """Without a code: a challenge is sent. With the code that a challenge carried: confirmed."""

    code: Annotated[str, Meta(max_length=100, examples=["7QXM-2KPA-9DTR"])] | None = None


class VerifyQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wait: Annotated[
        float, Meta(ge=0, le=30, description="Seconds to wait until the challenge was tried")
    ] = 0.0


class RotateBody(Request, frozen=True):
    overlap_seconds: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=2_592_000,
                description="For how long the old secret signs as well; left out: the setting "
                "delivery.secret_overlap (24 h)",
            ),
        ]
        | None
    ) = None
    secret: Secret | None = None


class RotatedSecret(Struct, frozen=True):
    secret: Annotated[str, Meta(description="Shown this once", examples=["whsec_…"])]
    old_secrets_expire_at: Time | None


class TestBody(Request, frozen=True):
    payload: Payload | UnsetType = UNSET


class TestResult(Struct, frozen=True):
    """What one guarded POST came to; it is no event and no delivery."""

    callback_url: Annotated[
        str, Meta(description="What was tested: `pending_callback_url`, where there is one")
    ]
    sent: Annotated[
        bool, Meta(description="False: nothing was sent, the endpoint cannot have seen it")
    ]
    delivered: bool
    response_status: int | None
    error_code: str | None
    response_excerpt: str | None
    failure_detail: str | None
    milliseconds: float


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
    name: Annotated[str, Meta(min_length=1, max_length=rules.NAME_MAX, extra_json_schema=_TEXT)]
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
