"""An event: what an application publishes, and what it reads back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from surehook.model import rules
from surehook.model.fields import Column, Shown
from surehook.model.resources.delivery import Delivery
from surehook.model.resources.shared import (
    LIMIT_MAX,
    TEXT,
    EventType,
    Id,
    ListQuery,
    Payload,
    ProblemBody,
    Request,
    Tenant,
    Time,
)

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


class Event(Struct, frozen=True, kw_only=True):
    id: Annotated[Id, Shown("id", always=True)]
    event_type: Annotated[str, Shown("event type", always=True)]
    tenant: Annotated[str, Shown("tenant", always=True)]
    external_id: Annotated[str | None, Shown("external id", always=True)]
    created_at: Annotated[Time, Shown("created", always=True)]


class EventWithDeliveries(Event, frozen=True, kw_only=True):
    payload: Payload
    deliveries: Annotated[list[Delivery], Meta(description="Newest first"), Column("")]
    next: Annotated[
        str | None,
        Meta(
            description="The `cursor` of the deliveries that follow, here or in "
            "`GET /v1/deliveries?event_id=…`; null: these are all"
        ),
        Column(""),
    ]


class EventsQuery(ListQuery, frozen=True, kw_only=True):
    tenant: Tenant | None = None
    event_type: Annotated[EventType | None, Shown(help="Only of this type.")] = None
    external_id: Annotated[ExternalId | None, Shown(help="Only with this id of the sender's.")] = (
        None
    )
    created_from: Time | None = None
    created_until: Time | None = None


class EventWindow(Struct, frozen=True, kw_only=True):
    """A row of a list of events: how many rows were looked at, the last of them, one that fits."""

    looked: int
    last_created_at: datetime | None
    last_id: int | None
    item: Event | None


class EventQuery(ListQuery, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="How many deliveries at most")] = (
        LIMIT_MAX
    )


# ── Publishing ────────────────────────────────────────────────────────────────────────────────


class NewEventBody(Request, frozen=True):
    """An event to store and to deliver to every matching subscription."""

    event_type: EventType
    payload: Payload
    tenant: Tenant | UnsetType | None = UNSET
    external_id: ExternalId | UnsetType | None = UNSET


class BatchBody(Request, frozen=True):
    """Up to 1,000 events; if one is wrong, none is stored."""

    events: Annotated[list[NewEventBody], Meta(min_length=1, max_length=1000)]


class Published(Struct, frozen=True):
    """The event is durable."""

    id: Id
    created_at: Time
    duplicate: bool


class BatchItem(Struct, frozen=True, omit_defaults=True):
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

    results: list[BatchItem]
