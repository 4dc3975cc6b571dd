"""`surehook delivery …`: what became of each event at each subscription. Reads the API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from surehook.cli import InOrder
from surehook.cli.arguments import id_argument
from surehook.cli.connection import Api, through_api
from surehook.cli.declared import columns, list_command
from surehook.cli.output import as_json_option, facts, heading, table, write_json
from surehook.model.resources.delivery import DeliveriesQuery, Delivery

if TYPE_CHECKING:
    from surehook.client.results import Attempt, DeliveryWithAttempts

EXCERPT_SHOWN_MAX = 200


@click.group(cls=InOrder, help="Deliveries: what became of each event at each subscription.")
def delivery() -> None:
    pass


FILTERS_FIRST = ("status", "event_id", "subscription_id", "event_type", "tenant")
DELIVERY_COLUMNS = columns(
    Delivery,
    first=("id", "status", "event_id", "subscription_id", "attempt_count", "final_error_code"),
    next_attempt_at=lambda one: None if one.done else one.next_attempt_at,
)
list_command(
    delivery, "deliveries", DeliveriesQuery, DELIVERY_COLUMNS, "No delivery fits.", FILTERS_FIRST
)


@delivery.command(help="Show one delivery and each of its attempts.")
@id_argument("delivery_id")
@as_json_option
@through_api
def show(api: Api, delivery_id: int, as_json: bool) -> None:
    with api.client() as client:
        found = client.deliveries.get(delivery_id)
    if as_json:
        write_json(found)
        return
    facts(_facts(found))
    heading("Attempts")
    headings = ("no", "status", "began", "took ms", "answer", "error", "retry after", "worker")
    rows = [(number, *_row(one)) for number, one in enumerate(found.attempts, 1)]
    table(headings, rows, "none yet")
    explain(enumerate(found.attempts, 1))


def explain(attempts: Iterable[tuple[int, Attempt]]) -> None:
    """Of numbered attempts: what each was answered and what went wrong, and what to do about it."""
    texts: list[tuple[str, object]] = []
    codes: dict[str, None] = {}
    for number, one in attempts:
        texts += [(f"attempt {number} {word}", text) for word, text in _why(one)]
        if one.error_code:
            codes[one.error_code] = None
    if texts:
        heading("Why")
        facts(texts)
    advise(codes)


def _why(one: Attempt) -> list[tuple[str, str]]:
    """The endpoint's words and ours; of a failure that left neither, what is known."""
    texts = [("answered", one.response_excerpt), ("failed", one.failure_detail)]
    given = [(word, text[:EXCERPT_SHOWN_MAX]) for word, text in texts if text]
    if given or one.error_code is None:
        return given
    if one.response_status:
        return [("answered", f"{one.response_status}, without a body")]
    return [("failed", cause_of(one.error_code) or one.error_code)]


def advise(codes: Iterable[str]) -> None:
    """What to do about each of these errors, in the words of the one list."""
    advice = [(code, advice_on(code)) for code in codes if advice_on(code)]
    if advice:
        heading("What to do")
        facts(advice)


def advice_on(code: str | None) -> str:
    """Nothing for a code that only a newer API knows."""
    from surehook.model.error_codes import ErrorCode

    return next((known.advice for known in ErrorCode if known == code), "")


def cause_of(code: str) -> str:
    from surehook.model.error_codes import ErrorCode

    return next((known.cause for known in ErrorCode if known == code), "")


def _facts(found: DeliveryWithAttempts) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [
        ("id", found.id),
        ("status", found.status),
        ("event_id", found.event_id),
        ("subscription_id", found.subscription_id),
        ("attempt_count", found.attempt_count),
    ]
    optional = (
        ("last_error", found.final_error_code),
        ("dead_letter", _dead_letter(found)),
        ("requeued_from", found.requeued_from),
        ("next_attempt_at", None if found.done else found.next_attempt_at),
    )
    rows += [(name, value) for name, value in optional if value is not None]
    return [*rows, ("created_at", found.created_at), ("updated_at", found.updated_at)]


def _dead_letter(found: DeliveryWithAttempts) -> str | None:
    """The dead letter, with the command that gives it another life."""
    if found.dead_letter_id is None:
        return None
    return f"{found.dead_letter_id}: surehook dead-letter requeue {found.dead_letter_id}"


def _row(one: Attempt) -> tuple[object, ...]:
    took = None
    if one.started_at is not None and one.finished_at is not None:
        took = round((one.finished_at - one.started_at).total_seconds() * 1000)
    return (
        one.status,
        one.started_at or one.attempt_at,
        took,
        one.response_status,
        one.error_code,
        one.retry_after,
        one.worker_id,
    )
