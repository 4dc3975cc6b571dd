"""`surehook check`: the invariants on the live database. Reads as the observer; writes nothing."""

from __future__ import annotations

import json
from datetime import timedelta

import click

from surehook.cli import Invocation
from surehook.cli.database import as_login
from surehook.cli.output import waiting, wrapped
from surehook.config.parsers import duration
from surehook.errors import Declined, UsageError
from surehook.process import check as invariants
from surehook.store import store_of
from surehook.store.database import Database
from surehook.store.observer import ObserverStore


@click.command(help="Look for broken invariants on the live database; exit 1 if one is broken.")
@click.option("--since", metavar="DURATION", help="Only what is younger, such as 1h or 7d.")
@click.option(
    "--margin", metavar="DURATION", help="How long two tables may be apart (default: 60s)."
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def check(invocation: Invocation, since: str | None, margin: str | None, as_json: bool) -> None:
    age = None if since is None else _seconds("--since", since)
    apart = invariants.MARGIN_SECONDS if margin is None else _seconds("--margin", margin)
    # A question about everything may take longer than a pipeline's statement.
    verdicts = as_login(
        invocation,
        "observer",
        lambda database: _run(database, age, apart, as_json),
        {"database.statement_timeout": "15m"},
    )
    broken = [verdict for verdict in verdicts if verdict.broken]
    if as_json:
        click.echo(
            json.dumps({"ok": not broken, "invariants": [_as_dict(one) for one in verdicts]})
        )
    if broken:
        verb = "is" if len(broken) == 1 else "are"
        raise Declined(f"{len(broken)} of {len(verdicts)} invariants {verb} broken.")


def _seconds(option: str, given: str) -> float:
    try:
        return duration(0, 100 * 365 * 86400)(given)
    except ValueError as wrong:
        raise UsageError(f"{option} must be {wrong}.") from None


async def _run(
    database: Database, age: float | None, margin: float, as_json: bool
) -> list[invariants.Verdict]:
    store = store_of(ObserverStore, database)
    since = invariants.BEGINNING
    if age is not None:
        since = await store.now() - timedelta(seconds=age)
    rules = iter([rule for _, rule in invariants.INVARIANTS.values()])
    with waiting(f"looking for broken: {next(rules)}") as line:

        def report(verdict: invariants.Verdict) -> None:
            if not as_json:
                line.echo(_shown(verdict))
            line.now(f"looking for broken: {next(rules, 'nothing more')}")

        return await invariants.check(store, since=since, margin=margin, report=report)


def _shown(verdict: invariants.Verdict) -> str:
    word, colour = ("broken", "red") if verdict.broken else ("ok", "green")
    rule = wrapped(f"{verdict.rule} ({verdict.seconds:.2f} s)", 8)
    more = [*verdict.broken, *([verdict.note] if verdict.note else [])]
    below = [f"        {wrapped(line, 8)}" for line in more]
    return "\n".join([f"{click.style(f'{word:<6}', fg=colour)}  {rule}", *below])


def _as_dict(verdict: invariants.Verdict) -> dict[str, object]:
    return {
        "invariant": verdict.invariant,
        "rule": verdict.rule,
        "broken": list(verdict.broken),
        "seconds": round(verdict.seconds, 3),
        "note": verdict.note,
    }
