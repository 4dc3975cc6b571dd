"""`surehook migrate`: the schema, the roles and their grants. Writes as the database's owner."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from surehook import __version__
from surehook.cli import Invocation
from surehook.cli.database import on_database
from surehook.cli.output import waiting
from surehook.config import Config
from surehook.errors import Declined
from surehook.model.wording import counted
from surehook.store import engine_of
from surehook.store.engine import Engine
from surehook.store.logins import DatabaseAccess, Login
from surehook.store.migrations import State


@click.command(help="Bring the database to this program's schema; safe to repeat, at any time.")
@click.option("--status", is_flag=True, help="Only say what is applied; exit 1 if any is missing.")
@click.option("--sql", is_flag=True, help="Only print what would be run.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def migrate(invocation: Invocation, status: bool, sql: bool, as_json: bool) -> None:
    if status and sql:
        raise click.UsageError("--status and --sql exclude each other.")
    with on_database(invocation, must_exist=status or sql) as (config, access):
        asyncio.run(_run(config, access, status, sql, as_json))


async def _run(
    config: Config, access: DatabaseAccess, status: bool, sql: bool, as_json: bool
) -> None:
    timeout = config.seconds("database.connect_timeout")
    engine = engine_of(access.url)
    async with engine.session(Login("migrate", access.url), timeout) as connection:
        if status:
            _show(await engine.read_state(connection), as_json)
        elif sql:
            _print_sql(config, engine, await engine.read_state(connection))
        else:
            await _apply(config, access, engine, connection, as_json)


async def _apply(
    config: Config, access: DatabaseAccess, engine: Engine, connection: Any, as_json: bool
) -> None:
    done: list[str] = []

    with_roles = config.flag("database.roles")
    with waiting("migrating") as progress:

        def report(line: str) -> None:
            done.append(line)
            if not as_json:
                progress.echo(line)

        await engine.migrate(
            connection,
            buckets=config.optional_number("database.buckets"),
            role_secret=access.role_secret if with_roles else None,
            grants=with_roles,
            report=report,
        )
    if as_json:
        click.echo(json.dumps({"done": done}))
    elif not done:
        click.echo("The database is up to date.")


def _show(state: State, as_json: bool) -> None:
    """Applied and missing migrations; a missing one makes the answer no."""
    state.refuse_if_too_new()
    state.refuse_if_changed()
    applied = [(one.version, one.name) for one in state.applied.values()]
    pending = [(one.version, one.name) for one in state.pending]
    if as_json:
        shown = {
            name: [{"version": version, "name": title} for version, title in rows]
            for name, rows in (("applied", applied), ("pending", pending))
        }
        known = {"buckets": state.buckets, "installation": state.settings.get("installation")}
        click.echo(json.dumps({"program": __version__, **known, **shown}))
    else:
        for word, rows in (("applied", applied), ("missing", pending)):
            for version, title in rows:
                click.echo(f"{word} {version:04} {title}")
    if pending:
        verb = "is" if len(pending) == 1 else "are"
        missing = f"{counted(len(pending), 'migration')} {verb} missing."
        raise Declined(missing, "Run `surehook migrate`.")


def _print_sql(config: Config, engine: Engine, state: State) -> None:
    state.refuse_if_too_new()
    state.refuse_if_changed()
    buckets = state.buckets or config.optional_number("database.buckets") or 1
    click.echo(engine.as_sql(state, buckets, config.flag("database.roles")))
