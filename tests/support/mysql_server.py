"""A private MySQL or MariaDB server, for one test run or one test.

Reads   the programs that support/mariadb.py or support/mysql.py finds
Writes  only below the directory that it is given; listens on a Unix socket there and nowhere else

    with MariadbServer(directory) as server:
        ... connect to server.url ...

Like the embedded PostgreSQL it is kept by a process of its own (this file, run as a program), in a
session of its own: it becomes an unprivileged account if we are root, and ends the server when the
pipe from its owner ends, which the kernel sees to however the owner ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import IO, ClassVar, Self
from urllib.parse import quote

from support import mariadb, mysql
from surehook.embedded.account import server_account

TESTS = Path(__file__).parent.parent
OWNER = "surehook"
PASSWORD = "sesame"
START_SECONDS_MAX = 600.0
STOP_SECONDS_MAX = 300.0
READY = "ready"
STOP = b"stop\n"
SETTINGS = (
    # Durability costs nothing in memory, so what doctor asks for stays; on a disk no fsync waits.
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-flush-method=nosync",
    "--innodb-buffer-pool-size=192M",
    "--innodb-use-native-aio=0",  # a container's limits on it are small
    "--max-connections=400",
    "--table-open-cache=4000",
    "--skip-networking",
    # A server as a stranger left it: what depends on its time zone comes out eight hours wrong.
    "--default-time-zone=+08:00",
)
PROGRAMS: dict[str, ModuleType] = {"mariadb": mariadb, "mysql": mysql}
PR_SET_PDEATHSIG = 1


def url_of(path: Path, database: str = "", user: str = OWNER, password: str = PASSWORD) -> str:
    """The URL of a database behind this socket."""
    query = f"unix_socket={quote(str(path), safe='/')}"
    return f"mysql://{user}:{quote(password, safe='')}@localhost/{database}?{query}"


# ── The owner's side ──────────────────────────────────────────────────────────────────────────


class PrivateServer:
    """A server on this directory; what is in it stays there for the next start."""

    kind: ClassVar[str]

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options  # of the server's, after ours
        self.socket = directory / "server.sock"
        self.url = url_of(self.socket, OWNER)
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def binaries(self) -> Path:
        found: Path = PROGRAMS[self.kind].directory()
        return found

    @property
    def version(self) -> str:
        daemon = PROGRAMS[self.kind].daemon()
        said = subprocess.run([*daemon, "--version"], capture_output=True, text=True, check=True)
        return said.stdout.split("Ver ", 1)[1].split("-", 1)[0]

    def start(self) -> None:
        assert self._keeper is None
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, self.kind, self.directory, *self.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            start_new_session=True,  # Ctrl-C is for the tests; the pipe tells of their end
        )
        assert self._keeper.stdout is not None
        said = self._keeper.stdout.readline().decode().strip()
        if said != READY:
            self.stop()
            raise RuntimeError(f"{self.kind} does not start: {said or 'its keeper ended'}")

    def stop(self) -> None:
        """Cleanly, so that another start finds everything."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        with contextlib.suppress(BrokenPipeError):
            keeper.communicate(STOP, timeout=STOP_SECONDS_MAX)
        keeper.wait(STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class MariadbServer(PrivateServer):
    kind = "mariadb"


class MysqlServer(PrivateServer):
    kind = "mysql"


OWN_SERVERS = {server.kind: server for server in (MariadbServer, MysqlServer)}


# ── The keeper ────────────────────────────────────────────────────────────────────────────────


def _die_with_the_keeper() -> None:
    """Between fork and exec, already as the server's account: a change of account undoes it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _enter(directory: Path) -> None:
    """Make the directory and become the account that it belongs to from now on."""
    account = server_account(directory)
    directory.mkdir(mode=0o755, exist_ok=True)
    if account.is_other:
        os.chown(directory, account.uid, account.gid)
    account.become()
    os.chdir(directory)


def _launch(
    programs: ModuleType, directory: Path, log: IO[bytes], options: list[str]
) -> subprocess.Popen[bytes]:
    first = directory / "owner.sql"  # one statement per line
    first.write_text(
        f"CREATE USER IF NOT EXISTS {OWNER}@localhost IDENTIFIED BY '{PASSWORD}';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO {OWNER}@localhost WITH GRANT OPTION;\n"
        f"CREATE DATABASE IF NOT EXISTS {OWNER};\n"
    )
    return subprocess.Popen(
        [
            *programs.daemon(),
            "--no-defaults",
            f"--datadir={directory / 'data'}",
            f"--socket={directory / 'server.sock'}",
            f"--pid-file={directory / 'server.pid'}",
            # A server that starts removes the temporary tables that it finds, others' too.
            f"--tmpdir={directory}",
            f"--init-file={first}",
            *SETTINGS,
            *programs.SETTINGS,
            *options,
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        preexec_fn=_die_with_the_keeper,  # this process has one thread
    )


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect(str(path))
        except OSError:
            return False
        return True


def _await_ready(server: subprocess.Popen[bytes], directory: Path) -> str:
    """READY, or why not."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while server.poll() is None and time.monotonic() < deadline:
        if _listens(directory / "server.sock"):
            return READY
        time.sleep(0.01)
    lines = (directory / "log").read_text(errors="replace").splitlines()
    return " | ".join(line for line in lines if "ERROR" in line) or "no answer in time"


def keep(kind: str, directory: Path, options: list[str]) -> None:
    """Start the server, say so, and end it when told to or when nobody is left to tell."""
    programs = PROGRAMS[kind]
    programs.directory()  # looked for as who started the tests
    _enter(directory)
    with (directory / "log").open("ab") as log:
        if not (directory / "data" / "mysql").exists():
            making = programs.initialization(directory / "data")
            subprocess.run(making, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        server = _launch(programs, directory, log, options)
    said = _await_ready(server, directory)
    print(said, flush=True)
    told = b""
    while said == READY and server.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], 0.25)
        if readable:
            told = os.read(sys.stdin.fileno(), len(STOP))
            break
    if told == STOP:
        server.terminate()
    else:  # its owner is gone, and with it whoever wanted the data
        server.kill()
    server.wait()


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
