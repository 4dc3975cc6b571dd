"""`surehook serve` and `surehook run`: components at work until SIGTERM or SIGINT.

Reads   the configuration       Writes  the schema of an embedded database; else what they do
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from surehook import observe
from surehook.cli import Invocation
from surehook.config import Config, without_password
from surehook.errors import UsageError
from surehook.observe import log
from surehook.process.components import COMPONENTS
from surehook.process.database import open_access
from surehook.process.doctor import refuse_if_unsafe
from surehook.process.group import useful_processes
from surehook.process.running import Note, noted
from surehook.process.serve import event_loop
from surehook.process.serve import serve as serve_components
from surehook.process.system import System, created_by
from surehook.store import engine_of
from surehook.store.logins import DatabaseAccess, Login, login


def _names(given: str | None) -> Sequence[str]:
    if given is None:
        return list(COMPONENTS)
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in COMPONENTS:
            raise UsageError(
                f"There is no component {name}.", f"Components: {', '.join(COMPONENTS)}."
            )
    if not names:
        raise UsageError("--components names none.", f"Components: {', '.join(COMPONENTS)}.")
    return list(dict.fromkeys(names))


processes_option = click.option(
    "--processes",
    type=int,
    metavar="N",
    help="Share the work among N processes.  [default: one for every two cores, 4 at most]",
)


@click.command(help="Run all components, or only some, until it is told to end.")
@click.option(
    "--components",
    metavar="A,B,…",
    help=f"Only these of {', '.join(COMPONENTS)}.  [default: all]",
)
@processes_option
@click.pass_obj
def serve(invocation: Invocation, components: str | None, processes: int | None) -> None:
    names = _names(components)
    config = invocation.config({"serve.processes": processes})
    wanted = config.optional_number("serve.processes") or useful_processes()
    run_components(config, names, "surehook serve", wanted)


RUN_HELP = """Run one component alone, until it is told to end.

\b
NAME is one of
""" + "\n".join(f"  {component.name:<13} {component.does}" for component in COMPONENTS.values())


@click.command(help=RUN_HELP)
@click.argument("name", metavar="NAME")
@click.pass_obj
def run(invocation: Invocation, name: str) -> None:
    names = _names(name)
    run_components(invocation.config(), names, f"surehook run {name}")


def run_components(config: Config, names: Sequence[str], command: str, processes: int = 1) -> None:
    """Until SIGTERM or SIGINT; an embedded database is migrated first."""
    log.start(config.text("log.level"), config.text("log.format"))
    system = created_by(config)
    with (
        open_access(config) as access,
        noted(command, system.database, embedded=system.embedded) as note,
        event_loop() as runner,
    ):
        runner.run(_serve(config, access, names, processes, system, note))


async def _serve(
    config: Config,
    access: DatabaseAccess,
    names: Sequence[str],
    processes: int,
    system: System,
    note: Note,
) -> None:
    await make_ready(config, access, names[0])
    where = without_password(access.url)
    observe.emit(
        "process.started", components=list(names), database=where, database_from=system.source
    )
    await serve_components(config, access, names, note.serves, processes)


async def make_ready(config: Config, access: DatabaseAccess, component: str) -> None:
    """Refuse a server that forgets acknowledged writes; bring our own database up to date, which
    needs no permission."""
    timeout = config.seconds("database.connect_timeout")
    # Someone else's database may give us no login but the components' own.
    who = (
        Login("serve", access.url)
        if config.embedded
        else login(config, access, COMPONENTS[component].login)
    )
    engine = engine_of(who.url)
    async with engine.session(who, timeout) as connection:
        await refuse_if_unsafe(config, who.url, connection)
        if config.embedded:
            await engine.migrate(
                connection,
                buckets=config.optional_number("database.buckets"),
                role_secret=access.role_secret if config.flag("database.roles") else None,
                grants=config.flag("database.roles"),
            )
        observe.identify((await engine.read_state(connection)).installation)
