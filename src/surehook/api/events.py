"""Events in: one, with its own thin path, or many; and reading them.

Components  ingest, observer
Reads   request bodies; events, sagas       Writes  INSERT events, by way of ingest

`POST /v1/events` goes from the ASGI call straight to the group commit: key, body, checks, answer.
An answer of 200 or 202 is given only when the event is durable. 503 after a wait means that it may
be stored all the same: with an external_id the client repeats it safely.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from surehook.actions.heldkeys import KeyHeld
from surehook.actions.ingest import KeyTaken, Ticket
from surehook.actions.keys import Scope
from surehook.api import strict
from surehook.api.auth import Key
from surehook.api.pages import add_list, before_id, before_time, encoded_cursor
from surehook.api.problems import CONFLICT, invalid, not_found
from surehook.api.routes import Answer, Call, Routes
from surehook.api.wire import Head, Receive, Send, answer, as_problem, refuse
from surehook.model import rules
from surehook.model.moments import Moment, rfc3339
from surehook.model.records import NewEvent, StoredEvent
from surehook.model.resources.event import (
    BatchAnswer,
    BatchBody,
    BatchItem,
    Event,
    EventQuery,
    EventsQuery,
    EventWithDeliveries,
    NewEventBody,
    Published,
)
from surehook.model.resources.shared import Page

if TYPE_CHECKING:
    from surehook.api.app import Api

# Those who were answered are forgotten this often.
PATIENCE_SECONDS = 0.1
ENVELOPE_MAX = 4096
BATCH_EVENTS = 1000
# One that waits for someone's transaction gives up in time for the others to be answered.
BATCH_SPARE_SECONDS = 0.25
# Enough to look at each event separately, so the answer names the one at fault.
BATCH_LEVELS = 100


EVENT_EXAMPLE = {
    "event_type": "order.paid",
    "payload": {"order": 4711, "total": "12.50"},
    "external_id": "payment-4711",
}
routes = Routes("events")


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """NewEventBody without its constraints: they are checked here by hand, which is faster."""

    event_type: str
    payload: Raw
    tenant: str | msgspec.UnsetType | None = UNSET
    external_id: str | msgspec.UnsetType | None = UNSET


class _Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    events: Raw


_envelopes = msgspec.json.Decoder(_Envelope)
_batches = msgspec.json.Decoder(_Batch)
_lists = msgspec.json.Decoder(list[Raw])


def read_event(
    body: bytes, key: Key, idempotency_key: str | None, payload_max: int, inside: str = ""
) -> NewEvent:
    """The event in a request's body, checked; or the problem that names the field."""
    where = f"{inside}/" if inside else ""
    strict.check_depth(body, 1, f"{where}payload")
    given = strict.decode(_envelopes, body, inside)
    raw = bytes(given.payload)
    tenant, external_id = given.tenant, given.external_id
    names = 2 + (tenant is not UNSET) + (external_id is not UNSET)
    texts = 1 + isinstance(tenant, str) + isinstance(external_id, str)
    strict.refuse_repeated_keys(body, raw, names, texts, inside)
    rules.check_event_type(given.event_type, f"{where}event_type")
    rules.check_size(raw, payload_max, f"{where}payload")
    if isinstance(tenant, str):
        rules.check_tenant(tenant, f"{where}tenant")
    else:
        tenant = None
    if not isinstance(external_id, str):
        external_id = idempotency_key
    elif idempotency_key is not None and idempotency_key != external_id:
        raise invalid("It differs from the header Idempotency-Key.", f"{where}external_id")
    if external_id is not None:
        rules.check_external_id(external_id, f"{where}external_id")
    text = strict.payload_text(raw, f"{where}payload")
    return NewEvent(given.event_type, text, key.tenant_for(tenant), external_id)


@routes(
    "POST",
    "/v1/events",
    Scope.INGEST,
    {202: Published, 200: Published},
    problems=(CONFLICT,),
    body=NewEventBody,
    idempotent=True,
    example=EVENT_EXAMPLE,
)
async def post_event(call: Call) -> Answer:
    """Store an event; it is durable when this answers."""
    raise AssertionError("it has its own path: take_event")


