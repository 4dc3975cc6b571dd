"""Dead letters: deliveries that were given up, and their second life.

Components  deadletters, observer
Reads   dead_letters, sagas, subscriptions      Writes  INSERT sagas, by way of Requeue
"""

from __future__ import annotations

from msgspec import Raw

from surehook.actions.keys import Scope
from surehook.api.pages import before_id, page_of, shaped
from surehook.api.problems import CONFLICT, NOT_FOUND, Problem, invalid, not_found
from surehook.api.routes import Answer, Call, Route
from surehook.api.shapes import (
    DeadLetter,
    DeadLettersQuery,
    DeadLetterWithPayload,
    Page,
    RequeueAnswer,
    RequeueBody,
    RequeuedOne,
    RequeuedPair,
    extended,
)
from surehook.model.records import Requeued
from surehook.store.deadletters import Filter
from surehook.store.observer import Found

MANY_SECONDS = 60.0
FILTERS = (
    "tenant",
    "subscription_id",
    "event_type",
    "error_code",
    "failed_from",
    "failed_until",
)


async def list_dead_letters(call: Call) -> Answer:
    query: DeadLettersQuery = call.query
    before = before_id(query.cursor)

    async def fetch(tenant: str | None) -> Found:
        return await call.api.observer.dead_letters(
            before,
            query.limit,
            tenant=tenant,
            subscription_id=query.subscription_id,
            event_type=query.event_type,
            error_code=query.error_code,
            failed_from=query.failed_from,
            failed_until=query.failed_until,
            requeued=query.requeued,
        )

    return Answer(200, await page_of(call.key, query.tenant, fetch, DeadLetter))


async def get_dead_letter(call: Call) -> Answer:
    row = await call.api.observer.dead_letter(call.number, call.key.tenant)
    if row is None:
        raise not_found("dead letter", call.number)
    letter = shaped(DeadLetter, row[:7])
    payload = Raw(row[7].encode())
    return Answer(200, extended(DeadLetterWithPayload, letter, payload=payload))


async def requeue_one(call: Call) -> Answer:
    if await call.api.observer.dead_letter(call.number, call.key.tenant) is None:
        raise not_found("dead letter", call.number)
    (answer,) = await call.api.requeue.by_id([call.number])
    if answer.saga_id is None:
        raise Problem(
            CONFLICT,
            "Its subscription is not active and verified.",
        )
    status = 201 if answer.created else 200
    return Answer(status, RequeuedOne(call.number, answer.saga_id, answer.created))


async def requeue_many(call: Call) -> Answer:
    body: RequeueBody = call.body
    tenant = body.tenant
    if call.key.tenant is not None:
        tenant = call.key.tenant_for(tenant)
    wanted = Filter(
        tenant,
        body.subscription_id,
        body.event_type,
        body.error_code,
        body.failed_from,
        body.failed_until,
    )
    _refuse_unclear(body)
    found = await call.api.requeue.matching(wanted, body.limit, body.dry_run)
    ids = [item.dead_letter_id if isinstance(item, Requeued) else item for item in found]
    answers = [item for item in found if isinstance(item, Requeued)]
    sagas = [
        RequeuedPair(item.dead_letter_id, item.saga_id)
        for item in answers
        if item.saga_id is not None
    ]
    skipped: list[int] = [item.dead_letter_id for item in answers if item.saga_id is None]
    count = len(ids) if body.dry_run else len(sagas)
    return Answer(200, RequeueAnswer(count, ids, sagas, skipped))


def _refuse_unclear(body: RequeueBody) -> None:
    """A request that names nothing is a mistake, not a wish to send everything again."""
    filters = ", ".join(FILTERS)
    filtered = any(getattr(body, name) is not None for name in FILTERS)
    if body.all and filtered:
        raise invalid(f"all is for a requeue without a filter ({filters}).", "all")
    if not body.all and not filtered:
        raise invalid(f'Say which: at least one of {filters}, or "all": true.', "body")


ROUTES = (
    Route(
        "GET",
        "/v1/dead-letters",
        list_dead_letters,
        Scope.READ,
        "List dead letters, newest first",
        {200: Page[DeadLetter]},
        "dead letters",
        query=DeadLettersQuery,
        client="dead_letters.list",
    ),
    Route(
        "GET",
        "/v1/dead-letters/{id}",
        get_dead_letter,
        Scope.READ,
        "One dead letter with its payload",
        {200: DeadLetterWithPayload},
        "dead letters",
        (NOT_FOUND,),
        client="dead_letters.get",
    ),
    Route(
        "POST",
        "/v1/dead-letters/{id}/requeue",
        requeue_one,
        Scope.OPERATOR,
        "Deliver a dead letter anew; 200 = that was done before",
        {201: RequeuedOne, 200: RequeuedOne},
        "dead letters",
        (NOT_FOUND, CONFLICT),
        client="dead_letters.requeue",
    ),
    Route(
        "POST",
        "/v1/dead-letters/requeue",
        requeue_many,
        Scope.OPERATOR,
        "Deliver many dead letters anew, oldest first: by filter, or all",
        {200: RequeueAnswer},
        "dead letters",
        body=RequeueBody,
        seconds=MANY_SECONDS,
        example={"subscription_id": 7, "dry_run": True},
        client="dead_letters.requeue_many",
    ),
)
