"""A login's connections to MySQL or MariaDB: its statements, its session settings.

Reads and writes whatever the login's statements do; the database checks that it may.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from asyncmy.errors import MySQLError

from surehook.config import Config
from surehook.errors import Bug, DatabaseUnreachable
from surehook.model.statements import Statement
from surehook.store import watch
from surehook.store.database import (
    Database,
    Duplicate,
    LockHeld,
    Result,
    Row,
    Session,
    ValueRejected,
    Written,
)
from surehook.store.logins import Login
from surehook.store.migrations import State
from surehook.store.mysql import failures
from surehook.store.mysql.connection import Connection, Settings, connect
from surehook.store.mysql.pool import Pool
from surehook.store.mysql.server import Server
from surehook.store.mysql.values import pieces, rendered

RETRIES_MAX = 8
# A session that says nothing for a minute has lost its process or its machine, and may still hold
# locks: the server ends it. The pool lets go of an idle one earlier.
SILENCE_SECONDS_MAX = 60
# What a session is at, in the words of either server, while it sends to us or waits for the rest of
# a question.
WAITS_FOR_US = {"Writing to net", "Sending to client", "Reading from net", "Receiving from client"}


def login_settings(server: Server, config: Config, login: str) -> Settings:
    """What the sessions of a login have beside what every session of ours has."""
    seconds = config.seconds("database.statement_timeout")
    settings: dict[str, str | int | float] = {
        # Someone's open transaction on one key must not hold up everybody's events; all other
        # waits are for our own short statements.
        "innodb_lock_wait_timeout": 1 if login == "ingest" else 5,
        "wait_timeout": SILENCE_SECONDS_MAX,
    }
    if server.is_mariadb:
        settings["max_statement_time"] = seconds
        # Our transactions are a few short statements: one that idles has lost its process.
        settings["idle_transaction_timeout"] = 10
    else:
        settings["max_execution_time"] = int(seconds * 1000)
    return settings


class MysqlSession(Session):
    """Named statements on one connection."""

    def __init__(self, connection: Connection, database: MysqlDatabase) -> None:
        super().__init__(database._known)
        self.connection = connection
        self.mariadb = connection.server.is_mariadb
        self._pieces = database._pieces

    @property
    def number(self) -> int:
        return self.connection.number

    def _text(self, name: str, values: dict[str, object]) -> str:
        self._call(name, values)
        return rendered(self._pieces[name], values, self.connection.escape)

    async def all(self, name: str, **values: object) -> Sequence[Row]:
        with _translated_errors():
            return await self.connection.fetch(self._text(name, values))

    async def union(self, name: str, several: Sequence[dict[str, object]]) -> Sequence[Row]:
        """One statement asked with several sets of values at once: the rows of all of them."""
        if not several:
            return []
        with _translated_errors():
            return await self.connection.fetch(
                " UNION ALL ".join([self._text(name, values) for values in several])
            )

    async def write(self, name: str, **values: object) -> Written:
        with _translated_errors():
            return await self.connection.write(self._text(name, values))

    async def write_rows(self, name: str, rows: Sequence[dict[str, object]]) -> Written:
        """An INSERT of one row's VALUES, with the values of several rows."""
        texts = [self._text(name, values).partition("\nVALUES ") for values in rows]
        with _translated_errors():
            return await self.connection.write(
                f"{texts[0][0]}\nVALUES {','.join([text for _, _, text in texts])}"
            )


