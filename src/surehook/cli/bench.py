"""`surehook bench`: measures this machine. Writes to its own database, removed at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import click

from surehook.cli.arguments import Finite
from surehook.cli.output import table, waiting

AGAIN = "_with_old_rows"


@click.command(help="Measure deliveries per second and CPU per delivery; prove that none is lost.")
@click.option(
    "--events",
    default=20_000,
    type=click.IntRange(1, 10**8),
    show_default=True,
    help="Events of the main run.",
)
@click.option(
    "--subscriptions",
    default=20,
    type=click.IntRange(1, 10**5),
    show_default=True,
    help="Endpoints they go to.",
)
@click.option(
    "--seconds",
    default=10.0,
    type=Finite(0.1, 86400),
    show_default=True,
    help="Length of each latency run.",
)
@click.option(
    "--old-rows",
    default=0,
    type=click.IntRange(0, 10**9),
    show_default=True,
    help="Again with so many old rows.",
)
@click.option(
    "--batch",
    default=500,
    type=click.IntRange(1, 5000),
    show_default=True,
    help="Sagas per statement.",
)
@click.option(
    "--concurrency",
    default=128,
    type=click.IntRange(1, 10_000),
    show_default=True,
    help="Requests under way at once.",
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def bench(
    events: int,
    subscriptions: int,
    seconds: float,
    old_rows: int,
    batch: int,
    concurrency: int,
    as_json: bool,
) -> None:
    from surehook.bench import Plan, run

    plan = Plan(
        events=events,
        subscriptions=subscriptions,
        latency_seconds=seconds,
        old_rows=old_rows,
        batch=batch,
        concurrency=concurrency,
    )
    with waiting("measuring the machine") as line:

        def report(text: str) -> None:
            line.echo(click.style(text, dim=True), err=True)

        figures = run(plan, report, line.now)
    if as_json:
        click.echo(json.dumps(figures))
        return
    rows = list(_rows(figures))
    again = any(row[2] is not None for row in rows)
    columns = ("figure", "value", AGAIN.replace("_", " ").strip())
    width = 3 if again else 2
    table(columns[:width], [row[:width] for row in rows])


def _rows(figures: Mapping[str, object]) -> Iterator[tuple[str, object, object]]:
    """(figure, value, value with old rows); what belongs together stands together."""
    for name, value in figures.items():
        if name.endswith(AGAIN):
            continue
        later = figures.get(f"{name}{AGAIN}")
        label = name.replace("_", " ")
        if not isinstance(value, dict):
            yield label, value, later
            continue
        for part, one in value.items():
            of = later.get(part) if isinstance(later, dict) else None
            yield f"{label}: {part.replace('_', ' ')}", one, of
