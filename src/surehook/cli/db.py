"""`surehook db …`: the embedded PostgreSQL server, for people.

Reads   the configuration, what runs, the data directory
Writes  only through EmbeddedServer

Prints no secret: the URL names the file that holds the password.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import click

from surehook.cli import InOrder, Invocation
from surehook.cli.output import say_which, shown, waiting
from surehook.errors import Declined, EmbeddedServerError, UsageError

if TYPE_CHECKING:
    from surehook.embedded.server import EmbeddedServer
    from surehook.process.system import System

P = ParamSpec("P")


@click.group("db", cls=InOrder, help="The embedded PostgreSQL server, as its owner.")
def db() -> None:
    pass


def _with_server(
    *, makes: bool = False, must_exist: bool = True
) -> Callable[[Callable[Concatenate[EmbeddedServer, P], None]], Callable[..., None]]:
    """The options that every command has, turned into a server. `makes`: the command brings a
    database into being; else `must_exist` says whether there has to be one."""

    def decorate(command: Callable[Concatenate[EmbeddedServer, P], None]) -> Callable[..., None]:
        @click.option(
            "--data-dir",
            type=click.Path(path_type=Path),
            metavar="DIRECTORY",
            help="Where the data lies; else SUREHOOK_DATA_DIR, else the system that runs.",
        )
        @click.option(
            "--binaries",
            type=click.Path(path_type=Path),
            metavar="DIRECTORY",
            help="The PostgreSQL programs; else SUREHOOK_POSTGRES_BINARIES, else found here.",
        )
        @click.pass_obj
        @wraps(command)
        def prepared(
            invocation: Invocation,
            /,
            data_dir: Path | None,
            binaries: Path | None,
            *args: P.args,
            **kwargs: P.kwargs,
        ) -> None:
            from surehook.embedded.server import EmbeddedServer

            system, programs = _embedded(invocation, data_dir, binaries, makes, must_exist)
            say_which(system)
            server = EmbeddedServer(Path(system.database), binaries=programs)
            command(server, *args, **kwargs)

        return prepared

    return decorate


def _embedded(
    invocation: Invocation,
    data_dir: Path | None,
    binaries: Path | None,
    makes: bool,
    must_exist: bool,
) -> tuple[System, Path | None]:
    """The embedded database that is meant, and the programs to run it with."""
    from dataclasses import replace

    from surehook.process.system import chosen, created_by

    flags = {
        "database.data_dir": str(data_dir) if data_dir else None,
        "database.postgres_binaries": str(binaries) if binaries else None,
        "database.roles": False,  # the server itself needs no role secret
    }
    config = invocation.config(flags)
    if config.optional_path("database.data_dir") is not None:
        config = config.without("database.url")  # the directory is meant, whatever else is said
    find = created_by if makes else partial(chosen, must_exist=must_exist, embedded=True)
    system = find(config)
    if not system.embedded:
        raise UsageError(
            f"{system.source} names another database; `surehook db` is for the embedded one.",
            "Use a client of that database, or name the embedded one with --data-dir.",
        )
    if data_dir is not None:
        system = replace(system, source="--data-dir")
    return system, config.optional_path("database.postgres_binaries")


@db.command(help="Start the server; it stays when this command has returned.")
@click.option("--foreground", is_flag=True, help="Stay until SIGTERM or Ctrl-C, then stop it.")
@_with_server(makes=True)
def start(server: EmbeddedServer, foreground: bool) -> None:
    if foreground:
        _stay(server)
        return
    server.start_detached()
    click.echo(server.url)


@db.command(help="Stop a server that `db start` started.")
@_with_server(must_exist=False)
def stop(server: EmbeddedServer) -> None:
    click.echo("stopped" if server.stop_detached() else "no server was running")


@db.command(help="Print the URL of the running server; its password is in the file it names.")
@_with_server(must_exist=False)
def url(server: EmbeddedServer) -> None:
    if not server.attach():
        raise EmbeddedServerError(
            f"No server runs on {server.data_dir}.", "Start it: surehook db start"
        )
    click.echo(server.url)


@db.command(help="Say whether a server runs, and whose it is; exit code 1 if none does.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@_with_server(must_exist=False)
def status(server: EmbeddedServer, as_json: bool) -> None:
    running = server.attach()
    facts: dict[str, object] = {"data_dir": str(server.data_dir), "running": running}
    if running:
        facts |= {"version": server.version, "pid": server.pid, "url": server.url}
        facts |= {"holder": str(server.holder), "binaries": str(server.binaries)}
    if as_json:
        click.echo(json.dumps(facts))
    else:
        click.echo("\n".join(f"{name}: {shown(value)}" for name, value in facts.items()))
    if not running:
        sys.exit(Declined.exit_code)


@db.command(
    context_settings={"ignore_unknown_options": True},
    help="Run psql as the owner: surehook db psql -- -c 'SELECT 1'. Starts a server if none runs.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_with_server()
def psql(server: EmbeddedServer, arguments: tuple[str, ...]) -> None:
    if not server.attach():
        server.start()
    try:
        code = _run_psql(server, arguments)
    finally:
        server.stop()
    sys.exit(code)


@db.command(help="Move the data to the newest PostgreSQL at hand; the old data is kept beside.")
@_with_server()
def upgrade(server: EmbeddedServer) -> None:
    with waiting("upgrading"):
        old, new, kept = server.upgrade()
    if old == new:
        click.echo(f"nothing to do: {old} is the newest PostgreSQL here")
        return
    with server:
        # Older versions do not take the planner's statistics along.
        analyze = [str(server.binaries / "vacuumdb"), "--all", "--analyze-only", "--quiet"]
        analyze += ["--maintenance-db", server.url]
        subprocess.run(analyze, env=_client_environment(server), check=False)
    click.echo(f"upgraded from {old} to {new}; when content, remove {kept}")


def _client_environment(server: EmbeddedServer) -> dict[str, str]:
    """Without variables that would lead a client of PostgreSQL elsewhere."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return inherited | {"PGPASSFILE": str(server.passfile)}


def _run_psql(server: EmbeddedServer, arguments: tuple[str, ...]) -> int:
    # Ctrl-C is for psql: it ends the query, not the session and not this command.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        command = [str(server.binaries / "psql"), "-d", server.url, *arguments]
        return subprocess.run(command, env=_client_environment(server), check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


class _Told(BaseException):
    """SIGTERM or SIGINT came."""


def _stay(server: EmbeddedServer) -> None:
    def on_signal(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # once is enough: the stop must not be disturbed
        raise _Told

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    with contextlib.suppress(_Told), server:
        click.echo(server.url)
        while True:
            server.poll()
            time.sleep(1)
