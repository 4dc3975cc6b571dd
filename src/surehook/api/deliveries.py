"""Deliveries: what became of each event at each subscription.

Component  observer
Reads   sagas, jobs, subscriptions      Writes  nothing
"""

from __future__ import annotations

from msgspec import structs

from surehook.actions.keys import Scope
from surehook.api.auth import Key
from surehook.api.pages import before_id, page_of, shaped
from surehook.api.problems import NOT_FOUND, not_found
from surehook.api.routes import Answer, Call, Route
from surehook.api.shapes import (
    Attempt,
    DeliveriesQuery,
    Delivery,
    DeliveryWithAttempts,
    Page,
    extended,
)
from surehook.store.observer import Found

ATTEMPTS_SHOWN = 1000
_NO_FILTER: dict[str, object] = dict.fromkeys(
    (
        "tenant",
        "event_id",
        "subscription_id",
        "status",
        "event_type",
        "created_from",
        "created_until",
    )
)


def of_event(event_id: int) -> dict[str, object]:
    """The filter for one event's deliveries."""
    return {**_NO_FILTER, "event_id": event_id}


async def list_deliveries(call: Call) -> Answer:
    query: DeliveriesQuery = call.query
    before = before_id(query.cursor)

    async def fetch(tenant: str | None) -> Found:
        filters = {name: getattr(query, name) for name in _NO_FILTER}
        return await call.api.observer.deliveries(
            before, query.limit, **{**filters, "tenant": tenant}
        )

    return Answer(200, await page_of(call.key, query.tenant, fetch, Delivery))


async def get_delivery(call: Call) -> Answer:
    row = await call.api.observer.delivery(call.number, call.key.tenant)
    if row is None:
        raise not_found("delivery", call.number)
    attempts = await call.api.observer.attempts(call.number, ATTEMPTS_SHOWN)
    shown = [_attempt(call.key, shaped(Attempt, attempt)) for attempt in attempts]
    delivery = shaped(Delivery, row[:-1])
    return Answer(
        200, extended(DeliveryWithAttempts, delivery, dead_letter_id=row[-1], attempts=shown)
    )


def _attempt(key: Key, attempt: Attempt) -> Attempt:
    return structs.replace(attempt, failure_detail=key.shown(attempt.failure_detail))


ROUTES = (
    Route(
        "GET",
        "/v1/deliveries",
        list_deliveries,
        Scope.READ,
        "List deliveries, newest first",
        {200: Page[Delivery]},
        "deliveries",
        query=DeliveriesQuery,
        client="deliveries.list",
    ),
    Route(
        "GET",
        "/v1/deliveries/{id}",
        get_delivery,
        Scope.READ,
        "One delivery with its attempts",
        {200: DeliveryWithAttempts},
        "deliveries",
        (NOT_FOUND,),
        client="deliveries.get",
    ),
)
