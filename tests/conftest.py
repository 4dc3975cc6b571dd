"""What every test may ask for: a private PostgreSQL, a fresh database, a shifted clock.

One server per kind (the system's PostgreSQL, the wheel's) and run, shared by all xdist workers.
tests/store runs on each kind, all else on the first; SUREHOOK_TEST_POSTGRES=system|wheel picks one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from support import Configure, OpenStore, servers
from support.clock import Clock
from support.servers import Server
from surehook.config import Config, load
from surehook.store import open_database
from surehook.store.database import Database
from surehook.store.logins import Place

STORE_TESTS = Path(__file__).parent / "store"
RUN = pytest.StashKey[servers.Run]()


# ── The run ───────────────────────────────────────────────────────────────────────────────────


def pytest_sessionstart(session: pytest.Session) -> None:
    """With several workers the controller starts the servers, while they collect."""
    if getattr(session.config.option, "numprocesses", None):
        _owned_run(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["run_directory"] = str(_owned_run(node.config).directory)


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(RUN, None)
    if run is not None:
        run.end()


def _owned_run(config: pytest.Config) -> servers.Run:
    if RUN not in config.stash:
        config.stash[RUN] = run = servers.Run()
        run.begin(servers.wanted())
    return config.stash[RUN]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server_kind" in metafunc.fixturenames and metafunc.definition.path.is_relative_to(
        STORE_TESTS
    ):
        metafunc.parametrize("server_kind", servers.wanted(), scope="session")


@pytest.fixture(scope="session")
def server_kind() -> str:
    return servers.wanted()[0]


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest, server_kind: str) -> Server:
    """The run's server."""
    workerinput = getattr(request.config, "workerinput", None)
    if workerinput is not None:
        return servers.found(Path(workerinput["run_directory"]), server_kind)
    return servers.found(_owned_run(request.config).directory, server_kind)


# ── A database per test ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def buckets() -> int:
    """Override by @pytest.mark.parametrize("buckets", [1, 4]).

    SUREHOOK_TEST_BUCKETS=4 runs everything that does not say otherwise on four partitions.
    """
    return int(os.environ.get("SUREHOOK_TEST_BUCKETS", "1"))


@pytest.fixture
async def database_url(postgres: Server, buckets: int) -> AsyncIterator[str]:
    """A migrated database of this test's own, as its owner; no connection may be left to it."""
    async with servers.fresh_database(postgres, buckets) as url:
        yield url


@pytest.fixture
async def empty_url(postgres: Server) -> AsyncIterator[str]:
    """A database of this test's own with nothing in it."""
    async with servers.fresh_database(postgres, None) as url:
        yield url


@pytest.fixture
def place(postgres: Server, database_url: str) -> Place:
    return Place(database_url, postgres.role_secret, servers.ENCRYPTION_KEY)


@pytest.fixture
def configure(place: Place) -> Configure:
    """configure({"worker.concurrency": 2}): a configuration for this test's database."""

    def configured(
        flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
    ) -> Config:
        database = {
            "SUREHOOK_DATABASE_URL": place.url,
            "SUREHOOK_ROLE_SECRET": place.role_secret or "",
        }
        return load(Path(os.devnull), {**database, **(environment or {})}, flags)

    return configured


@pytest.fixture
def config(configure: Configure) -> Config:
    return configure()


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[Any]:
    """A connection as the owner of the tables."""
    async with servers.connected(database_url) as connection:
        yield connection


@pytest.fixture
async def open_store(configure: Configure, place: Place) -> AsyncIterator[OpenStore]:
    """await open_store("router"): that component's Database, closed when the test ends."""
    async with AsyncExitStack() as opened:

        async def opening(component: str, flags: Mapping[str, object] | None = None) -> Database:
            database = await open_database(configure(flags), place, component)
            opened.push_async_callback(database.close)
            return database

        yield opening


@pytest.fixture
def clock(owner: Any) -> Clock:
    """await clock.shift(seconds): time as the database sees it."""
    return Clock(owner)
