"""A login's connections to PostgreSQL: its statements, its session settings.

Reads and writes whatever the login's statements do; the database checks that it may.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias
from weakref import WeakSet

import asyncpg

from surehook.config import Config
from surehook.errors import Bug, ConfigError, DatabaseUnreachable
from surehook.model.roles import BY_LOGIN
from surehook.model.statements import Statement
from surehook.store import watch
from surehook.store.database import Database, Known, LockHeld, Result, Row, Session, ValueRejected
from surehook.store.logins import Login
from surehook.store.migrations import State
from surehook.store.postgres import location

Connection: TypeAlias = Any  # asyncpg ships no types

# Statistics are taken when the queues are empty, so a planner left alone drives hot statements
# from the wrong end and each batch costs as much as the backlog. These keep it on the indexes.
HOT_SETTINGS = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
# Questions with optional filters want the opposite: a plan for the values at hand.
OBSERVER_SETTINGS = {"plan_cache_mode": "force_custom_plan", "jit": "off"}

RETRIES_MAX = 5
GOODBYE_SECONDS = 0.3
_TRY_AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
_GONE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,  # shut down, terminated, not yet accepting, timed out
    asyncpg.InsufficientResourcesError,  # too many connections, disk full
)
# A listener hears nothing for hours when there is nothing to hear: it asks whether it still would.
PING_SECONDS = 3.0
# Which of these sessions the server works on, and an end for the others. It rests, or waits for us:
# either its answer is lost, or our question.
_AT_WORK = """
SELECT pid, CASE WHEN rests THEN pg_terminate_backend(pid) END
FROM (
    SELECT pid, ((state LIKE 'idle%' OR wait_event_type = 'Client')
        AND state_change < clock_timestamp() - $2::float8 * interval '1 second') IS TRUE AS rests
    FROM pg_stat_activity
    WHERE pid = ANY ($1::integer[]) AND usename = current_user
) AS session
"""
_NOT_LET_IN = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)


def session_settings(config: Config, login: str) -> dict[str, str]:
    """The start-up parameters of every session of `login`."""
    hot = HOT_SETTINGS
    if login in BY_LOGIN and BY_LOGIN[login].custom_plans:
        hot = OBSERVER_SETTINGS
    milliseconds = int(config.seconds("database.statement_timeout") * 1000)
    return {
        **hot,
        # Someone's open transaction on one key must not hold up everybody's events; all other
        # waits are for our own short statements.
        "lock_timeout": "1000" if login == "ingest" else "0",
        "application_name": f"surehook {login}",
        "timezone": "UTC",
        # What a statement counts after another has locked must be as it is now, not as it was when
        # the transaction began: the cap and the router's cursor depend on it.
        "default_transaction_isolation": "read committed",
        "statement_timeout": str(milliseconds),
        # Our transactions are a few short statements: one that idles has lost its process.
        "idle_in_transaction_session_timeout": "10000",
    }


def unreachable(error: BaseException, login: Login) -> DatabaseUnreachable:
    """The one line for a database that does not answer or does not let us in."""
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return DatabaseUnreachable(
            f"The server has no such database ({error}).", "Create it, or correct the URL."
        )
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        advice = "Check the user and the password in the URL."
        if login.user:
            advice = (
                "Run `surehook migrate` to create the roles, and give every machine the same "
                "SUREHOOK_ROLE_SECRET."
            )
        return DatabaseUnreachable(f"The database does not let us in ({error}).", advice)
    reason = str(error) or (
        "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    )
    return DatabaseUnreachable(
        f"The database does not answer ({reason}).", "Is the server running, and the URL right?"
    )


async def connect(login: Login, timeout: float) -> Connection:
    """One connection outside of any pool (migrations, doctor), in the installation's schema."""
    connection = await connect_anywhere(login, timeout)
    try:
        await location.enter(connection, login.url)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def connect_anywhere(login: Login, timeout: float) -> Connection:
    """One connection with the search path that the login has."""
    try:
        return await asyncpg.connect(
            login.url,
            user=login.user,
            password=login.password,
            timeout=timeout,
            server_settings={
                "application_name": "surehook",
                "default_transaction_isolation": "read committed",
            },
        )
    except (*_GONE, *_NOT_LET_IN, TimeoutError) as error:
        raise unreachable(error, login) from None
    except (ValueError, asyncpg.ClientConfigurationError) as error:
        raise unusable_url(error) from None


