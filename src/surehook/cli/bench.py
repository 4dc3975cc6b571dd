"""`surehook bench`: measures this machine. Writes to its own databases, removed at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from surehook.cli.arguments import Finite
from surehook.cli.output import note, table, waiting
from surehook.errors import Declined, UsageError

if TYPE_CHECKING:
    from surehook.bench.cases import Case, Plan

COLUMNS = (
    *("case", "deliveries/s", "CPU us", "of them database", "p50 ms", "p99 ms"),
    *("half load p50", "p99", "normalised CPU"),
)


@click.command(
    help="Measure deliveries per second, CPU, latency, memory; prove that none is lost.\n\n"
    "Every case starts its own database, processes and receiver. Exit 1 if a delivery was lost, "
    "doubled or came out of nothing."
)
@click.option("--case", "names", multiple=True, metavar="NAME", help="Only this one; repeatable.")
@click.option("--all", "every", is_flag=True, help="Every case, also those that take minutes.")
@click.option("--list", "listed", is_flag=True, help="Name the cases and end.")
@click.option(
    "--events",
    "deliveries",
    default=20_000,
    type=click.IntRange(1, 10**8),
    show_default=True,
    help="Deliveries of each case.",
)
@click.option(
    "--seconds",
    default=5.0,
    type=Finite(0.1, 86400),
    show_default=True,
    help="Length of each measurement of latency, of ingest, and half of that of idleness.",
)
@click.option(
    "--within",
    "within_seconds",
    default=900.0,
    type=Finite(1, 86400),
    show_default=True,
    help="Seconds after which no further case begins.",
)
@click.option(
    "--old-rows",
    default=1_000_000,
    type=click.IntRange(1, 10**9),
    show_default=True,
    help="Finished deliveries in the case old-rows.",
)
@click.option(
    "--processes",
    default=2,
    type=click.IntRange(2, 64),
    show_default=True,
    help="N of the case `processes`.",
)
@click.option(
    "--concurrency",
    default=128,
    type=click.IntRange(1, 10_000),
    show_default=True,
    help="Requests that a worker has under way at once.",
)
@click.option(
    "--log-level",
    default="info",
    type=click.Choice(["debug", "info", "warning", "error"]),
    show_default=True,
    help="What the processes log, to a file.",
)
@click.option("--postgresql", metavar="URL", help="An empty database for the case postgresql.")
@click.option("--mariadb", metavar="URL", help="An empty database for the case mariadb.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def bench(
    names: tuple[str, ...],
    every: bool,
    listed: bool,
    as_json: bool,
    postgresql: str | None,
    mariadb: str | None,
    **amounts: object,
) -> None:
    from surehook.bench import run
    from surehook.bench.cases import CASES, Plan

    if listed:
        table(("case", "what"), [(case.name, case.what) for case in CASES.values()])
        return
    plan = Plan(postgresql_url=postgresql, mariadb_url=mariadb, **amounts)  # type: ignore[arg-type]
    with waiting("measuring the machine") as line:

        def report(text: str) -> None:
            line.echo(click.style(text, dim=True), err=True)

        figures = run(plan, _chosen(names, every, plan), report, line.now)
    if as_json:
        click.echo(json.dumps(figures))
    else:
        _show(figures)
    if not figures["valid"]:
        raise Declined(
            "The run is void: deliveries were lost, doubled or came out of nothing.",
            "`--json` says in which case (ledger).",
        )


def _chosen(names: Sequence[str], every: bool, plan: Plan) -> list[Case]:
    from surehook.bench.cases import CASES, On

    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise UsageError(f"There is no case {unknown[0]}.", f"Cases: {', '.join(CASES)}.")
    if names:
        return [case for case in CASES.values() if case.name in names]
    # What was not named cannot be missing.
    given = {On.POSTGRESQL: plan.postgresql_url is not None}
    return [
        case for case in CASES.values() if (every or case.by_default) and given.get(case.on, True)
    ]


def _show(figures: Mapping[str, object]) -> None:
    cases = figures["cases"]
    assert isinstance(cases, dict)
    rows = [_row(name, found) for name, found in cases.items() if "deliveries_per_s" in found]
    if rows:
        table(COLUMNS, rows)
    others = [row for name, found in cases.items() for row in _others(name, found)]
    if others:
        click.echo()
        table(("case", "figure", "value"), others)
    not_run = figures["not_run"]
    assert isinstance(not_run, dict)
    for name, why in not_run.items():
        note(f"not run: {name}: {why}")
    note(f"normalised: {figures['normalised_by']}. Compare two machines, or two days, by these.")


def _row(name: str, found: Mapping[str, dict[str, float]]) -> tuple[object, ...]:
    low = found.get("latency_low_load_ms", {})
    half = found.get("latency_half_load_ms", {})
    cpu = found["cpu_us_per_delivery"]
    return (
        name,
        found["deliveries_per_s"],
        cpu["all"],
        cpu.get("database"),
        *(low.get("p50"), low.get("p99"), half.get("p50"), half.get("p99")),
        found["normalised"]["cpu_per_delivery"],
    )


def _others(name: str, found: Mapping[str, object]) -> Iterator[tuple[object, ...]]:
    """What has no place in the table of deliveries: memory, ingest, idleness."""
    shown = ("memory_megabytes", "single_", "batch_", "cpu_percent", "queries_per_s")
    for figure, value in found.items():
        if not figure.startswith(shown):
            continue
        label = figure.replace("_", " ")
        if isinstance(value, dict):
            yield name, label, ", ".join(f"{key} {one}" for key, one in value.items())
        else:
            yield name, label, value
