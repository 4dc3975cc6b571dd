"""`surehook status`: which processes run, where, and what is missing.

Reads   as the observer: the registry of processes, which installation it is      Writes  nothing
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from surehook import __version__
from surehook.cli import Invocation, output
from surehook.cli.database import on_database
from surehook.config import Config, without_password
from surehook.errors import Declined
from surehook.model.records import RunningComponent
from surehook.pipeline.registry import alive
from surehook.process.components import COMPONENTS
from surehook.process.database import opened
from surehook.store import store_of
from surehook.store.logins import DatabaseAccess
from surehook.store.observer import ObserverStore


@click.command(help="Show which processes run, where, and what is missing; exit 1 if something is.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def status(invocation: Invocation, as_json: bool) -> None:
    with on_database(invocation) as (config, access):
        installation, known = asyncio.run(_read(config, access))
    running = {one.component for one in alive(known)}
    missing = [name for name in COMPONENTS if name not in running]
    if as_json:
        where = without_password(access.url)
        listed = [_as_dict(one, one in alive(known)) for one in known]
        shown = {
            "database": where,
            "installation": installation,
            "missing": missing,
            "components": listed,
        }
        click.echo(json.dumps(shown))
    else:
        output.note(f"installation: {installation}")
        _show(known, missing)
    if missing:
        sys.exit(Declined.exit_code)


async def _read(config: Config, access: DatabaseAccess) -> tuple[str, list[RunningComponent]]:
    async with opened(config, access, "observer") as database:
        return database.installation, await store_of(ObserverStore, database).processes()


def _show(known: Sequence[RunningComponent], missing: Sequence[str]) -> None:
    heard = alive(known)
    output.table(
        ["component", "state", "host", "pid", "version", "since", "last step", "address"],
        [
            [
                one.component,
                (one.trouble or "ok") if one in heard else f"silent for {one.silent_seconds:.0f} s",
                one.host,
                one.pid,
                one.version,
                one.since,
                one.step_at,
                one.address,
            ]
            for one in known
        ],
        "No process has been heard of.",
    )
    if missing:
        click.secho(f"Missing: {', '.join(missing)}.", fg="red")
    others = sorted({one.version for one in heard} - {__version__})
    if others:
        output.note(f"This program is {__version__}; also at work: {', '.join(others)}.")


def _as_dict(one: RunningComponent, is_alive: bool) -> dict[str, object]:
    shown = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in msgspec.structs.asdict(one).items()
    }
    return {**shown, "alive": is_alive}
