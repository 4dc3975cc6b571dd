"""One run of `postgres` on a cluster: start it, wait until it is ready, stop it.

Reads PostgreSQL's postmaster.pid and logs; writes postgresql.conf and pg_hba.conf in the cluster
and log/start.log. The process is a direct child and is reaped here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from surehook.embedded import cluster, settings
from surehook.embedded.binaries import Binaries
from surehook.embedded.directory import PORT, DataDirectory, write_durably

# A dead server's last children may still hold its shared memory or its socket for a moment.
_PASSING = ("already exists", "still in use", "Is another postmaster", "could not bind")
_PR_SET_PDEATHSIG = 1
_HAS_PROC = Path("/proc/self/stat").exists()


class Postmaster:
    def __init__(
        self,
        data: DataDirectory,
        binaries: Binaries,
        socket_directory: Path,
        tcp_port: int | None,
        overrides: Mapping[str, str],
    ) -> None:
        self._data = data
        self._binaries = binaries
        self._socket_directory = socket_directory
        self._tcp_port = tcp_port
        self._overrides = overrides
        self._process: subprocess.Popen[bytes] | None = None
        self._before_exec = _deathsig_setter()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        """Without TCP it is only a part of the socket's file name."""
        return self._tcp_port or PORT

    def configure(self) -> None:
        lz4 = cluster.supports_lz4(self._binaries, self._data.cluster)
        chosen = settings.settings(self._data.cluster, self._overrides, lz4=lz4)
        write_durably(self._data.cluster / "postgresql.conf", settings.render(chosen))
        write_durably(self._data.cluster / "pg_hba.conf", settings.PG_HBA)

    def launch(self) -> None:
        """Start the process; it is not ready yet."""
        assert self._process is None or self._process.returncode is not None
        # What ALTER SYSTEM must not change: the way in, which clients know from us.
        way_in = {
            "unix_socket_directories": f'"{self._socket_directory}"',
            "listen_addresses": "localhost" if self._tcp_port else "",
            "port": str(self.port),
        }
        arguments = [part for key, value in way_in.items() for part in ("-c", f"{key}={value}")]
        with (self._data.log / "start.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._binaries.program("postgres"), "-D", self._data.cluster, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=cluster.clean_environment() | self._recycled_pid(),
                cwd="/",
                preexec_fn=self._before_exec,  # safe: this process has one thread
            )

    def is_ready(self) -> bool:
        """What pg_ctl asks too: the eighth line of the process's own pid file."""
        lines = _pid_file_lines(self._data)
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def exit_code(self) -> int | None:
        """None while it runs; reaps it otherwise."""
        return None if self._process is None else self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def complaint(self) -> str:
        """Why it ended, from what it wrote before and after its own log took over."""
        first = (self._data.log / "start.log").read_text(errors="replace")
        logs = sorted(self._data.log.glob("postgresql-*.log"), key=lambda one: one.stat().st_mtime)
        later = logs[-1].read_text(errors="replace")[-20_000:] if logs else ""
        useful = first if "FATAL" in first or "ERROR" in first or not later else later
        return cluster.last_complaint(useful) or "it gave no reason"

    def may_pass(self) -> bool:
        """Whether it failed only because its predecessor is not quite gone."""
        return any(sign in self.complaint() for sign in _PASSING)

    def orphan(self) -> int | None:
        """A live postmaster on this cluster that is not our child."""
        pid = _recorded_pid(self._data)
        if pid is None or (self._process is not None and pid == self._process.pid):
            return None
        return pid if is_postmaster_of(pid, self._data.cluster) else None

    def _recycled_pid(self) -> dict[str, str]:
        """After a reboot the recorded id may be some other program's, and `postgres` would refuse.

        pg_ctl names its own parent in this variable so that it is not taken for a postmaster; the
        check for shared memory still in use stays in force, unlike when the file is removed.
        """
        pid = _recorded_pid(self._data)
        if pid is None or is_postmaster_of(pid, self._data.cluster):
            return {}
        return {"PG_GRANDPARENT_PID": str(pid)}


def stop_orphan(data: DataDirectory, seconds: float) -> None:
    """Ask the server whose supervisor was killed to stop, and wait; it may be doing so already."""
    running = data.running()
    deadline = time.monotonic() + seconds
    asked = False
    while running and is_postmaster_of(running.postmaster, data.cluster):
        if not asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.postmaster, signal.SIGINT)
            asked = True
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _pid_file_lines(data: DataDirectory) -> list[str]:
    try:
        return (data.cluster / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []


def _recorded_pid(data: DataDirectory) -> int | None:
    lines = _pid_file_lines(data)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def is_postmaster_of(pid: int, directory: Path) -> bool:
    """A postmaster's working directory is its cluster."""
    if _HAS_PROC:
        try:
            return Path(f"/proc/{pid}/cwd").samefile(directory)
        except OSError:
            return False
    asked = ["ps", "-o", "command=", "-p", str(pid)]
    shown = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return "postgres" in shown and str(directory) in shown


def _deathsig_setter() -> Callable[[], None] | None:
    """On Linux the kernel signals `postgres` to shut down cleanly if this process is killed."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "prctl"):
        return None
    parent = os.getpid()

    def die_with_parent() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:  # it was killed before the line above
            os._exit(1)

    return die_with_parent
