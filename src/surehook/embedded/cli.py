"""`surehook db …`: the embedded PostgreSQL server, for people.

Reads   the environment (SUREHOOK_DATA_DIR, SUREHOOK_POSTGRES_BINARIES, whether there is a
        SUREHOOK_DATABASE_URL), the data directory
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
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import click

from surehook.embedded import default_data_dir
from surehook.errors import AnswerIsNo, EmbeddedServerError, SurehookError, UsageError

if TYPE_CHECKING:
    from surehook.embedded.server import EmbeddedServer

P = ParamSpec("P")


@click.group("db", help="The embedded PostgreSQL server, as its owner.")
def db() -> None:
    pass


def _with_server(
    command: Callable[Concatenate[EmbeddedServer, P], None],
) -> Callable[..., None]:
    """The options every command has, turned into a server; a user's mistake becomes one line."""

    @click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        envvar="SUREHOOK_DATA_DIR",
        help="Where the data lies.",
    )
    @click.option(
        "--binaries",
        type=click.Path(path_type=Path),
        envvar="SUREHOOK_POSTGRES_BINARIES",
        help="Folder of the PostgreSQL programs; found by itself if not given.",
    )
    @wraps(command)
    def prepared(
        data_dir: Path | None, binaries: Path | None, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        from surehook.embedded.server import EmbeddedServer

        try:
            server = EmbeddedServer(data_dir or default_data_dir(), binaries=binaries)
            command(server, *args, **kwargs)
        except SurehookError as error:
            click.echo(f"surehook: {error}", err=True)
            sys.exit(error.exit_code)

    return prepared


@db.command(help="Start the server; it stays when this command has returned.")
@click.option("--foreground", is_flag=True, help="Stay until SIGTERM or Ctrl-C, then stop it.")
@_with_server
def start(server: EmbeddedServer, foreground: bool) -> None:
    if foreground:
        _stay(server)
        return
    server.start_detached()
    click.echo(server.url)


@db.command(help="Stop a server that `db start` started.")
@_with_server
def stop(server: EmbeddedServer) -> None:
    click.echo("stopped" if server.stop_detached() else "no server was running")


@db.command(help="Print the URL of the running server; its password is in the file it names.")
@_with_server
def url(server: EmbeddedServer) -> None:
    if not server.attach():
        raise EmbeddedServerError(
            f"No server runs on {server.data_dir}.", "Start it: surehook db start"
        )
    click.echo(server.url)


@db.command(help="Say whether a server runs, and whose it is; exit code 1 if none does.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@_with_server
def status(server: EmbeddedServer, as_json: bool) -> None:
    running = server.attach()
    facts: dict[str, object] = {"data_dir": str(server.data_dir), "running": running}
    if running:
        facts |= {"version": server.version, "pid": server.pid, "url": server.url}
        facts |= {"holder": str(server.holder), "binaries": str(server.binaries)}
    if as_json:
        click.echo(json.dumps(facts))
    else:
        click.echo("\n".join(f"{name}: {value}" for name, value in facts.items()))
    if not running:
        sys.exit(AnswerIsNo.exit_code)


@db.command(
    context_settings={"ignore_unknown_options": True},
    help="Run psql as the owner: surehook db psql -- -c 'SELECT 1'. Starts a server if none runs.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_with_server
def psql(server: EmbeddedServer, arguments: tuple[str, ...]) -> None:
    _refuse_another_database()
    if not server.attach():
        server.start()
    try:
        code = _run_psql(server, arguments)
    finally:
        server.stop()
    sys.exit(code)


@db.command(help="Move the data to the newest PostgreSQL at hand; the old data is kept beside.")
@_with_server
def upgrade(server: EmbeddedServer) -> None:
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


def _refuse_another_database() -> None:
    """Who works on a database of their own does not mean the embedded one."""
    meant = click.get_current_context().params["data_dir"] is not None
    if os.environ.get("SUREHOOK_DATABASE_URL") and not meant:
        raise UsageError(
            "SUREHOOK_DATABASE_URL names another database; `surehook db` is for the embedded one.",
            "Use psql with your own URL, or name the embedded one's directory with --data-dir.",
        )


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


if __name__ == "__main__":
    db()
