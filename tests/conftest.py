"""What every test may ask for: a private database server, a fresh database, a shifted clock.

One server per kind (the system's PostgreSQL, the wheel's, MariaDB, MySQL) and run, shared by all
xdist workers. tests/store runs on each kind, scenarios on each but the wheel's, pipeline and outbox
on one of each engine, all else on the first. SUREHOOK_TEST_ENGINES=postgres|mysql picks an engine,
SUREHOOK_TEST_POSTGRES=system|wheel a PostgreSQL, SUREHOOK_TEST_MYSQL=mariadb|mysql one of those.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from support import Configure, OpenStore, coverage, programs, servers
from support.clock import Clock, MysqlClock, PostgresClock
from support.server import KINDS
from support.servers import Server
from support.waiting import PATIENT
from surehook.config import Config, load
from surehook.store import open_database
from surehook.store.database import Database
from surehook.store.logins import DatabaseAccess

TESTS = Path(__file__).parent
# On which of the kinds that are here each folder's tests run; all others on the first.
KINDS_FOR: dict[Path, Callable[[list[str]], list[str]]] = {
    TESTS / "store": list,
    TESTS / "scenarios": servers.each_other_code,
    TESTS / "pipeline": servers.one_of_each,
    TESTS / "actions": servers.one_of_each,
    TESTS / "outbox": servers.one_of_each,
}
REQUIRED = "SUREHOOK_TEST_REQUIRE_MYSQL"  # set: not testing on it is a failure, not a remark
RUN = pytest.StashKey[servers.Run]()


# ── The run ───────────────────────────────────────────────────────────────────────────────────


def pytest_sessionstart(session: pytest.Session) -> None:
    """With several workers the controller starts the servers, while they collect."""
    if getattr(session.config.option, "numprocesses", None):
        _owned_run(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["run_directory"] = str(_owned_run(node.config).directory)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if coverage.measured(config):
        coverage.choose(items, servers.one_of_each(servers.wanted()))


def pytest_collection_finish() -> None:
    """What was imported stays: looking for garbage need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs of a test are not found by the user's commands, nor the user's by a test's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    with coverage.around_collection(session.config):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with coverage.around_test(item):
        return (yield)


