"""A dead letter: a delivery that was given up, and its second life."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from surehook.model.error_codes import ErrorCode
from surehook.model.fields import Column, Shown
from surehook.model.resources.shared import (
    LIMIT_DEFAULT,
    Cursor,
    EventType,
    Id,
    Limit,
    Payload,
    Request,
    Tenant,
    Time,
)


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A delivery that was given up."""

    id: Annotated[Id, Shown("id")]
    delivery_id: Annotated[Id, Column("{}.saga_id"), Shown("delivery")]
    event_id: Annotated[Id, Shown("event")]
    subscription_id: Annotated[Id, Shown("subscription")]
    final_error_code: Annotated[str | None, Shown("error")]
    failed_at: Annotated[Time, Shown("failed")]
    requeued_as: Annotated[
        Id | None,
        Meta(description="The delivery that it began anew as"),
        Column("n.id"),
        Shown("requeued as"),
    ]
    # Absent in lists.
    payload: Annotated[Payload | UnsetType, Column("")] = UNSET


class DeadLetterWithPayload(DeadLetter, frozen=True, kw_only=True):
    payload: Annotated[Payload, Column("{}.payload_snapshot")]


class DeadLetterFilter(Request, frozen=True, kw_only=True):
    """Which dead letters a list shows and a requeue of many takes; None = any."""

    tenant: Tenant | None = None
    subscription_id: Id | None = None
    event_type: Annotated[EventType | None, Shown(help="Only events of this type.")] = None
    error_code: Annotated[
        ErrorCode | None,
        Shown(help="Only with this last error; docs/reference/errors.md lists them."),
    ] = None
    failed_from: Time | None = None
    failed_until: Time | None = None


class DeadLettersQuery(DeadLetterFilter, frozen=True, kw_only=True):
    requeued: Annotated[
        bool | None,
        Shown(option="--requeued/--not-requeued", help="Only those that were, or were not."),
    ] = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor = None


class DeadLetterWindow(Struct, frozen=True, kw_only=True):
    """A row of a list of dead letters: how many rows were looked at, the last, one that fits."""

    looked: int
    last_id: int | None
    item: DeadLetter | None


class RequeueBody(DeadLetterFilter, frozen=True, kw_only=True):
    """Which dead letters of those that were not requeued yet: at least one filter, or `all`."""

    all: Annotated[bool, Meta(description="All of them, without a filter")] = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    dry_run: bool = False


class Requeued(Struct, frozen=True, kw_only=True):
    """A dead letter's new delivery."""

    dead_letter_id: Id
    delivery_id: Id
    created: bool | UnsetType = UNSET


class RequeuedMany(Struct, frozen=True, kw_only=True):
    """`skipped`: the subscription is not active and verified."""

    count: int
    dead_letter_ids: list[Id]
    deliveries: list[Requeued]
    skipped: list[Id]