class _translated_errors:  # a generator would cost several times as much
    """The server's refusals as the exceptions that stores know."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, MySQLError):
            return
        code = failures.number(error)
        if code in failures.LOCK_HELD:
            raise LockHeld(str(error)) from None
        if code == failures.DUPLICATE:
            raise Duplicate(str(error)) from None
        if code in failures.REFUSED:
            raise ValueRejected(str(error)) from None


async def end_those_at_rest(connection: Connection, sessions: Collection[int]) -> Collection[int]:
    """Which of these sessions the server works on; the others it ends. One rests, or waits for us:
    either its answer is lost, or our question."""
    at_work = []
    for number, _, _, _, command, seconds, state, *_ in await connection.fetch("SHOW PROCESSLIST"):
        if number not in sessions:
            continue
        rests = command == "Sleep" or state in WAITS_FOR_US
        # In whole seconds, and one that has just begun may count.
        if rests and seconds is not None and int(seconds) > watch.RESTED_SECONDS:
            with suppress(MySQLError):  # it has ended meanwhile
                await connection.write(f"KILL {int(number)}")
        else:
            at_work.append(int(number))
    return at_work


def _expire(limit: asyncio.Timeout) -> None:
    """At once, unless it does so just now."""
    with suppress(RuntimeError):
        limit.reschedule(0)


class MysqlDatabase(Database):
    dialect = "mysql"
    notifies = False

    def __init__(self, config: Config, login: Login) -> None:
        super().__init__(config, login)
        self._pieces = {name: pieces(statement) for name, statement in self._statements.items()}
        self._pool = Pool(self._connect, config.number("database.connections"))
        self._watch = watch.Watch(self._at_work, self._pool.drop_idle)
        self.statement_seconds = config.seconds("database.statement_timeout")

    @staticmethod
    def _rendered(statement: Statement) -> str:
        return statement.text

    # ── Connections ───────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        async with self._pool.connection() as connection:
            connection.server.refuse_if_unfit()

    async def _connect(self) -> Connection:
        return await connect(
            self.login,
            self._config.seconds("database.connect_timeout"),
            lambda server: login_settings(server, self._config, self.login_name),
            name=f"surehook {self.login_name}",
        )

    async def _read_state(self, session: MysqlSession) -> State:
        from surehook.store.mysql.migrate import read_state

        return await read_state(session.connection)

    def connections(self) -> tuple[int, int]:
        return self._pool.sizes()

    async def close(self) -> None:
        await self._watch.close()
        await self._pool.close()

    # ── Statements ────────────────────────────────────────────────────────────────────────────

    async def run(self, work: Callable[[MysqlSession], Awaitable[Result]]) -> Result:
        for attempt in range(RETRIES_MAX + 1):
            try:
                # The server ends a statement first, and the watch what went silent.
                async with asyncio.timeout(None) as limit, self._pool.connection() as connection:
                    limit.reschedule(asyncio.get_running_loop().time() + self.statement_seconds + 5)
                    use = self._watch.began(connection.number, partial(_expire, limit))
                    try:
                        return await work(MysqlSession(connection, self))
                    finally:
                        self._watch.ended(use)
            except LockHeld as error:
                if self.login_name == "ingest":
                    raise
                if attempt == RETRIES_MAX:
                    raise failures.unreachable(error, self.login) from error
            except Duplicate:
                if attempt == RETRIES_MAX:
                    raise
            except (MySQLError, OSError, TimeoutError) as error:
                if failures.is_gone(error):
                    raise failures.unreachable(error, self.login) from error
                if failures.number(error) not in failures.TRY_AGAIN or attempt == RETRIES_MAX:
                    raise
            await asyncio.sleep(random.uniform(0.001, 0.01) * 2**attempt)
        raise Bug("unreachable")

    async def in_transaction(self, work: Callable[[MysqlSession], Awaitable[Result]]) -> Result:
        async def transacted(session: MysqlSession) -> Result:
            await session.connection.write("START TRANSACTION")
            try:
                result = await work(session)
                await session.connection.write("COMMIT")
            except BaseException as error:
                await session.connection.undo(error)
                raise
            return result

        return await self.run(transacted)

    async def _at_work(self, sessions: Collection[int]) -> Collection[int]:
        """The watch asks: on a connection of its own, for those of the pool may be silent too."""
        seconds = self._config.seconds("database.connect_timeout")
        try:
            async with asyncio.timeout(seconds):
                connection = await connect(self.login, seconds)
                try:
                    return await end_those_at_rest(connection, sessions)
                finally:
                    connection.terminate()
        except DatabaseUnreachable as error:
            if failures.number(error.__context__) in failures.TOO_MANY:
                return sessions  # it is there, and nobody can tell
            raise
        except (MySQLError, OSError, TimeoutError) as error:
            raise failures.unreachable(error, self.login) from None

    async def notify(self, channel: str, message: str) -> None:
        """This engine has no such thing: others look by themselves, often while there is work."""

    @asynccontextmanager
    async def listening(
        self, channel: str, heard: Callable[[str], None]
    ) -> AsyncIterator[asyncio.Future[None]]:
        yield asyncio.get_running_loop().create_future()