@pytest.fixture(autouse=True)
def measured_children(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes count only where their code runs nowhere else."""
    if not coverage.has_measured_children(request.node):
        monkeypatch.delenv(coverage.CHILDREN_MEASURED, raising=False)


@pytest.fixture(scope="module", autouse=True)
def no_litter() -> Iterator[None]:
    """What a test forgot to close complains when it is collected: at the end of its own file, and
    not in the midst of some later test that has nothing to do with it."""
    yield
    gc.collect()


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(RUN, None)
    if run is not None:
        run.end()


def _owned_run(config: pytest.Config) -> servers.Run:
    if RUN not in config.stash:
        config.stash[RUN] = run = servers.Run()
        run.begin(servers.wanted())
    return config.stash[RUN]


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts us in the background lets its children ignore Ctrl-C, and so would ours.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get(REQUIRED) and not servers.wanted("mysql"):
        raise pytest.UsageError(f"{REQUIRED} is set, but {_not_run_on_mysql()}")


def _not_run_on_mysql() -> str:
    if "mysql" not in servers.wanted_engines():
        return "SUREHOOK_TEST_ENGINES leaves MySQL out."
    return (
        "there is no MariaDB here and no MySQL (`make mariadb mysql` gets them where apt is; "
        "SUREHOOK_TEST_MYSQL_URL names another)."
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in coverage.figures(config) if coverage.measured(config) else ():
        terminalreporter.line(line)
    lines, kinds = [], servers.wanted("mysql")
    if not kinds:
        lines = ["tests/store, tests/pipeline and tests/scenarios on MySQL:", _not_run_on_mysql()]
    elif "mysql" not in kinds and not os.environ.get("SUREHOOK_TEST_MYSQL"):
        lines = ["tests/store and tests/scenarios on MySQL itself, only on MariaDB:"]
        lines.append("`make mysql` gets it where apt is; SUREHOOK_TEST_MYSQL_URL names another.")
    if programs.missing():
        names = " ".join(programs.PACKAGES[name] for name in programs.missing())
        lines.append(f"the API with {', '.join(programs.missing())}: not here.")
        lines.append(f"Debian: apt-get install {names}")
    if lines:
        terminalreporter.section("NOT RUN", sep="!", red=True, bold=True)
    for line in lines:
        terminalreporter.line(line, red=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server_kind" not in metafunc.fixturenames:
        return
    kinds = _kinds_for(metafunc)
    if "driver" in metafunc.fixturenames:  # an application's; each engine has its own
        metafunc.parametrize(("server_kind", "driver"), _with_drivers(kinds), scope="session")
    else:
        metafunc.parametrize("server_kind", kinds, scope="session")


def _with_drivers(kinds: list[str]) -> list[Any]:
    from support.applications import DRIVERS  # many packages, for tests/outbox alone

    return [
        pytest.param(kind, driver, id=f"{kind}-{name}")
        for kind in kinds
        for name, driver in DRIVERS[KINDS[kind]].items()
    ]


def _kinds_for(metafunc: pytest.Metafunc) -> list[str]:
    """On which kinds of server a test runs."""
    mark = metafunc.definition.get_closest_marker("only_on")
    engine = mark.args[0] if mark else None
    assert mark is None or mark.kwargs["reason"]
    if "postgres" in metafunc.fixturenames:
        engine = "postgres"
    kinds, path = servers.wanted(engine), metafunc.definition.path
    for folder, choice in KINDS_FOR.items():
        if path.is_relative_to(folder):
            return choice(kinds)
    return kinds[:1]


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, server_kind: str) -> Server:
    """The run's server of this kind."""
    workerinput = getattr(request.config, "workerinput", None)
    if workerinput is not None:
        return servers.found(Path(workerinput["run_directory"]), server_kind)
    return servers.found(_owned_run(request.config).directory, server_kind)


@pytest.fixture(scope="session")
def postgres(server: Server) -> Server:
    """The run's server, for a test that is about PostgreSQL."""
    return server


@pytest.fixture
def on_mysql(server: Server) -> bool:
    return server.engine == "mysql"


# ── A database per test ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def buckets() -> int:
    """Override by @pytest.mark.parametrize("buckets", [1, 4]).

    SUREHOOK_TEST_BUCKETS=4 runs everything that does not say otherwise on four partitions.
    """
    return int(os.environ.get("SUREHOOK_TEST_BUCKETS", "1"))


@pytest.fixture
async def database_url(server: Server, buckets: int) -> AsyncIterator[str]:
    """A migrated database of this test's own, as its owner; no connection may be left to it."""
    async with servers.fresh_database(server, buckets) as url:
        yield url


@pytest.fixture
async def empty_url(server: Server) -> AsyncIterator[str]:
    """A database of this test's own with nothing in it."""
    async with servers.fresh_database(server, None) as url:
        yield url


@pytest.fixture
def access(server: Server, database_url: str) -> DatabaseAccess:
    return DatabaseAccess(database_url, server.role_secret, servers.ENCRYPTION_KEY)


@pytest.fixture
def configure(access: DatabaseAccess) -> Configure:
    """configure({"worker.concurrency": 2}): a configuration for this test's database."""

    def configured(
        flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
    ) -> Config:
        database = {
            "SUREHOOK_DATABASE_URL": access.url,
            "SUREHOOK_ROLE_SECRET": access.role_secret or "",
        }
        return load(Path(os.devnull), {**PATIENT, **database, **(environment or {})}, flags)

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
async def open_store(configure: Configure, access: DatabaseAccess) -> AsyncIterator[OpenStore]:
    """await open_store("router"): that component's Database, closed when the test ends."""
    async with AsyncExitStack() as opened:

        async def opening(component: str, flags: Mapping[str, object] | None = None) -> Database:
            database = await open_database(configure(flags), access, component)
            opened.push_async_callback(database.close)
            return database

        yield opening


@pytest.fixture
def clock(owner: Any, on_mysql: bool, database_url: str) -> Clock:
    """await clock.shift(seconds): time as the database sees it."""
    return MysqlClock(owner, database_url) if on_mysql else PostgresClock(owner)
