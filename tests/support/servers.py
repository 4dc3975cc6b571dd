"""The private PostgreSQL servers of one test run, and fresh databases on them.

Reads and writes only below the run's own temporary directory. The process that owns the run (with
xdist the controller) starts one server per kind; every process of the run finds it through
`found`. EmbeddedServer's supervisor ends the server when the owner ends, in whatever way.
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
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import asyncpg

from surehook.embedded import binaries as programs
from surehook.embedded.account import server_account
from surehook.embedded.server import EmbeddedServer
from surehook.store.postgres.migrate import migrate

KINDS = ("system", "wheel")
BUCKETS = (1, 4)  # one template each
ROLE_SECRET = "a role secret for tests only"
ENCRYPTION_KEY = "5e" * 32
PREFIX = "surehook-tests-"
PRIVATE_PREFIX = "surehook-private-"  # one test's own; never taken for what a run left behind
# Durability is what the embedded server's own tests are about; here speed is.
SETTINGS = {"fsync": "off", "autovacuum": "off", "shared_buffers": "64MB", "max_wal_size": "256MB"}


@dataclass(frozen=True)
class Server:
    """A running server as any process of the run sees it."""

    kind: str
    url: str
    binaries: str
    version: str
    role_secret: str = ROLE_SECRET

    def url_of(self, database: str) -> str:
        return self.url.replace("/surehook?", f"/{database}?", 1)


def _is_of_the_wheel(directory: Path) -> bool:
    return programs.WHEEL in directory.parts


def available() -> dict[str, Path]:
    """The programs of each kind that this machine has."""
    account = server_account(Path(tempfile.gettempdir()) / "nothing")
    found: dict[str, Path] = {}
    with account.acting():  # as root: what the server's own account can reach
        for binaries in programs.candidates():
            kind = "wheel" if _is_of_the_wheel(binaries.directory) else "system"
            found.setdefault(kind, binaries.directory)
    return found


def wanted() -> list[str]:
    """The kinds to test on: SUREHOOK_TEST_POSTGRES, else every kind that may be here."""
    named = os.environ.get("SUREHOOK_TEST_POSTGRES")
    if named:
        assert named in KINDS, f"SUREHOOK_TEST_POSTGRES is one of {', '.join(KINDS)}"
        return [named]
    system = any(not _is_of_the_wheel(one.directory) for one in programs.candidates())
    return ["system", "wheel"] if system else ["wheel"]


def home() -> Path:
    """In memory where there is room: copying a database is then seven times as fast."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * 2**30:
        return memory
    return Path(tempfile.gettempdir())


class Run:
    """The servers of one test run, kept by the process that owns it."""

    def __init__(self) -> None:
        _remove_stale_directories()
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home()))
        self.directory.chmod(0o711)  # as root the server runs under another account
        self._alive = os.open(self.directory, os.O_RDONLY)
        fcntl.flock(self._alive, fcntl.LOCK_SH)
        self._servers: list[EmbeddedServer] = []
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
            thread = threading.Thread(target=self._start, args=(kind, directories[kind], gate))
            thread.start()
            self._threads.append(thread)

    def _start(self, kind: str, binaries: Path, gate: int) -> None:
        server = EmbeddedServer(self.directory / kind, binaries=binaries, settings=SETTINGS)
        self._servers.append(server)
        said: dict[str, str] = {}
        try:
            server.start()
            known = Server(kind, server.url, str(server.binaries), server.version)
            asyncio.run(_create_templates(known))
            said = asdict(known)
        except BaseException as error:
            said = {"error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            (self.directory / f"{kind}.json").write_text(json.dumps(said))
            os.close(gate)

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
        data, binaries = directory / "data", available()[kind]
        with EmbeddedServer(data, binaries=binaries, settings=SETTINGS) as server:
            yield Server(kind, server.url, str(server.binaries), server.version)


@contextmanager
def private_directory() -> Iterator[Path]:
    """A directory that the server's account can reach."""
    with tempfile.TemporaryDirectory(prefix=PRIVATE_PREFIX, dir=home()) as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


# ── Databases ─────────────────────────────────────────────────────────────────────────────────


def template(buckets: int) -> str:
    return f"migrated_{buckets}"


async def _create_templates(server: Server) -> None:
    """One migrated database per number of buckets; copies of it are what tests get."""
    async with connected(server.url) as admin:
        for buckets in BUCKETS:
            await admin.execute(f"CREATE DATABASE {template(buckets)}")
            async with connected(server.url_of(template(buckets))) as owner:
                await migrate(owner, buckets=buckets, role_secret=server.role_secret)
            # Nobody may be connected to a database while it is copied.
            await admin.execute(
                f"ALTER DATABASE {template(buckets)} IS_TEMPLATE true ALLOW_CONNECTIONS false"
            )


@asynccontextmanager
async def connected(url: str, **how: Any) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, **how)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def fresh_database(server: Server, buckets: int | None = 1) -> AsyncIterator[str]:
    """The URL of a database of its own: migrated, or empty with buckets=None."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    source = f"TEMPLATE {template(buckets)} STRATEGY FILE_COPY" if buckets else ""
    async with connected(server.url) as admin:
        await admin.execute(f"CREATE DATABASE {name} {source}")
    try:
        yield server.url_of(name)
        await _refuse_leaks(server, name)
    finally:
        async with connected(server.url) as admin:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def _refuse_leaks(server: Server, name: str) -> None:
    """A session that was closed takes a moment to go; one that was not stays."""
    async with connected(server.url) as admin:
        for _ in range(100):
            left = await admin.fetch(
                "SELECT application_name, query FROM pg_stat_activity WHERE datname = $1", name
            )
            if not left:
                return
            await asyncio.sleep(0.02)
    raise AssertionError(f"connections left open: {[tuple(row) for row in left]}")


@asynccontextmanager
async def out_of_reach(server: Server, name: str) -> AsyncIterator[None]:
    """Meanwhile no component can use this database: its sessions end, new ones are refused."""
    async with connected(server.url) as admin:
        await admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 0")
        await admin.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = $1 AND application_name LIKE 'surehook%'",
            name,
        )
        try:
            yield
        finally:
            await admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1")
