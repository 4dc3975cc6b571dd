"""The private database servers of one test run, and fresh databases on them.

Reads and writes only below the run's own temporary directory. The process that owns the run (with
xdist the controller) starts one server per kind; every process of the run finds it through
`found`. Each server has a keeper that ends it when the owner ends, in whatever way.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Protocol

from support import mariadb, mysql, mysql_databases, postgres_databases
from support.connections import connected as connected
from support.mysql_server import OWN_SERVERS
from support.server import ENCRYPTION_KEY as ENCRYPTION_KEY
from support.server import ENGINES, KINDS, EngineName
from support.server import ROLE_SECRET as ROLE_SECRET
from support.server import Server as Server
from surehook.embedded import binaries as programs
from surehook.embedded.account import server_account
from surehook.embedded.server import EmbeddedServer

PREFIX = "surehook-tests-"
PRIVATE_PREFIX = "surehook-private-"  # one test's own; never taken for what a run left behind
# Durability is what the embedded server's own tests are about; here speed is.
SETTINGS = {"fsync": "off", "autovacuum": "off", "shared_buffers": "64MB", "max_wal_size": "256MB"}
MYSQL_URL = "SUREHOOK_TEST_MYSQL_URL"


# ── Which servers ─────────────────────────────────────────────────────────────────────────────


def _is_of_the_wheel(directory: Path) -> bool:
    return programs.WHEEL in directory.parts


@cache
def available() -> dict[str, Path]:
    """The programs of each kind of PostgreSQL that this machine has."""
    account = server_account(Path(tempfile.gettempdir()) / "nothing")
    found: dict[str, Path] = {}
    with account.acting():  # as root: what the server's own account can reach
        for binaries in programs.candidates():
            kind = "wheel" if _is_of_the_wheel(binaries.directory) else "system"
            found.setdefault(kind, binaries.directory)
    return found


def wanted_engines() -> list[EngineName]:
    """SUREHOOK_TEST_ENGINES=postgres|mysql picks one; both by default."""
    named = os.environ.get("SUREHOOK_TEST_ENGINES", ",".join(ENGINES)).split(",")
    assert set(named) <= set(ENGINES), f"SUREHOOK_TEST_ENGINES: {', '.join(ENGINES)}"
    return [engine for engine in ENGINES if engine in named]


def wanted(engine: EngineName | None = None) -> list[str]:
    """The kinds to test on, of one engine or of all that are wanted and here."""
    return [
        kind
        for kind in (*_postgres_kinds(), *_mysql_kinds())
        if KINDS[kind] in wanted_engines() and engine in (None, KINDS[kind])
    ]


def _postgres_kinds() -> list[str]:
    named = os.environ.get("SUREHOOK_TEST_POSTGRES")
    if named:
        assert named in ("system", "wheel"), "SUREHOOK_TEST_POSTGRES is system or wheel"
        return [named]
    return ["system", "wheel"] if _has_a_system_postgres() else ["wheel"]


@cache  # it runs programs to find out, and every test asks
def _has_a_system_postgres() -> bool:
    return any(not _is_of_the_wheel(one.directory) for one in programs.candidates())


def _mysql_kinds() -> list[str]:
    here = ["mariadb"] if mariadb.is_installed() else []
    here += ["mysql"] if mysql.is_installed() or os.environ.get(MYSQL_URL) else []
    named = os.environ.get("SUREHOOK_TEST_MYSQL")
    assert named in (None, "", "mariadb", "mysql"), "SUREHOOK_TEST_MYSQL is mariadb or mysql"
    return [kind for kind in here if kind == (named or kind)]


def one_of_each(kinds: list[str]) -> list[str]:
    """The first of each engine: another kind of it concerns the store, seldom others."""
    return [kind for n, kind in enumerate(kinds) if KINDS[kind] not in map(KINDS.get, kinds[:n])]


def each_other_code(kinds: list[str]) -> list[str]:
    """One PostgreSQL, the other only being newer; MariaDB and MySQL, which are two products."""
    return [kind for kind in kinds if kind in one_of_each(kinds) or KINDS[kind] != "postgres"]


def home() -> Path:
    """In memory where there is room: copying a database is then seven times as fast."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * 2**30:
        return memory
    return Path(tempfile.gettempdir())


# ── The run ───────────────────────────────────────────────────────────────────────────────────


