"""A delivery: one event on its way to one subscription (a saga), and its attempts (jobs)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from surehook.model.fields import Column, Shown
from surehook.model.resources.shared import EventType, Id, ListQuery, Tenant, Time
from surehook.model.states import JobStatus, SagaStatus


class Delivery(Struct, frozen=True, kw_only=True):
    """One event on its way to one subscription (a saga)."""

    id: Annotated[Id, Shown("id")]
    event_id: Annotated[Id, Shown("event")]
    subscription_id: Annotated[Id, Shown("subscription")]
    status: Annotated[SagaStatus, Shown("status")]
    attempt_count: Annotated[int, Shown("attempts")]
    next_attempt_at: Annotated[Time, Shown("next attempt")]
    final_error_code: Annotated[str | None, Shown("error")]
    requeued_from: Annotated[
        Id | None,
        Meta(description="The dead letter that it was requeued from"),
        Column("NULLIF({}.requeued_from, 0)"),
    ]
    created_at: Time
    updated_at: Annotated[Time, Shown("updated")]


class Attempt(Struct, frozen=True, kw_only=True):
    """One POST to the endpoint (a job)."""

    id: Id
    status: JobStatus
    attempt_at: Time
    started_at: Time | None
    finished_at: Time | None
    response_status: int | None
    error_code: str | None
    retry_after: int | None
    # Older workers wrote what went wrong into response_excerpt where there was no response.
    response_excerpt: Annotated[
        str | None,
        Meta(description="The beginning of what the endpoint answered"),
        Column("CASE WHEN {}.response_status IS NOT NULL THEN {}.response_excerpt END"),
    ]
    failure_detail: Annotated[
        str | None,
        Meta(description="What went wrong, in surehook's own words"),
        Column(
            "CASE WHEN {}.response_status IS NULL "
            "THEN COALESCE({}.failure_detail, {}.response_excerpt) ELSE {}.failure_detail END"
        ),
    ]
    worker_id: str | None
    lease_resets: int


class DeliveryWithAttempts(Delivery, frozen=True, kw_only=True):
    dead_letter_id: Annotated[Id | None, Meta(description="The dead letter that it became")]
    attempts: Annotated[list[Attempt], Column("")]


class DeliveriesQuery(ListQuery, frozen=True, kw_only=True):
    tenant: Tenant | None = None
    event_id: Id | None = None
    subscription_id: Id | None = None
    status: Annotated[
        SagaStatus | None, Shown(help=f"Only in this state: {', '.join(SagaStatus)}.")
    ] = None
    event_type: Annotated[EventType | None, Shown(help="Only events of this type.")] = None
    created_from: Time | None = None
    created_until: Time | None = None


class DeliveryWindow(Struct, frozen=True, kw_only=True):
    """A row of a list of deliveries: how many rows were looked at, the last, one that fits."""

    looked: int
    last_id: int | None
    item: Delivery | None
