"""Database servers that a scenario starts, stops, kills and starts again.

Reads   the programs of PostgreSQL and MariaDB that this machine has
Writes  only below the directory that it is given; listens on 127.0.0.1 only

They are durable as the product demands it. Each is a direct child, in its own session, and the
kernel ends it with this process. Nothing starts it again but the scenario.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

from support import mariadb, servers
from support.connections import connected
from support.waiting import until
from surehook.embedded import binaries as programs
from surehook.embedded.account import server_account

OWNER, PASSWORD = "surehook", "sesame"
START_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.02
PR_SET_PDEATHSIG = 1
PORTS = range(20_000, 32_000)
POSTGRES_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "64MB",
    "max_connections": "150",
    "max_wal_size": "256MB",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "autovacuum_naptime": "10s",
    "logging_collector": "off",
}
MARIADB_SETTINGS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-flush-method=fsync",
    "--innodb-buffer-pool-size=128M",
    "--innodb-log-file-size=64M",
    "--innodb-use-native-aio=0",  # a container's limits on it are small
    "--max-connections=150",
    "--skip-log-bin",
)


def free_port() -> int:
    """Below those that the kernel gives to connections: it stays free while nobody listens."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


def _die_with_the_parent() -> None:
    """Between fork and exec, already as the server's account: a change of account undoes it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class DatabaseServer(ABC):
    """A server on `directory`; what is in it stays there for the next start."""

    engine: ClassVar[str]
    hard_stop: ClassVar[signal.Signals]
    """Ends it at once, without a checkpoint or a word to its clients."""

    def __init__(self, directory: Path, *options: str, port: int | None = None) -> None:
        self.directory = directory
        self.options = options  # for the server, after ours
        self.port = port or free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._account = server_account(directory)

    @property
    @abstractmethod
    def url(self) -> str:
        """As the owner."""

    @property
    @abstractmethod
    def admin_url(self) -> str:
        """A database that is always there."""

    @abstractmethod
    def _create(self) -> None:
        """The data directory, made once."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # ── Life ──────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Returns when it accepts connections. From the main thread: see PR_SET_PDEATHSIG."""
        assert not self.is_running
        if not self.data.exists():
            self._make_directory()
            await asyncio.to_thread(self._create)
        self.launch()
        await self.ready()

    def launch(self) -> None:
        """Start the process; it is not ready yet."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                preexec_fn=_die_with_the_parent,
                **self._as_account(),
            )

    async def ready(self) -> None:
        """Until it lets us in. A start that met the remains of its predecessor is repeated."""
        async with asyncio.timeout(START_SECONDS_MAX):
            while True:
                if not self.is_running:
                    self.launch()
                with contextlib.suppress(Exception):  # refused, starting up, shutting down
                    async with connected(self.admin_url) as connection:
                        await connection.fetchval("SELECT 1")
                        return
                await asyncio.sleep(LOOK_SECONDS)

    async def signalled(self, number: signal.Signals) -> None:
        """Send it and wait until the server is gone."""
        assert self.process is not None
        self.process.send_signal(number)
        process = self.process
        await until(lambda: process.poll() is not None)

    async def stop_hard(self) -> None:
        await self.signalled(self.hard_stop)

    async def kill(self) -> None:
        await self.signalled(signal.SIGKILL)

    async def close(self) -> None:
        """The end: nothing of it is needed any more."""
        if self.is_running:
            await self.kill()

    def connect(self, **how: Any) -> Any:
        """`async with server.connect() as connection`, like asyncpg's on either engine."""
        return connected(self.url, **how)

    # ── What is in it ─────────────────────────────────────────────────────────────────────────

    def _make_directory(self) -> None:
        self.directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.directory.chmod(0o711)
        if self._account.is_other:
            os.chown(self.directory, self._account.uid, self._account.gid)

    def _as_account(self) -> dict[str, Any]:
        if not self._account.is_other:
            return {}
        return {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}

    def run_program(self, *command: str | Path, env: dict[str, str] | None = None) -> None:
        """One of the server's programs, as its account, to its end."""
        with self.log.open("ab") as log:
            subprocess.run(
                command,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, **(env or {})},
                **self._as_account(),
            )