@contextmanager
def losing(login: Login) -> Iterator[None]:
    """Around work on a connection outside of any pool: a lost one is reported in one line."""
    try:
        yield
    except (*_GONE, *_NOT_LET_IN, TimeoutError) as error:
        raise unreachable(error, login) from error


def unusable_url(error: Exception) -> ConfigError:
    """A URL that the driver cannot take apart; its words may quote a piece of a password."""
    reason = f" ({error})" if isinstance(error, asyncpg.ClientConfigurationError) else ""
    return ConfigError(
        f"The database URL cannot be used{reason}.",
        "Special characters in a user or password must be percent-encoded.",
    )


class _Backend(asyncpg.Connection):  # type: ignore[misc]
    """A connection that knows its session's number on the server, also through a pooler."""

    pid = 0


class PostgresSession(Session):
    """Named statements on one connection."""

    def __init__(self, connection: Connection, known: Known) -> None:
        super().__init__(known)
        self.connection = connection

    @property
    def number(self) -> int:
        pid: int = self.connection.pid
        return pid

    async def all(self, name: str, **values: object) -> Sequence[Row]:
        text, arguments = self._call(name, values)
        try:
            rows: Sequence[Row] = await self.connection.fetch(text, *arguments)
        except asyncpg.LockNotAvailableError as error:
            raise LockHeld(str(error)) from None
        except asyncpg.DataError as error:
            raise ValueRejected(str(error)) from None
        return rows


