"""`surehook installation`: which one this is. Reads and writes schema_settings, as the owner."""

from __future__ import annotations

import asyncio
import json
import sys

import click

from surehook.cli import Invocation
from surehook.cli.database import on_database
from surehook.config import Config
from surehook.errors import UsageError
from surehook.store import engine_of
from surehook.store.logins import DatabaseAccess, Login
from surehook.store.migrations import new_installation

MEANING = """\
From then on every webhook-id has another beginning, also those of deliveries that are retried,
requeued or not finished yet: a receiver that recognises repetitions by webhook-id takes such a
delivery for a new one, once. This is for a copy of a database that is to run beside its original,
before the copy's workers start; not for a database that was moved, or restored in its place.
"""


@click.group(help="Which installation this is: a part of every webhook-id.")
def installation() -> None:
    pass


@installation.command(help="Show the installation's id.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def show(invocation: Invocation, as_json: bool) -> None:
    with on_database(invocation, must_exist=True) as (config, access):
        found = asyncio.run(_run(config, access, None))
    if as_json:
        click.echo(json.dumps({"installation": found}))
    else:
        click.echo(f"{found}   webhook-ids: msg_{found}_<event>_<subscription>")


@installation.command(
    help="Give a copy of a database its own id, so that its webhook-ids differ from the original's."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def renew(invocation: Invocation, yes: bool, as_json: bool) -> None:
    with on_database(invocation, must_exist=True) as (config, access):
        before = asyncio.run(_run(config, access, None))
        if not yes:
            click.echo(MEANING, err=True)
            if not sys.stdin.isatty():
                raise UsageError(f"The installation is still {before}.", "Say --yes to renew it.")
            click.confirm(f"Replace {before}?", abort=True, err=True)
        after = asyncio.run(_run(config, access, new_installation()))
    if as_json:
        click.echo(json.dumps({"installation": after, "before": before}))
        return
    click.echo(f"The installation is {after} now; it was {before}.")
    click.echo("Processes that are running go on with the old one: restart them.")


async def _run(config: Config, access: DatabaseAccess, new: str | None) -> str:
    """What it is; or, given a new one, what it has become."""
    engine = engine_of(access.url)
    timeout = config.seconds("database.connect_timeout")
    async with engine.session(Login("migrate", access.url), timeout) as connection:
        state = await engine.read_state(connection)
        state.refuse_if_too_new()
        state.refuse_if_too_old()
        if new is not None:
            await engine.set_installation(connection, new)
            state = await engine.read_state(connection)
        return state.installation