class Runnable(Protocol):
    """A server of our own, of either engine."""

    @property
    def url(self) -> str: ...

    @property
    def binaries(self) -> Path: ...

    @property
    def version(self) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


def own_server(kind: str, directory: Path, binaries: Path | None = None) -> Runnable:
    """A server that is not started yet; what is in `directory` it finds again."""
    if kind in OWN_SERVERS:
        return OWN_SERVERS[kind](directory)
    assert KINDS[kind] == "postgres", f"nobody here can start a server of the kind {kind}"
    return EmbeddedServer(directory, binaries=binaries or available()[kind], settings=SETTINGS)


class Run:
    """The servers of one test run, kept by the process that owns it."""

    def __init__(self) -> None:
        _remove_stale_directories()
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home()))
        self.directory.chmod(0o711)  # as root the server runs under another account
        self._alive = os.open(self.directory, os.O_RDONLY)
        fcntl.flock(self._alive, fcntl.LOCK_SH)
        self._servers: list[Runnable] = []
        self._threads: list[threading.Thread] = []

    def begin(self, kinds: list[str]) -> None:
        """Start the servers in the background; `found` waits for them."""
        account = server_account(self.directory)
        if "wheel" in kinds:
            programs.publish_wheel(account, major=18)
        directories = available()
        for kind in kinds:
            gate = os.open(self.directory / f"{kind}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(gate, fcntl.LOCK_EX)
            how = (kind, directories.get(kind), gate)
            thread = threading.Thread(target=self._start, args=how)
            thread.start()
            self._threads.append(thread)

    def _start(self, kind: str, binaries: Path | None, gate: int) -> None:
        said: dict[str, str] = {}
        try:
            said = asdict(self._started(kind, binaries))
        except BaseException as error:
            said = {"error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            (self.directory / f"{kind}.json").write_text(json.dumps(said))
            os.close(gate)

    def _started(self, kind: str, binaries: Path | None) -> Server:
        here = str(self.directory)
        if kind == "mysql" and os.environ.get(MYSQL_URL):
            return Server(kind, os.environ[MYSQL_URL], "", "", here)
        server = own_server(kind, self.directory / kind, binaries)
        self._servers.append(server)
        server.start()
        known = Server(kind, server.url, str(server.binaries), server.version, here)
        if known.engine == "postgres":
            asyncio.run(postgres_databases.create_templates(known))
        return known

    def end(self) -> None:
        for thread in self._threads:
            thread.join()
        for server in self._servers:
            server.stop()
        os.close(self._alive)
        shutil.rmtree(self.directory, ignore_errors=True)


def found(directory: Path, kind: str) -> Server:
    """The run's server of this kind, once its owner has it ready."""
    with (directory / f"{kind}.lock").open("rb") as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)
    said = json.loads((directory / f"{kind}.json").read_text())
    assert "error" not in said, said["error"]
    return Server(**said)


def _remove_stale_directories() -> None:
    """What a run left behind that was killed before it could clean up."""
    for directory in home().glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), _exclusively(directory):
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _exclusively(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def private_server(kind: str) -> Iterator[Server]:
    """A new server of one test's own, for what concerns a server as a whole."""
    with private_directory() as directory:
        server = own_server(kind, directory / "data")
        server.start()
        try:
            yield Server(kind, server.url, str(server.binaries), server.version, str(directory))
        finally:
            server.stop()


@contextmanager
def private_directory() -> Iterator[Path]:
    """A directory that the server's account can reach."""
    with tempfile.TemporaryDirectory(prefix=PRIVATE_PREFIX, dir=home()) as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


# ── Databases ─────────────────────────────────────────────────────────────────────────────────

_databases = {"postgres": postgres_databases, "mysql": mysql_databases}


@asynccontextmanager
async def fresh_database(server: Server, buckets: int | None = 1) -> AsyncIterator[str]:
    """The URL of a database of its own: migrated, or empty with buckets=None.

    No connection may be left to it at the end.
    """
    async with _databases[server.engine].fresh_database(server, buckets) as url:
        yield url


@asynccontextmanager
async def out_of_reach(server: Server, name: str) -> AsyncIterator[None]:
    """Meanwhile no component can use this database: its sessions end, new ones are refused."""
    async with _databases[server.engine].out_of_reach(server, name):
        yield
