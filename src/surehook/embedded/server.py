"""EmbeddedServer: the handle of the PostgreSQL that surehook runs itself.

    with EmbeddedServer(default_data_dir()) as server:
        connect(server.url)

The work is done by a supervisor process (supervisor.py); this is its remote control. `start` and
`stop` block and may be called from any thread; an asyncio program calls them before and after its
loop. A crashed `postgres` is started again by the supervisor. Should the supervisor itself be
killed, `poll` starts a new one: call it every few seconds. Signals are the caller's: end the `with`
block, or call `stop`, when SIGTERM or SIGINT comes. If that never happens, because the program was
killed, the server stops cleanly.

Reads the data directory; writes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Self
from urllib.parse import quote

from surehook.embedded.directory import DATABASE, OWNER, DataDirectory, Holder, Running, answers
from surehook.embedded.postmaster import stop_orphan
from surehook.embedded.supervisor import FAST_STOP_SECONDS_MAX, Order, is_alive
from surehook.errors import EmbeddedServerError, SurehookError, UsageError

STOP_SECONDS_MAX = FAST_STOP_SECONDS_MAX + 30
RESPAWN_SECONDS = 1.0


class EmbeddedServer:
    """Our own PostgreSQL server on one data directory."""

    def __init__(
        self,
        data_dir: Path,
        *,
        binaries: Path | None = None,
        tcp_port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` overrides postgresql.conf; meant for tests, say {"fsync": "off"}."""
        self._data = DataDirectory(data_dir)
        self._order = Order(
            data_dir=str(self._data.path),
            command=_own_command(),
            parent=None,
            binaries=str(binaries.absolute()) if binaries else None,
            tcp_port=tcp_port,
            settings=dict(settings or {}),
        )
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._attached = False
        self._respawn_at = 0.0

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Return when the server accepts connections and the database exists."""
        if self._supervisor is not None:
            raise EmbeddedServerError(f"The server on {self._data.path} was started already.")
        self._order = replace(self._order, parent=os.getpid())
        self._supervisor = _spawn_and_wait(self._order)

    def start_detached(self) -> None:
        """Like start, but the server stays when this program ends. For programs that end soon."""
        process = _spawn_and_wait(replace(self._order, parent=None))
        process.returncode = 0  # not our child to wait for any more
        self._attached = True

    def stop_detached(self) -> bool:
        """Stop a server that was started detached, until nothing of it runs; False if none does."""
        holder = self.holder
        if holder is None:
            return False
        if not holder.detached:
            raise EmbeddedServerError(
                f"The server on {self._data.path} belongs to {holder}.", "Stop that program."
            )
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder.supervisor, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self._data.is_locked() or is_alive(holder.supervisor):
            if time.monotonic() > deadline:
                raise EmbeddedServerError(f"The server of {holder} does not stop.")
            time.sleep(0.02)
        self._attached = False
        return True

    def attach(self) -> bool:
        """True if somebody else's server on this directory can be used; `stop` leaves it alone."""
        self._attached = self._supervisor is None and self._is_served()
        return self._attached

    def poll(self) -> bool:
        """Whether the server is being looked after; cheap, never blocks, revives the supervisor."""
        if self._supervisor is None:
            return self._attached and self._data.is_locked()
        if self._supervisor.poll() is None:
            return True
        if time.monotonic() >= self._respawn_at:
            self._respawn_at = time.monotonic() + RESPAWN_SECONDS
            self._supervisor = spawn(self._order, silent=True)
        return False

    def stop(self) -> None:
        """Stop what `start` started, cleanly; safe to repeat."""
        self._attached = False
        if self._supervisor is None:
            return
        self._supervisor.terminate()
        try:
            self._supervisor.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        if self._supervisor.returncode != 0:
            stop_orphan(self._data, FAST_STOP_SECONDS_MAX)
        self._supervisor = None

    def upgrade(self) -> tuple[str, str, str]:
        """Move the data to the newest PostgreSQL at hand (or the binaries given), with no server
        running. Returns the old version, the new one, and where the old data is kept."""
        process = spawn(replace(self._order, parent=os.getpid(), upgrade=True))
        try:
            said = wait_until_ready(process)
        finally:
            process.terminate()
            process.wait()
        return str(said["old"]), str(said["new"]), str(said["kept"])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- what it is --------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """For libpq and asyncpg, as the owner. The password is in the file that it names."""
        server = self._running()
        host, passfile = quote(server.socket_directory), quote(str(self._data.passfile))
        return (
            f"postgresql://{OWNER}@/{DATABASE}?host={host}&port={server.port}&passfile={passfile}"
        )

    @property
    def data_dir(self) -> Path:
        return self._data.path

    @property
    def passfile(self) -> Path:
        return self._data.passfile

    @property
    def role_secret(self) -> str:
        """From which the passwords of the logins are derived."""
        return self._data.secret("role_secret")

    @property
    def encryption_key(self) -> str:
        """Base64 of the 32 bytes with which subscribers' secrets are encrypted."""
        return self._data.secret("encryption_key")

    @property
    def pid(self) -> int:
        """The postmaster's process id; another one after a crash."""
        return self._running().postmaster

    @property
    def supervisor_pid(self) -> int:
        return self._running().supervisor

    @property
    def version(self) -> str:
        return self._running().version

    @property
    def binaries(self) -> Path:
        """The folder of the programs that fit this server: psql, pg_dump, …"""
        return Path(self._running().binaries)

    @property
    def holder(self) -> Holder | None:
        """Who runs a server on this directory, if anybody does."""
        return self._data.holder() if self._data.is_locked() else None

    def _running(self) -> Running:
        server = self._data.running()
        if server is None or not (self._attached or self._supervisor):
            raise EmbeddedServerError(f"No server was started on {self._data.path}.")
        return server

    def _is_served(self) -> bool:
        server, holder = self._data.running(), self.holder
        if server is None or holder is None or server.supervisor != holder.supervisor:
            return False  # none, or one that is only just being started
        return answers(server)


