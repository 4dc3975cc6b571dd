"""Dead letters: deliveries that were given up, and their second life.

Components  deadletters, observer
Reads   dead_letters, sagas, subscriptions      Writes  INSERT sagas, by way of Requeue
"""

from __future__ import annotations

from msgspec.structs import replace

from surehook.actions.keys import Scope
from surehook.api.pages import add_list
from surehook.api.problems import CONFLICT, Problem, invalid, not_found
from surehook.api.routes import Answer, Call, Routes
from surehook.model import records
from surehook.model.resources.dead_letter import (
    DeadLetter,
    DeadLettersQuery,
    RequeueBody,
    Requeued,
    RequeuedMany,
)
from surehook.model.resources.shared import Page
from surehook.store.deadletters import FILTERS

MANY_SECONDS = 60.0


routes = Routes("dead letters")
add_list(routes, Page[DeadLetter], DeadLettersQuery)


@routes("GET", "/v1/dead-letters/{id}", Scope.READ, DeadLetter, client="dead_letters.get")
async def get_dead_letter(call: Call) -> Answer:
    """One dead letter with its payload."""
    found = await call.api.observer.read_dead_letter(call.number, call.key.tenant)
    if found is None:
        raise not_found("dead letter", call.number)
    return Answer(200, found)


@routes(
    "POST",
    "/v1/dead-letters/{id}/requeue",
    Scope.OPERATOR,
    {201: Requeued, 200: Requeued},
    problems=(CONFLICT,),
    client="dead_letters.requeue",
)
async def requeue_one(call: Call) -> Answer:
    """Deliver a dead letter anew; 200 = that was done before."""
    if await call.api.observer.read_dead_letter(call.number, call.key.tenant) is None:
        raise not_found("dead letter", call.number)
    (answer,) = await call.api.requeue.by_id([call.number])
    if answer.saga_id is None:
        raise Problem(CONFLICT, "Its subscription is not active and verified.")
    status = 201 if answer.created else 200
    return Answer(
        status,
        Requeued(dead_letter_id=call.number, delivery_id=answer.saga_id, created=answer.created),
    )


@routes(
    "POST",
    "/v1/dead-letters/requeue",
    Scope.OPERATOR,
    RequeuedMany,
    body=RequeueBody,
    seconds=MANY_SECONDS,
    example={"subscription_id": 7, "dry_run": True},
    client="dead_letters.requeue_many",
)
async def requeue_many(call: Call) -> Answer:
    """Deliver many dead letters anew, oldest first: by filter, or all."""
    body: RequeueBody = call.body
    wanted = body
    if call.key.tenant is not None:
        wanted = replace(body, tenant=call.key.tenant_for(body.tenant))
    _refuse_unclear(body)
    found = await call.api.requeue.matching(wanted, body.limit, body.dry_run)
    answers = [item for item in found if isinstance(item, records.Requeued)]
    begun = [
        Requeued(dead_letter_id=item.dead_letter_id, delivery_id=item.saga_id)
        for item in answers
        if item.saga_id is not None
    ]
    ids = [item.dead_letter_id if isinstance(item, records.Requeued) else item for item in found]
    return Answer(
        200,
        RequeuedMany(
            count=len(ids) if body.dry_run else len(begun),
            dead_letter_ids=ids,
            deliveries=begun,
            skipped=[item.dead_letter_id for item in answers if item.saga_id is None],
        ),
    )


def _refuse_unclear(body: RequeueBody) -> None:
    """A request that names nothing is a mistake, not a wish to send everything again."""
    filters = ", ".join(FILTERS)
    filtered = any(getattr(body, name) is not None for name in FILTERS)
    if body.all and filtered:
        raise invalid(f"all is for a requeue without a filter ({filters}).", "all")
    if not body.all and not filtered:
        raise invalid(f'Say which: at least one of {filters}, or "all": true.', "body")
