"""`surehook dead-letter …`: deliveries that were given up, and their second life.

Reads   dead letters        Writes  new deliveries; both by way of the API
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from surehook.cli import InOrder
from surehook.cli.arguments import id_argument, number
from surehook.cli.connection import Api, through_api
from surehook.cli.declared import columns, filter_options, list_command
from surehook.cli.delivery import explain
from surehook.cli.output import (
    as_json_option,
    done,
    facts,
    heading,
    note,
    payload,
    progress,
    table,
    waiting,
    write_json,
)
from surehook.errors import Declined, UsageError
from surehook.model.resources.dead_letter import DeadLetter, DeadLetterFilter, DeadLettersQuery
from surehook.model.wording import counted

if TYPE_CHECKING:
    from surehook.client import Client
    from surehook.client.errors import ClientError
    from surehook.client.results import Requeued, RequeuedMany

MANY_SECONDS = 70.0  # the API ends it after 60 s
MANY_MAX = 10_000
IDS_SHOWN = 20
FILTERS_FIRST = ("subscription_id", "event_type", "error_code", "tenant")


@click.group(
    "dead-letter", cls=InOrder, help="Dead letters: deliveries that were given up; requeue them."
)
def dead_letter() -> None:
    pass


list_command(
    dead_letter,
    "dead_letters",
    DeadLettersQuery,
    columns(DeadLetter, first=("id", "final_error_code", "event_id", "subscription_id")),
    "No dead letter fits.",
    FILTERS_FIRST,
)


@dead_letter.command(help="Show one dead letter and its payload.")
@id_argument("dead_letter_id")
@as_json_option
@through_api
def show(api: Api, dead_letter_id: int, as_json: bool) -> None:
    with api.client() as client:
        found = client.dead_letters.get(dead_letter_id)
        if as_json:
            write_json(found)
            return
        attempts = client.deliveries.get(found.delivery_id).attempts
    facts(
        [
            ("id", found.id),
            ("last_error", found.final_error_code),
            ("last_answer", attempts[-1].response_status if attempts else None),
            ("attempts", len(attempts)),
            ("event_id", found.event_id),
            ("subscription_id", found.subscription_id),
            ("delivery_id", found.delivery_id),
            ("failed_at", found.failed_at),
            ("requeued_as", found.requeued_as),
        ]
    )
    explain(list(enumerate(attempts, 1))[-1:])
    heading("Payload")
    payload(bytes(found.payload))


# ── Requeue ───────────────────────────────────────────────────────────────────────────────────

REQUEUE_HELP = """Deliver dead letters again: those with these IDs, or all that fit a filter.

Each becomes a new delivery beside the old one, once: repeating it changes nothing. By filter,
oldest first, those that were requeued before are left out, and you are asked unless --yes is given.
"""


@dead_letter.command(help=REQUEUE_HELP)
@click.argument("ids", type=number, metavar="[ID]...", nargs=-1)
@filter_options(DeadLetterFilter, first=FILTERS_FIRST)
@click.option("--all", "everything", is_flag=True, help="All, without a filter.")
@click.option(
    "--limit",
    type=click.IntRange(1, MANY_MAX),
    metavar="N",
    help="By filter: so many at most.  [default: 1000]",
)
@click.option("--dry-run", is_flag=True, help="By filter: only say which it would be.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json_option
@through_api
def requeue(
    api: Api,
    ids: tuple[int, ...],
    everything: bool,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    wanted = {name: value for name, value in filters.items() if value is not None}
    if ids:
        if wanted or everything or dry_run or limit:
            raise UsageError("IDs and a filter exclude each other.", "Give one of them.")
        _requeue_each(api, ids, as_json)
        return
    if not wanted and not everything:
        raise UsageError("Which dead letters?", "Name their IDs, give a filter, or --all.")
    if wanted and everything:
        raise UsageError("--all and a filter exclude each other.", "Give one of them.")
    if everything:
        wanted["all"] = True
    if limit is not None:
        wanted["limit"] = limit
    with api.client(MANY_SECONDS) as client:
        if dry_run or not yes:
            would = client.dead_letters.requeue_many(dry_run=True, **wanted)
            if dry_run:
                _show_many(would, as_json, "would be requeued")
                return
            _ask(would.count)
            if not would.count:
                _show_many(would, as_json, "requeued")
                return
        with waiting("requeueing"):
            answer = client.dead_letters.requeue_many(**wanted)
    _show_many(answer, as_json, "requeued")
    if answer.skipped:
        verb, whose = ("was", "its") if len(answer.skipped) == 1 else ("were", "their")
        raise Declined(
            f"{counted(len(answer.skipped), 'dead letter')} {verb} not requeued: {whose} "
            "subscription is not active and verified."
        )


def _ask(count: int) -> None:
    if not count:
        return
    if not sys.stdin.isatty():
        fit, them = ("fits", "it") if count == 1 else ("fit", "them")
        raise UsageError(f"{counted(count, 'dead letter')} {fit}.", f"Say --yes to requeue {them}.")
    click.confirm(f"Requeue {counted(count, 'dead letter')}?", abort=True, err=True)


def _show_many(answer: RequeuedMany, as_json: bool, word: str) -> None:
    if as_json:
        write_json(answer)
        return
    done(f"{counted(answer.count, 'dead letter')} {word}")
    if answer.deliveries:
        rows = [(pair.dead_letter_id, pair.delivery_id) for pair in answer.deliveries[:IDS_SHOWN]]
        table(("dead letter", "new delivery"), rows)
    elif answer.dead_letter_ids:
        table(("dead letter",), [(one,) for one in answer.dead_letter_ids[:IDS_SHOWN]])
    more = len(answer.dead_letter_ids) - IDS_SHOWN
    if more > 0:
        note(f"… and {more} more; --json shows them all.")


def _requeue_each(api: Api, ids: tuple[int, ...], as_json: bool) -> None:
    """One after the other; one that cannot be does not stop the others."""
    refused: list[tuple[int, ClientError]] = []
    answers: list[Requeued] = []
    with api.client() as client, progress("requeueing", len(ids)) as step:
        for number in dict.fromkeys(ids):
            answer = _requeue_one(client, number, refused)
            if answer is not None:
                answers.append(answer)
            step(1, f"{len(answers)} requeued")
    if as_json:
        for answer in answers:
            write_json(answer)
    elif answers:
        rows = [
            (
                one.dead_letter_id,
                one.delivery_id,
                "requeued" if one.created else "was requeued before",
            )
            for one in answers
        ]
        table(("dead letter", "new delivery", "result"), rows)
    for number, error in refused:
        click.echo(f"dead letter {number}: {error.message}", err=True)
    if refused:
        verb = "was" if len(refused) == 1 else "were"
        of = counted(len(ids), "dead letter")
        raise Declined(f"{len(refused)} of {of} {verb} not requeued.")


def _requeue_one(
    client: Client, number: int, refused: list[tuple[int, ClientError]]
) -> Requeued | None:
    from surehook.client.errors import Conflict, NotFound

    try:
        return client.dead_letters.requeue(number)
    except (Conflict, NotFound) as error:
        refused.append((number, error))
        return None
