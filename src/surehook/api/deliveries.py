"""Deliveries: what became of each event at each subscription.

Component  observer
Reads   sagas, jobs, subscriptions      Writes  nothing
"""

from __future__ import annotations

from msgspec import structs

from surehook.actions.keys import Scope
from surehook.api.auth import Key
from surehook.api.pages import before_id, page_of
from surehook.api.problems import NOT_FOUND, not_found
from surehook.api.routes import Answer, Call, Route
from surehook.model.resources.delivery import (
    Attempt,
    DeliveriesQuery,
    Delivery,
    DeliveryWithAttempts,
)
from surehook.model.resources.shared import Page

ATTEMPTS_SHOWN = 1000


async def list_deliveries(call: Call) -> Answer:
    before = before_id(call.query.cursor)
    return Answer(200, await page_of(call, call.api.observer.deliveries, before))


async def get_delivery(call: Call) -> Answer:
    found = await call.api.observer.delivery(call.number, call.key.tenant)
    if found is None:
        raise not_found("delivery", call.number)
    attempts = await call.api.observer.attempts(call.number, ATTEMPTS_SHOWN)
    shown = [_attempt(call.key, attempt) for attempt in attempts]
    return Answer(200, structs.replace(found, attempts=shown))


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
