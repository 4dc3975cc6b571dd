"""A private MariaDB server, for one test run or one test.

Reads   the programs of Debian's mariadb-server-core, wherever they are in the path
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
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import IO, Self
from urllib.parse import quote

from surehook.embedded.account import server_account

OWNER = "surehook"
PASSWORD = "sesame"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
READY = "ready"
STOP = b"stop\n"
# Where Debian and others keep daemons that are not in an ordinary user's path.
PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/mysql/bin")
SETTINGS = (
    # Durability costs nothing in memory, so what doctor asks for stays; on a disk no fsync waits.
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-flush-method=nosync",
    "--innodb-buffer-pool-size=192M",
    "--innodb-log-file-size=64M",
    "--innodb-use-native-aio=0",  # a container's limits on it are small
    "--max-connections=400",
    "--table-open-cache=4000",
    "--skip-networking",
    # A server as a stranger left it: what depends on its time zone comes out eight hours wrong.
    "--default-time-zone=+08:00",
)
PR_SET_PDEATHSIG = 1


@cache
def program(name: str) -> Path | None:
    """A program of MariaDB's, if this machine has it."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *PLACES])
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def is_installed() -> bool:
    return all(program(name) for name in ("mariadbd", "mariadb-install-db"))


def url_of(path: Path, database: str = "", user: str = OWNER, password: str = PASSWORD) -> str:
    """The URL of a database behind this socket."""
    query = f"unix_socket={quote(str(path), safe='/')}"
    return f"mysql://{user}:{quote(password, safe='')}@localhost/{database}?{query}"


# ── The owner's side ──────────────────────────────────────────────────────────────────────────


class MariadbServer:
    """A server on this directory; what is in it stays there for the next start."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options  # of the server's, after ours
        self.socket = directory / "mariadb.sock"
        self.url = url_of(self.socket, OWNER)
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def binaries(self) -> Path:
        daemon = program("mariadbd")
        assert daemon is not None, "this machine has no MariaDB"
        return daemon.parent

    @property
    def version(self) -> str:
        said = subprocess.run(
            [self.binaries / "mariadbd", "--version"], capture_output=True, text=True, check=True
        )
        return said.stdout.split("Ver ", 1)[1].split("-", 1)[0]

    def start(self) -> None:
        assert self._keeper is None
        self._keeper = subprocess.Popen(
            [sys.executable, __file__, self.directory, *self.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the tests; the pipe tells of their end
        )
        assert self._keeper.stdout is not None
        said = self._keeper.stdout.readline().decode().strip()
        if said != READY:
            self.stop()
            raise RuntimeError(f"MariaDB does not start: {said or 'its keeper ended'}")

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


def _create(directory: Path, log: IO[bytes]) -> None:
    data = directory / "data"
    if (data / "mysql").exists():
        return
    installer = program("mariadb-install-db")
    assert installer is not None
    subprocess.run(
        [
            installer,
            "--no-defaults",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            "--innodb-flush-method=nosync",
            "--innodb-use-native-aio=0",
        ],
        check=True,
        stdout=log,
        stderr=log,
    )


def _launch(directory: Path, log: IO[bytes], options: list[str]) -> subprocess.Popen[bytes]:
    daemon = program("mariadbd")
    assert daemon is not None
    first = directory / "owner.sql"  # one statement per line
    first.write_text(
        f"CREATE USER IF NOT EXISTS {OWNER}@localhost IDENTIFIED BY '{PASSWORD}';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO {OWNER}@localhost WITH GRANT OPTION;\n"
        f"CREATE DATABASE IF NOT EXISTS {OWNER};\n"
    )
    return subprocess.Popen(
        [
            daemon,
            "--no-defaults",
            f"--datadir={directory / 'data'}",
            f"--socket={directory / 'mariadb.sock'}",
            f"--pid-file={directory / 'mariadb.pid'}",
            # A server that starts removes the temporary tables that it finds, others' too.
            f"--tmpdir={directory}",
            f"--init-file={first}",
            *SETTINGS,
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
        if _listens(directory / "mariadb.sock"):
            return READY
        time.sleep(0.01)
    lines = (directory / "log").read_text(errors="replace").splitlines()
    return " | ".join(line for line in lines if "ERROR" in line) or "no answer in time"


def keep(directory: Path, options: list[str]) -> None:
    """Start the server, say so, and end it when told to or when nobody is left to tell."""
    _enter(directory)
    with (directory / "log").open("ab") as log:
        _create(directory, log)
        server = _launch(directory, log, options)
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
    keep(Path(sys.argv[1]), sys.argv[2:])
