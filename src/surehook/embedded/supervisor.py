"""The process that owns an embedded server: lock, initdb, start, watch, restart, stop.

It is a separate process, not a thread or a task of the program that wants the database, so
  * `postgres` stops cleanly even if that program is killed with SIGKILL,
  * a crashed `postgres` is started again even if that program's event loop is stuck,
  * it makes no difference which thread starts the server (PDEATHSIG follows the starting *thread*),
  * Ctrl-C in a terminal reaches neither of the two (they have their own session),
  * as root, nothing but creating the directory is done as root: the process then becomes the
    unprivileged account itself.

Called as `python -m surehook.embedded.supervisor JSON`; says on its standard output, in one line of
JSON, that the server is ready or why it cannot run. SIGTERM or SIGINT: clean stop.
Imports everything at the top: as another account it might not reach our own files any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType

from surehook.embedded import binaries as programs
from surehook.embedded import cluster, upgrade
from surehook.embedded.account import server_account
from surehook.embedded.directory import (
    DataDirectory,
    Holder,
    Running,
    in_use,
    now_text,
    write_durably,
    write_record,
)
from surehook.embedded.postmaster import Postmaster
from surehook.errors import EmbeddedServerError, SurehookError, UsageError

PREDECESSOR_SECONDS_MAX = 30.0
FAST_STOP_SECONDS_MAX = 60.0
# How late the death of the program that we work for is noticed.
PARENT_CHECK_SECONDS = 0.25
READY_CHECK_SECONDS = 0.01
BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
STABLE_SECONDS = 60.0
LOG_BYTES_MAX = 1_000_000


@dataclass(frozen=True)
class Order:
    """What the supervisor is asked to do; its one argument, as JSON. Holds no secret."""

    data_dir: str
    command: str
    parent: int | None  # None: detached, it outlives every program
    binaries: str | None = None
    tcp_port: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    upgrade: bool = False  # do this instead, and end


class Supervisor:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._data = DataDirectory(Path(order.data_dir))
        self._named = Path(order.binaries) if order.binaries else None
        self._stop_wanted = False
        self._lock: int | None = None
        self._holder: Holder | None = None
        self._wake, self._waker = os.pipe()
        self._postmaster: Postmaster | None = None
        self._binaries: programs.Binaries | None = None
        self._socket_directory = Path()

    def work(self) -> dict[str, object]:
        """Do what was ordered up to the point where the answer is known."""
        try:
            return self.upgrade() if self._order.upgrade else asdict(self.start())
        except OSError as error:  # a full disk, a read-only file system, a limit
            raise EmbeddedServerError(
                f"The embedded server on {self._data.path} cannot be started: {error}."
            ) from error

    # --- start -------------------------------------------------------------------------------

    def start(self) -> Running:
        """Everything up to a server that accepts connections."""
        self._enter()
        self._binaries = programs.choose(self._data.major, self._named)
        if self._data.major is None:
            durable = self._order.settings.get("fsync", "on") == "on"
            cluster.create_cluster(self._data, self._binaries, durable=durable)
        self._run_postmaster(self._binaries)
        return self._announce()

    def upgrade(self) -> dict[str, object]:
        """Move the cluster to the newest programs, or to those named; says from what to what."""
        self._enter()
        if self._data.major is None:
            raise UsageError(f"There is no database in {self._data.path} to upgrade.")
        old = programs.choose(self._data.major)
        new = programs.choose(None, self._named) if self._named else programs.newest()
        if new.major <= old.major:
            return {"old": old.version, "new": old.version, "kept": ""}
        upgrade.require_space(self._data)
        # pg_upgrade wants a cluster that was stopped cleanly: recover it from whatever happened.
        self._run_postmaster(old)
        self._stop_postmaster()
        kept = upgrade.upgrade(self._data, old, new, self._socket_directory)
        self._say(f"upgraded from {old.version} to {new.version}; the old data is in {kept}")
        return {"old": old.version, "new": new.version, "kept": str(kept)}

    def _enter(self) -> None:
        """From the first signal handler to the lock: the part that may begin as root."""
        self._listen_to_signals()
        account = server_account(self._data.path)
        self._data.prepare(account)
        if self._named is not None:
            self._named = programs.reachable(self._named, account)
        if self._named is None or self._order.upgrade:
            programs.publish_wheel(account, self._data.major, every=self._order.upgrade)
        account.become()
        os.umask(0o077)
        os.chdir("/")
        self._open_log()
        self._take_lock()
        upgrade.finish(self._data)
        cluster.discard_drafts(self._data)

    def _run_postmaster(self, binaries: programs.Binaries) -> None:
        self._data.require_secrets()
        self._socket_directory = self._data.socket_directory()
        self._postmaster = Postmaster(
            self._data,
            binaries,
            self._socket_directory,
            self._order.tcp_port,
            self._order.settings,
        )
        self._end_orphan()
        self._postmaster.configure()
        self._start_postmaster()

    def _listen_to_signals(self) -> None:
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGCHLD, _wake_only)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_wanted = True

    def _take_lock(self) -> None:
        """Take it, or say who has it; a holder that is on its way out is waited for."""
        deadline = time.monotonic() + PREDECESSOR_SECONDS_MAX
        while (descriptor := self._data.try_lock()) is None:
            holder = self._data.holder()
            going = holder is None or holder.stopping or not is_alive(holder.pid)
            if not going or time.monotonic() > deadline:
                raise in_use(self._data.path, holder)
            self._pause(READY_CHECK_SECONDS)
            self._give_up_if_unwanted()
        self._lock = descriptor
        detached = self._order.parent is None
        self._holder = Holder(
            pid=self._order.parent or os.getpid(),
            command=self._order.command,
            since=now_text(),
            supervisor=os.getpid(),
            detached=detached,
        )
        write_record(descriptor, self._holder)

    def _end_orphan(self) -> None:
        """A `postgres` that outlived its supervisor: ours is asked to stop, a stranger's is not."""
        assert self._postmaster is not None
        before = self._data.running()
        deadline = time.monotonic() + PREDECESSOR_SECONDS_MAX
        asked = False
        while (pid := self._postmaster.orphan()) is not None:
            ours = before is not None and before.postmaster == pid
            if ours and not asked:
                self._say(f"asking pid {pid}, which outlived its supervisor, to stop")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
                asked = True
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"A PostgreSQL that surehook did not start (pid {pid}) runs on"
                    f" {self._data.cluster}.",
                    f"Stop it: kill -INT {pid}",
                )
            self._pause(READY_CHECK_SECONDS)
            self._give_up_if_unwanted()

    def _start_postmaster(self) -> None:
        """Start it and wait until it is ready, however long the recovery after a crash takes."""
        assert self._postmaster is not None
        deadline = time.monotonic() + PREDECESSOR_SECONDS_MAX
        while True:
            self._postmaster.launch()
            while self._postmaster.exit_code() is None:
                if self._postmaster.is_ready():
                    return
                self._pause(READY_CHECK_SECONDS)
                self._give_up_if_unwanted()
            if not self._postmaster.may_pass() or time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"PostgreSQL does not start: {self._postmaster.complaint()}",
                    f"Its log is in {self._data.log}.",
                )
            self._say(f"trying again: {self._postmaster.complaint()}")
            self._pause(0.2)

    def _announce(self) -> Running:
        """Write down where the server is found, now and after each restart."""
        assert self._postmaster is not None and self._binaries is not None
        running = Running(
            supervisor=os.getpid(),
            postmaster=self._postmaster.pid,
            socket_directory=str(self._socket_directory),
            port=self._postmaster.port,
            binaries=str(self._binaries.directory),
            version=self._binaries.version,
        )
        write_durably(self._data.state_file, json.dumps(asdict(running)))
        self._say(f"PostgreSQL {running.version} is ready, pid {running.postmaster}")
        return running

    # --- watch -------------------------------------------------------------------------------

    def watch(self) -> None:
        """Until asked to stop: restart a `postgres` that ended, ever more slowly."""
        assert self._postmaster is not None
        failures = 0
        ready_at = time.monotonic()
        while not self._unwanted():
            self._pause(PARENT_CHECK_SECONDS)
            if (code := self._postmaster.exit_code()) is None or self._unwanted():
                continue
            if time.monotonic() - ready_at > STABLE_SECONDS:
                failures = 0
            self._say(f"PostgreSQL ended unexpectedly ({_exit_text(code)}); starting it again")
            self._wait_before_restart(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
            failures += 1
            with contextlib.suppress(EmbeddedServerError):  # said below; the next round tries again
                self._restart()
                ready_at = time.monotonic()

    def _restart(self) -> None:
        if self._unwanted():
            return
        try:
            self._start_postmaster()
        except EmbeddedServerError as error:
            self._say(str(error))
            raise
        self._announce()

    def _wait_before_restart(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._unwanted():
            self._pause(min(PARENT_CHECK_SECONDS, seconds))

    # --- stop --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Fast shutdown with a checkpoint; if that takes too long, without (recovery follows)."""
        if self._lock is not None and self._holder is not None:
            write_record(self._lock, replace(self._holder, stopping=True))
        self._stop_postmaster()
        if self._lock is not None:
            with contextlib.suppress(FileNotFoundError):
                self._data.state_file.unlink()
            self._say("stopped")
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def _stop_postmaster(self) -> None:
        if self._postmaster is None:
            return
        for number, patience in (
            (signal.SIGINT, FAST_STOP_SECONDS_MAX),
            (signal.SIGQUIT, 10.0),
            (signal.SIGKILL, 10.0),
        ):
            self._postmaster.signal(number)
            if self._ended_within(patience):
                return
            self._say(f"PostgreSQL did not end within {patience:g} s of {number.name}")

    def _ended_within(self, seconds: float) -> bool:
        assert self._postmaster is not None
        deadline = time.monotonic() + seconds
        while self._postmaster.exit_code() is None:
            if time.monotonic() > deadline:
                return False
            self._pause(PARENT_CHECK_SECONDS)
        return True

    # --- the surroundings --------------------------------------------------------------------

    def _unwanted(self) -> bool:
        parent = self._order.parent
        return self._stop_wanted or (parent is not None and os.getppid() != parent)

    def _give_up_if_unwanted(self) -> None:
        if self._unwanted():
            raise EmbeddedServerError("The start was broken off.")

    def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until the next signal (a child's end is one)."""
        readable, _, _ = select.select([self._wake], [], [], seconds)
        if readable:
            os.read(self._wake, 4096)

    def _open_log(self) -> None:
        path = self._data.log / "supervisor.log"
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > LOG_BYTES_MAX:
                path.rename(path.with_suffix(".log.1"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        os.dup2(descriptor, 2)
        os.close(descriptor)

    def _say(self, text: str) -> None:
        print(f"{now_text()} [{os.getpid()}] {text}", file=sys.stderr, flush=True)


def report(message: dict[str, object]) -> None:
    """Answer the waiting program, which may have gone."""
    with contextlib.suppress(BrokenPipeError, ValueError):
        print(json.dumps(message), flush=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def main() -> int:
    order = Order(**json.loads(sys.argv[1]))
    supervisor = Supervisor(order)
    try:
        try:
            answer = supervisor.work()
        except SurehookError as error:
            supervisor.stop()
            report({"error": error.message, "advice": error.advice, "kind": type(error).__name__})
            return error.exit_code
        if order.upgrade:
            supervisor.stop()
        report(answer)
        if not order.upgrade:
            supervisor.watch()
    finally:
        supervisor.stop()
    return 0


def _wake_only(_number: int, _frame: FrameType | None) -> None:
    """SIGCHLD must have a handler, or it would not wake the select."""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet reaped by its parent does not."""
    with contextlib.suppress(ChildProcessError):  # it is not ours
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _exit_text(code: int) -> str:
    return f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


if __name__ == "__main__":
    sys.exit(main())