class PostgresDatabase(Database):
    dialect = "postgres"
    notifies = True

    def __init__(self, config: Config, login: Login) -> None:
        super().__init__(config, login)
        self._settings = session_settings(config, login.name)
        self._connect_seconds = config.seconds("database.connect_timeout")
        self._pool: Any = None
        self._opened: WeakSet[Connection] = WeakSet()
        self._watch = watch.Watch(self._at_work, self._distrust_idle)

    @staticmethod
    def _rendered(statement: Statement) -> str:
        return statement.numbered()

    async def open(self) -> None:
        path = await self._search_path()
        if path is not None:
            self._settings["search_path"] = path
        try:
            self._pool = await asyncpg.create_pool(
                self.login.url,
                user=self.login.user,
                password=self.login.password,
                min_size=1,
                max_size=self._config.number("database.connections"),
                timeout=self._connect_seconds,
                # The server ends a statement first, and the watch what went silent.
                command_timeout=self._config.seconds("database.statement_timeout") + 5,
                max_inactive_connection_lifetime=300,
                server_settings=self._settings,
                connection_class=_Backend,
                init=self._begin_session,
                reset=_keep,
            )
        except (*_GONE, *_NOT_LET_IN, TimeoutError) as error:
            raise unreachable(error, self.login) from None
        except (ValueError, asyncpg.ClientConfigurationError) as error:
            raise unusable_url(error) from None

    async def _search_path(self) -> str | None:
        """Known before the pool is: what is given at the start of a session outlives every reset,
        and goes before a role's own setting."""
        connection = await connect_anywhere(self.login, self._connect_seconds)
        try:
            async with asyncio.timeout(self._connect_seconds):
                return await location.search_path(connection, self.login.url)
        except (*_GONE, TimeoutError) as error:
            raise unreachable(error, self.login) from None
        finally:
            connection.terminate()

    async def _begin_session(self, connection: Connection) -> None:
        async with asyncio.timeout(self._connect_seconds):
            await self._assert_settings(connection)
            connection.pid = await connection.fetchval("SELECT pg_backend_pid()")
        self._opened.add(connection)

    async def _assert_settings(self, connection: Connection) -> None:
        """A pooler or a role setting between us and the server must not have changed them."""
        names = [name for name in self._settings if name != "application_name"]
        rows = await connection.fetch(
            "SELECT name, current_setting(name) FROM unnest($1::text[]) AS name", names
        )
        wrong = [name for name, value in rows if _canonical(value) != self._settings[name]]
        if wrong:
            raise ConfigError(
                f"The database changed these session settings: {', '.join(wrong)}.",
                "Connect directly, or let the pooler pass start-up parameters.",
            )

    async def _read_state(self, session: PostgresSession) -> State:
        from surehook.store.postgres.migrate import read_state

        return await read_state(session.connection)

    def connections(self) -> tuple[int, int]:
        if self._pool is None:
            return 0, 0
        idle: int = self._pool.get_idle_size()
        size: int = self._pool.get_size()
        return size - idle, idle

    async def close(self) -> None:
        await self._watch.close()
        if self._pool is not None:
            try:
                await asyncio.wait_for(self._pool.close(), 5)
            except TimeoutError:
                self._pool.terminate()
            self._pool = None

    async def run(self, work: Callable[[PostgresSession], Awaitable[Result]]) -> Result:
        for attempt in range(RETRIES_MAX + 1):
            try:
                connection = await self._pool.acquire()
                use = self._watch.began(connection.pid, connection.terminate)
                try:
                    return await work(PostgresSession(connection, self._known))
                finally:
                    await self._give_back(connection, use)
            except _TRY_AGAIN:
                if attempt == RETRIES_MAX:
                    raise
                await asyncio.sleep(random.uniform(0.001, 0.01) * 2**attempt)
            except (*_GONE, *_NOT_LET_IN, TimeoutError) as error:
                raise unreachable(error, self.login) from error
        raise Bug("unreachable")

    async def in_transaction(self, work: Callable[[PostgresSession], Awaitable[Result]]) -> Result:
        async def transacted(session: PostgresSession) -> Result:
            async with session.connection.transaction():
                return await work(session)

        return await self.run(transacted)

    async def _give_back(self, connection: Connection, use: watch.Use) -> None:
        """One whose statement was cancelled waits for the server's word on it, but not for long:
        whoever cancelled has no time left. Then it is closed."""
        try:
            await self._pool.release(connection, timeout=GOODBYE_SECONDS)
        except TimeoutError:
            pass
        finally:
            self._watch.ended(use)

    async def _at_work(self, sessions: Collection[int]) -> Collection[int]:
        """The watch asks: on a connection of its own, for those of the pool may be silent too."""
        try:
            async with asyncio.timeout(self._connect_seconds):
                connection = await connect_anywhere(self.login, self._connect_seconds)
                try:
                    rows = await connection.fetch(_AT_WORK, list(sessions), watch.RESTED_SECONDS)
                finally:
                    connection.terminate()
        except DatabaseUnreachable as error:
            if isinstance(error.__context__, asyncpg.TooManyConnectionsError):
                return sessions  # it is there, and nobody can tell
            raise
        except (*_GONE, TimeoutError) as error:
            raise unreachable(error, self.login) from None
        return [pid for pid, was_ended in rows if not was_ended]

    async def _distrust_idle(self) -> None:
        """Idle ones are closed at once: a good-bye would wait for an answer. Those in use are not
        used again."""
        if self._pool is not None:
            await self._pool.expire_connections()
        in_use = self._watch.in_use()
        for connection in list(self._opened):
            if connection.pid not in in_use:
                connection.terminate()

    async def notify(self, channel: str, message: str) -> None:
        await self.run(
            lambda session: session.connection.fetch("SELECT pg_notify($1, $2)", channel, message)
        )

    @asynccontextmanager
    async def listening(
        self, channel: str, heard: Callable[[str], None]
    ) -> AsyncIterator[asyncio.Future[None]]:
        """LISTEN on a direct connection; the future ends when that connection is lost."""
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(_: object) -> None:
            if not lost.done():
                lost.set_result(None)

        seconds = self._connect_seconds
        connection = await connect_anywhere(self.login, seconds)
        pinging: asyncio.Task[None] | None = None
        try:
            connection.add_termination_listener(ended)
            async with asyncio.timeout(seconds):
                await connection.add_listener(channel, lambda *args: heard(args[3]))
            pinging = asyncio.get_running_loop().create_task(_ping(connection, seconds))
            yield lost
        finally:
            if pinging is not None:
                pinging.cancel()
            connection.remove_termination_listener(ended)
            try:
                await connection.close(timeout=2)
            except (*_GONE, TimeoutError):
                connection.terminate()


async def _ping(connection: Connection, seconds: float) -> None:
    """Until the connection is lost; one that does not answer in time is closed."""
    while not connection.is_closed():
        await asyncio.sleep(PING_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await connection.execute("SELECT 1")
        except (*_GONE, TimeoutError):
            connection.terminate()


async def _keep(_: Connection) -> None:
    """Nothing to reset: no statement of ours changes its session."""


def _canonical(value: str) -> str:
    """current_setting() shows times with a unit."""
    for unit, factor in (("ms", 1), ("min", 60_000), ("s", 1000), ("h", 3_600_000)):
        if value.endswith(unit) and value[: -len(unit)].isdigit():
            return str(int(value[: -len(unit)]) * factor)
    return value