class PostgresServer(DatabaseServer):
    engine = "postgresql"
    hard_stop = signal.SIGQUIT  # "immediate"

    @property
    def url(self) -> str:
        return f"postgresql://{OWNER}:{PASSWORD}@127.0.0.1:{self.port}/{OWNER}"

    @property
    def admin_url(self) -> str:
        return f"postgresql://{OWNER}:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    @property
    def binaries(self) -> Path:
        return postgres_binaries()

    async def start(self) -> None:
        await super().start()
        async with connected(self.admin_url) as admin:
            known = await admin.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", OWNER)
            if not known:
                await admin.execute(f"CREATE DATABASE {OWNER}")

    def _create(self) -> None:
        password = self.directory / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self.run_program(
            *(self.binaries / "initdb", "-D", str(self.data), "--username", OWNER),
            *("--pwfile", str(password), "--auth", "scram-sha-256", "--no-sync"),
            *("--encoding", "UTF8", "--locale", "C", "--no-instructions"),
            *self.create_options,
        )

    @property
    def create_options(self) -> tuple[str, ...]:
        """More for initdb."""
        return ()

    def _command(self) -> list[str]:
        settings = {**POSTGRES_SETTINGS, "port": str(self.port)}
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self.binaries / "postgres"), "-D", str(self.data), *given, *self.options]


class MariadbServer(DatabaseServer):
    engine = "mariadb"
    hard_stop = signal.SIGKILL  # it has no stop that is rude enough

    @property
    def url(self) -> str:
        return f"mysql://{OWNER}:{PASSWORD}@127.0.0.1:{self.port}/{OWNER}"

    @property
    def admin_url(self) -> str:
        return self.url

    def _create(self) -> None:
        self.run_program(*mariadb.initialization(self.data))

    def _command(self) -> list[str]:
        first = self.directory / "owner.sql"  # one statement per line
        hosts = ("%", "localhost", "127.0.0.1")
        first.write_text(
            # A standby makes its own accounts: they are no part of what it follows.
            "SET SESSION sql_log_bin = 0;\n"
            + "".join(
                f"CREATE USER IF NOT EXISTS {OWNER}@'{host}' IDENTIFIED BY '{PASSWORD}';\n"
                f"GRANT ALL PRIVILEGES ON *.* TO {OWNER}@'{host}' WITH GRANT OPTION;\n"
                for host in hosts
            )
            + f"CREATE DATABASE IF NOT EXISTS {OWNER};\n"
        )
        first.chmod(0o644)
        return [
            *mariadb.daemon(),
            "--no-defaults",
            f"--datadir={self.data}",
            f"--socket={self.directory / 'sock'}",
            f"--pid-file={self.directory / 'pid'}",
            f"--tmpdir={self.directory}",
            f"--init-file={first}",
            f"--port={self.port}",
            *MARIADB_SETTINGS,
            *self.options,
        ]


SERVERS: dict[str, type[DatabaseServer]] = {
    server.engine: server for server in (PostgresServer, MariadbServer)
}


@cache  # looked for before there are threads: it acts as another account meanwhile
def postgres_binaries() -> Path:
    """The system's, else those that come with surehook, where the server's account can reach."""
    account = server_account(Path(tempfile.gettempdir()) / "nothing")
    if "system" not in servers.available():
        programs.publish_wheel(account, major=None)
    found = servers.available()
    return found.get("system") or found["wheel"]


def available_engines() -> list[str]:
    """PostgreSQL always is: surehook brings it along."""
    return ["postgresql", *(["mariadb"] if mariadb.is_installed() else [])]


class Home:
    """A directory for the data of servers: in memory where there is room."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="surehook-faults-", dir=servers.home()))
        self.path.chmod(0o711)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
