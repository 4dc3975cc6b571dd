"""Deliveries: what became of each event at each subscription.

Component  observer
Reads   sagas, jobs, subscriptions      Writes  nothing
"""

from __future__ import annotations

from msgspec import structs

from surehook.actions.keys import Scope
from surehook.api.auth import Key
from surehook.api.pages import add_list
from surehook.api.problems import not_found
from surehook.api.routes import Answer, Call, Routes
from surehook.model.resources.delivery import (
    Attempt,
    DeliveriesQuery,
    Delivery,
    DeliveryWithAttempts,
)
from surehook.model.resources.shared import Page

ATTEMPTS_SHOWN = 1000


routes = Routes("deliveries")
add_list(routes, Page[Delivery], DeliveriesQuery)


@routes("GET", "/v1/deliveries/{id}", Scope.READ, DeliveryWithAttempts, client="deliveries.get")
async def get_delivery(call: Call) -> Answer:
    """One delivery with its attempts."""
    found = await call.api.observer.read_delivery(call.number, call.key.tenant)
    if found is None:
        raise not_found("delivery", call.number)
    attempts = await call.api.observer.read_attempts(call.number, ATTEMPTS_SHOWN)
    shown = [_attempt(call.key, attempt) for attempt in attempts]
    return Answer(200, structs.replace(found, attempts=shown))


def _attempt(key: Key, attempt: Attempt) -> Attempt:
    return structs.replace(attempt, failure_detail=key.shown(attempt.failure_detail))