def spawn(order: Order, *, silent: bool = False) -> subprocess.Popen[bytes]:
    """Start the supervisor, in its own session: a terminal's Ctrl-C does not reach it."""
    kept = {name: value for name, value in os.environ.items() if not _is_private(name)}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "surehook.embedded.supervisor", json.dumps(asdict(order))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if silent else subprocess.PIPE,
        stderr=subprocess.DEVNULL if silent else None,
        env=kept,
        start_new_session=True,
    )


def _spawn_and_wait(order: Order) -> subprocess.Popen[bytes]:
    process = spawn(order)
    try:
        wait_until_ready(process)
    except BaseException:  # Ctrl-C too: nothing is left behind
        process.terminate()
        process.wait()
        raise
    return process


def wait_until_ready(process: subprocess.Popen[bytes]) -> dict[str, object]:
    """Read the supervisor's one line and raise what it says went wrong."""
    assert process.stdout is not None
    with process.stdout as answer:
        line = answer.readline()
    if not line:
        raise EmbeddedServerError(
            f"The supervisor of the embedded server ended without a word (exit {process.wait()})."
        )
    said: dict[str, object] = json.loads(line)
    if "error" in said:
        process.wait()
        kind: type[SurehookError] = (
            UsageError if said["kind"] in ("UsageError", "ConfigError") else EmbeddedServerError
        )
        raise kind(str(said["error"]), str(said["advice"]))
    return said


def _own_command() -> str:
    """How a person knows this program: its name and its subcommand, no option or value."""
    name = Path(sys.argv[0]).name if sys.argv else ""
    words = ["python" if name in ("", "-c", "-m") else name]
    words += [word for word in sys.argv[1:3] if word.replace("-", "").isalnum()]
    return " ".join(words)


def _is_private(name: str) -> bool:
    return name.startswith(("SUREHOOK_", "PG")) or name.endswith("DATABASE_URL")
