"""`surehook bench`: measures this machine. Writes to a database of its own, removed at the end."""

from __future__ import annotations

import json

import click


@click.command(help="Measure deliveries per second and CPU per delivery; prove that none is lost.")
@click.option("--events", default=20_000, show_default=True, help="Events of the main run.")
@click.option("--subscriptions", default=20, show_default=True, help="Endpoints they go to.")
@click.option("--seconds", default=10.0, show_default=True, help="Length of each latency run.")
@click.option("--old-rows", default=0, show_default=True, help="Again with so many old rows.")
@click.option("--batch", default=500, show_default=True, help="Sagas per statement.")
@click.option("--concurrency", default=128, show_default=True, help="Requests under way at once.")
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
    figures = run(plan, lambda line: click.secho(line, err=True, dim=True))
    if as_json:
        click.echo(json.dumps(figures))
        return
    for name, value in figures.items():
        click.echo(f"{name:<28}{_shown(value)}")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {one}" for name, one in value.items())
    return str(value)
