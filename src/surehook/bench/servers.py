"""The databases that cases run on: our own PostgreSQL, one that was named, a private MariaDB.

Reads   the plan; which programs this machine has
Writes  a temporary directory; what a case does to the database that it is given
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from surehook.bench.cases import Case, On, Plan
from surehook.embedded.account import server_account
from surehook.embedded.server import EmbeddedServer
from surehook.errors import Unreachable
from surehook.store.logins import DatabaseAccess

# Where Debian and others keep daemons that are not in an ordinary user's path.
PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05
OWNER = "surehook"
MARIADB_SETTINGS = (
    "--skip-networking",
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=512M",
    "--innodb-log-file-size=256M",
    "--innodb-use-native-aio=0",  # a container's limits on it are small
    "--max-connections=300",
)


@dataclass(frozen=True, slots=True)
class Server:
    """A database, empty; `pid` is the first process of its server, if we know it."""

    access: DatabaseAccess
    pid: int | None = None


def missing(case: Case, plan: Plan) -> str | None:
    """Why this case cannot run here; None: it can."""
    if case.on is On.POSTGRESQL and plan.postgresql_url is None:
        return "no PostgreSQL was named (--postgresql URL)"
    if case.on is On.MARIADB and plan.mariadb_url is None and not _mariadb_programs():
        return "this machine has no MariaDB, and none was named (--mariadb URL)"
    return None


@contextmanager
def server_for(case: Case, plan: Plan, directory: Path) -> Iterator[Server]:
    given = {On.POSTGRESQL: plan.postgresql_url, On.MARIADB: plan.mariadb_url}.get(case.on)
    if given is not None:
        yield Server(DatabaseAccess(given, secrets.token_hex(16), secrets.token_hex(32)))
    elif case.on is On.MARIADB:
        with _private_mariadb(directory) as server:
            yield server
    else:
        with EmbeddedServer(directory / "data") as embedded:
            access = DatabaseAccess(embedded.url, embedded.role_secret, embedded.encryption_key)
            yield Server(access, embedded.pid)


# ── MariaDB ───────────────────────────────────────────────────────────────────────────────────


def _mariadb_programs() -> tuple[str, str] | None:
    """The server and what makes its data directory."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *PLACES])
    found = [shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db")]
    return (found[0], found[1]) if found[0] and found[1] else None


@contextmanager
def _private_mariadb(directory: Path) -> Iterator[Server]:
    """A durable server behind a Unix socket, gone at the end."""
    programs = _mariadb_programs()
    assert programs is not None
    home = directory / "mariadb"
    home.mkdir(mode=0o711)
    account = server_account(home)
    as_account = {}
    if account.is_other:
        os.chown(home, account.uid, account.gid)
        as_account = {"user": account.uid, "group": account.gid}
    data, sock, log = home / "data", home / "sock", home / "log"
    with log.open("wb") as said:
        subprocess.run(
            [
                programs[1],
                "--no-defaults",
                f"--datadir={data}",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
                "--innodb-use-native-aio=0",
            ],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd="/",
            **as_account,  # type: ignore[call-overload]
        )
        process = subprocess.Popen(
            [
                programs[0],
                "--no-defaults",
                f"--datadir={data}",
                f"--socket={sock}",
                f"--pid-file={home / 'pid'}",
                f"--tmpdir={home}",
                f"--init-file={_first_statements(home)}",
                *MARIADB_SETTINGS,
            ],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd="/",
            start_new_session=True,
            **as_account,  # type: ignore[call-overload]
        )
    try:
        _wait_for(sock, process, log)
        url = f"mysql://{OWNER}:{OWNER}@localhost/{OWNER}?unix_socket={quote(str(sock), safe='/')}"
        access = DatabaseAccess(url, secrets.token_hex(16), secrets.token_hex(32))
        yield Server(access, process.pid)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS_MAX)
        process.kill()
        process.wait()


def _first_statements(home: Path) -> Path:
    """An owner and a database; one statement per line."""
    file = home / "owner.sql"
    file.write_text(
        f"CREATE DATABASE {OWNER};\n"
        f"CREATE USER {OWNER}@localhost IDENTIFIED BY '{OWNER}';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO {OWNER}@localhost WITH GRANT OPTION;\n"
    )
    file.chmod(0o644)
    return file


def _wait_for(sock: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it listens; its first statements run before."""
    end = time.monotonic() + START_SECONDS_MAX
    while not sock.exists():
        if process.poll() is not None or time.monotonic() > end:
            last = log.read_text(errors="replace").splitlines()[-1:]
            raise Unreachable(f"MariaDB does not start: {' '.join(last)}")
        time.sleep(LOOK_SECONDS)