async def take_event(api: Api, scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """The thin path: one event, one answer."""
    head = Head(scope)
    try:
        asked = asyncio.get_running_loop().time()
        key = await api.checks.check(head.authorization, head.client)
        key.need(Scope.INGEST)
        left = api.answer_seconds - (asyncio.get_running_loop().time() - asked)
        largest = api.payload_max + ENVELOPE_MAX
        with api.room.for_body() as held:
            body = await held.read(receive, head.length, largest)
            event = read_event(body, key, head.idempotency_key(), api.payload_max)
            stored = await _store(api, event, left)
    except Exception as error:
        await refuse(send, error, head.request_id)
        return
    status = 200 if stored.duplicate else 202
    await answer(send, status, _encode(stored), head.request_id)


async def _store(api: Api, event: NewEvent, seconds: float) -> StoredEvent:
    ticket = api.ingest.submit(event)
    api.patience.end(ticket, seconds)
    return await ticket.stored


class Patience:
    """Ends waits that take too long: one timer for all of them, since each costs microseconds."""

    def __init__(self) -> None:
        self._waits: list[tuple[float, int, Ticket]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    def end(self, ticket: Ticket, seconds: float) -> None:
        """Let the ticket give up in `seconds`, unless it was answered."""
        loop = asyncio.get_running_loop()
        heappush(self._waits, (loop.time() + seconds, next(self._numbers), ticket))
        if self._timer is None:
            self._timer = loop.call_later(min(PATIENCE_SECONDS, seconds), self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._waits and (self._waits[0][0] <= now or self._waits[0][2].stored.done()):
            _, _, ticket = heappop(self._waits)
            if not ticket.stored.done():
                ticket.give_up()
        self._timer = None
        if self._waits:
            left = self._waits[0][0] - now
            self._timer = loop.call_later(min(PATIENCE_SECONDS, left), self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _encode(stored: StoredEvent) -> bytes:
    """As msgspec would, but with all six digits of the time also when they are zero."""
    duplicate = b"true" if stored.duplicate else b"false"
    return b'{"id":%d,"created_at":"%s","duplicate":%s}' % (
        stored.id,
        rfc3339(stored.created_at).encode(),
        duplicate,
    )


# ── Many ──────────────────────────────────────────────────────────────────────────────────────


@routes(
    "POST",
    "/v1/events/batch",
    Scope.INGEST,
    BatchAnswer,
    body=BatchBody,
    raw_body=True,
    body_max=None,
    example={"events": [EVENT_EXAMPLE]},
)
async def post_batch(call: Call) -> Answer:
    """Store up to 1,000 events; a result for each, in their order (their ids are in none)."""
    # All are checked before any is stored.
    events = read_batch(call.body, call.key, call.api.payload_max)
    api = call.api
    seconds = api.answer_seconds - BATCH_SPARE_SECONDS
    answers = await api.ingest.publish_all(events, lambda ticket: api.patience.end(ticket, seconds))
    return Answer(200, BatchAnswer([_result(answer, call.request_id) for answer in answers]))


def read_batch(body: bytes, key: Key, payload_max: int) -> list[NewEvent]:
    strict.check_depth(body, BATCH_LEVELS, "events")
    whole = strict.decode(_batches, body)
    listed = bytes(whole.events)
    strict.refuse_repeated_keys(body, listed, names=1, texts=0)
    items = strict.decode(_lists, listed, "events")
    if not 1 <= len(items) <= BATCH_EVENTS:
        raise invalid(f"Send 1 to {BATCH_EVENTS} events.", "events")
    return [
        read_event(bytes(item), key, None, payload_max, f"events/{number}")
        for number, item in enumerate(items)
    ]


def _result(answer: StoredEvent | KeyTaken | KeyHeld, request_id: str) -> BatchItem:
    if isinstance(answer, KeyTaken):
        return BatchItem(409, error=as_problem(answer, request_id).body(request_id))
    if isinstance(answer, KeyHeld):
        return BatchItem(503, error=as_problem(answer, request_id).body(request_id))
    return BatchItem(
        200 if answer.duplicate else 202, answer.id, Moment.of(answer.created_at), answer.duplicate
    )


# ── Reading ───────────────────────────────────────────────────────────────────────────────────


add_list(routes, Page[Event], EventsQuery, before=before_time)


@routes("GET", "/v1/events/{id}", Scope.READ, EventWithDeliveries, query=EventQuery)
async def get_event(call: Call) -> Answer:
    """One event with its payload and a page of its deliveries."""
    event = await call.api.observer.read_event(call.number, call.key.tenant)
    if event is None:
        raise not_found("event", call.number)
    query: EventQuery = call.query
    found = await call.api.observer.deliveries(
        before_id(query.cursor), query.limit, event_id=call.number
    )
    following = encoded_cursor(found.last)
    return Answer(200, msgspec.structs.replace(event, deliveries=found.items, next=following))
