"""A component's connections to MySQL or MariaDB: its login, its statements, its session settings.

Reads and writes whatever the component's statements do; the database checks that it may.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import asyncmy
from asyncmy import errors
from asyncmy.constants import CLIENT, FIELD_TYPE
from asyncmy.converters import conversions

from surehook.config import Config
from surehook.errors import Bug, ConfigError, DatabaseUnreachable
from surehook.store.database import Database, LockHeld, Refused, Result, Row, Session
from surehook.store.logins import Login
from surehook.store.mysql.urls import arguments
from surehook.store.mysql.values import pieces, rendered
from surehook.store.statements import Statement

Connection: TypeAlias = Any  # the driver's types say little

RETRIES_MAX = 8
IDLE_SECONDS_MAX = 300.0
SQL_MODE = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO"

_DUPLICATE = 1062
_DEADLOCK = 1213
_LOCK_HELD = (1205, 3572)  # waited too long; NOWAIT on MySQL (on MariaDB that is 1205 too)
_REFUSED = (1264, 1366, 1406, 3140, 3819, 4025)  # out of range, wrong, too long, a CHECK
_NOT_LET_IN = (1044, 1045, 1130, 1698)
_NO_DATABASE = 1049
_TIMED_OUT = (1969, 3024)  # max_statement_time, max_execution_time
# Shut down, killed, too many connections, read-only (a failover), disk full, and the client's own.
_GONE = (1020, 1021, 1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1203, 1226, 1290, 1317, 1836,
         1927, 3032)  # fmt: skip


class Duplicate(Exception):
    """A key is there already. It discards the whole statement: look again, and do it again."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a statement that writes did."""

    rows: int  # that it found, changed or not
    first_id: int = 0  # of the rows that it inserted
    id_step: int = 1

    def ids(self) -> range:
        """Of the rows that one INSERT … VALUES made: their number is known beforehand, so InnoDB
        gives them ids in a row, in the order of input, in each of its modes."""
        return range(self.first_id, self.first_id + self.rows * self.id_step, self.id_step)


def _aware(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


# DATETIME is UTC here, and TINYINT is a boolean (numbers are SMALLINT or more).
_CONVERSIONS = {
    **conversions,
    FIELD_TYPE.DATETIME: _aware,
    FIELD_TYPE.TINY: lambda text: text not in ("0", b"0"),
}


def number_of(error: BaseException) -> int:
    """The server's (or driver's) number of an error; 0 = none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def is_gone(error: BaseException) -> bool:
    """Whether the server went away, or cannot be used for now."""
    if isinstance(error, ConnectionError | TimeoutError | errors.InterfaceError):
        return True
    number = number_of(error)
    return isinstance(error, errors.MySQLError) and (
        2000 <= number < 2100 or number in _GONE or number in _TIMED_OUT
    )


def unreachable(error: BaseException, login: Login) -> DatabaseUnreachable:
    """The one line for a database that does not answer or does not let us in."""
    reason = str(error.args[1]) if len(error.args) > 1 else str(error)
    if number_of(error) == _NO_DATABASE:
        return DatabaseUnreachable(
            f"The server has no such database ({reason}).", "Create it, or correct the URL."
        )
    if number_of(error) in _NOT_LET_IN:
        advice = "Check the user and the password in the URL."
        if login.user:
            advice = (
                "Run `surehook migrate` to create the roles, and give every machine the same "
                "SUREHOOK_ROLE_SECRET."
            )
        return DatabaseUnreachable(f"The database does not let us in ({reason}).", advice)
    reason = reason or (
        "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    )
    return DatabaseUnreachable(
        f"The database does not answer ({reason}).", "Is the server running, and the URL right?"
    )


def is_mariadb(connection: Connection) -> bool:
    return "mariadb" in str(connection.get_server_info()).lower()


async def connect(login: Login, timeout: float, name: str = "surehook") -> Connection:
    """One connection outside of any pool (migrations, doctor), as every session of ours is set."""
    given = arguments(login)
    try:
        async with asyncio.timeout(timeout):
            connection = await asyncmy.connect(
                **given,
                charset="utf8mb4",
                autocommit=True,
                client_flag=CLIENT.FOUND_ROWS,
                conv=_CONVERSIONS,
                connect_timeout=timeout,
                program_name=name,
            )
            await run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            await run(
                connection,
                f"SET time_zone = '+00:00', sql_mode = '{SQL_MODE}', wait_timeout = 28800",
            )
            return connection
    except (errors.MySQLError, OSError, TimeoutError) as error:
        if is_gone(error) or number_of(error) in (*_NOT_LET_IN, _NO_DATABASE):
            raise unreachable(error, login) from None
        raise
    except RuntimeError as error:  # the driver lacks a way to log in
        raise ConfigError(f"The database cannot be logged in to ({error}).") from None


async def run(connection: Connection, text: str) -> Sequence[Row]:
    """One statement, as it stands."""
    cursor = connection.cursor()
    await cursor.execute(text)
    rows: Sequence[Row] = await cursor.fetchall()
    return rows


class MysqlSession(Session):
    """Named statements on one connection."""

    def __init__(self, connection: Connection, database: MysqlDatabase) -> None:
        super().__init__(database._known)
        self.connection = connection
        self.mariadb = is_mariadb(connection)
        self.id_step: int = connection.surehook_id_step
        self._pieces = database._pieces

    def _text(self, name: str, values: dict[str, object]) -> str:
        self._call(name, values)
        return rendered(self._pieces[name], values, self.connection.escape)

    async def _execute(self, text: str) -> Any:
        cursor = self.connection.cursor()
        try:
            await cursor.execute(text)
        except errors.MySQLError as error:
            if number_of(error) in _LOCK_HELD:
                raise LockHeld(str(error)) from None
            if number_of(error) == _DUPLICATE:
                raise Duplicate(str(error)) from None
            if number_of(error) in _REFUSED:
                raise Refused(str(error)) from None
            raise
        return cursor

    async def all(self, name: str, **values: object) -> Sequence[Row]:
        cursor = await self._execute(self._text(name, values))
        rows: Sequence[Row] = await cursor.fetchall()
        return rows

    async def union(self, name: str, several: Sequence[dict[str, object]]) -> Sequence[Row]:
        """One statement asked with several sets of values at once: the rows of all of them."""
        if not several:
            return []
        cursor = await self._execute(
            " UNION ALL ".join([self._text(name, values) for values in several])
        )
        rows: Sequence[Row] = await cursor.fetchall()
        return rows

    async def write(self, name: str, **values: object) -> Written:
        """Run a statement that changes rows."""
        cursor = await self._execute(self._text(name, values))
        return Written(cursor.rowcount, cursor.lastrowid, self.id_step)


class MysqlDatabase(Database):
    dialect = "mysql"
    notifies = False

    def __init__(self, config: Config, login: Login) -> None:
        super().__init__(config, login)
        self._pieces = {name: pieces(statement) for name, statement in self._statements.items()}
        self._slots = asyncio.Semaphore(config.number("database.connections"))
        self._idle: list[tuple[Connection, float]] = []
        self._used: set[Connection] = set()
        self.statement_seconds = config.seconds("database.statement_timeout")

    @staticmethod
    def _rendered(statement: Statement) -> str:
        return statement.text

    # ── Connections ───────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        async with self._connection():
            pass

    async def _connect(self) -> Connection:
        timeout = self._config.seconds("database.connect_timeout")
        connection = await connect(self.login, timeout, f"surehook {self.component}")
        # Someone's open transaction on one key must not hold up everybody's events.
        waits = 1 if self.component == "ingest" else 50
        settings = {"innodb_lock_wait_timeout": waits}
        if is_mariadb(connection):
            settings["max_statement_time"] = int(self.statement_seconds)
        else:
            settings["max_execution_time"] = int(self.statement_seconds * 1000)
        try:
            await run(connection, "SET " + ", ".join(f"{k} = {v}" for k, v in settings.items()))
            await self._assert_settings(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _assert_settings(self, connection: Connection) -> None:
        """A pooler between us and the server must not have changed them."""
        isolation = "@@tx_isolation" if is_mariadb(connection) else "@@transaction_isolation"
        ((level, zone, mode, step),) = await run(
            connection, f"SELECT {isolation}, @@time_zone, @@sql_mode, @@auto_increment_increment"
        )
        wrong = [
            name
            for name, right in (
                ("transaction isolation", level == "READ-COMMITTED"),
                ("time_zone", zone == "+00:00"),
                ("sql_mode", "STRICT_ALL_TABLES" in mode),
            )
            if not right
        ]
        if wrong:
            raise ConfigError(
                f"The database changed these session settings: {', '.join(wrong)}.",
                "Connect directly, or let the pooler keep session settings.",
            )
        connection.surehook_id_step = step

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """One for now. It goes back only if it is whole and in no transaction."""
        async with self._slots:
            connection = self._take_idle() or await self._connect()
            self._used.add(connection)
            whole = False
            try:
                yield connection
                whole = True
            except (errors.MySQLError, LockHeld, Duplicate, Refused):
                whole = True
                raise
            finally:
                self._used.discard(connection)
                if whole and _is_usable(connection):
                    self._idle.append((connection, time.monotonic()))
                else:
                    connection.close()

    def _take_idle(self) -> Connection | None:
        oldest = time.monotonic() - IDLE_SECONDS_MAX
        while self._idle and self._idle[0][1] < oldest:
            self._idle.pop(0)[0].close()
        while self._idle:
            connection, _ = self._idle.pop()
            if _is_usable(connection):
                return connection
            connection.close()
        return None

    async def check_schema(self) -> None:
        from surehook.store.mysql.migrate import read_state

        async def work(session: MysqlSession) -> None:
            state = await read_state(session.connection)
            state.refuse_if_too_new()
            state.refuse_if_changed()
            state.refuse_if_too_old()
            self.buckets = state.buckets or 1

        await self.run(work)

    def connections(self) -> tuple[int, int]:
        return len(self._used), len(self._idle)

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            try:
                await asyncio.wait_for(connection.ensure_closed(), 2)
            except (errors.MySQLError, OSError, TimeoutError):
                connection.close()
        for connection in self._used:
            connection.close()

    # ── Statements ────────────────────────────────────────────────────────────────────────────

    async def run(self, work: Callable[[MysqlSession], Awaitable[Result]]) -> Result:
        for attempt in range(RETRIES_MAX + 1):
            try:
                # The server ends a statement first; this is for a network that went silent.
                async with asyncio.timeout(None) as limit, self._connection() as connection:
                    limit.reschedule(asyncio.get_running_loop().time() + self.statement_seconds + 5)
                    return await work(MysqlSession(connection, self))
            except LockHeld:
                if attempt == RETRIES_MAX or self.component == "ingest":
                    raise
            except Duplicate:
                if attempt == RETRIES_MAX:
                    raise
            except (errors.MySQLError, OSError, TimeoutError) as error:
                if is_gone(error) or number_of(error) in (*_NOT_LET_IN, _NO_DATABASE):
                    raise unreachable(error, self.login) from error
                if number_of(error) != _DEADLOCK or attempt == RETRIES_MAX:
                    raise
            await asyncio.sleep(random.uniform(0.001, 0.01) * 2**attempt)
        raise Bug("unreachable")

    async def in_transaction(self, work: Callable[[MysqlSession], Awaitable[Result]]) -> Result:
        async def transacted(session: MysqlSession) -> Result:
            await session.connection.begin()
            try:
                result = await work(session)
                await session.connection.commit()
            except BaseException:
                await _roll_back(session.connection)
                raise
            return result

        return await self.run(transacted)

    async def write(self, name: str, **values: object) -> Written:
        """Run one statement that changes rows, in a transaction of its own."""
        written: Written = await self.run(lambda session: session.write(name, **values))
        return written

    async def notify(self, channel: str, message: str) -> None:
        """This engine has no such thing: others look by themselves, often while there is work."""

    @asynccontextmanager
    async def listening(
        self, channel: str, heard: Callable[[str], None]
    ) -> AsyncIterator[asyncio.Future[None]]:
        yield asyncio.get_running_loop().create_future()


def _is_usable(connection: Connection) -> bool:
    return (
        connection.connected
        and not connection._stream_broken
        and not connection.get_transaction_status()
    )


async def _roll_back(connection: Connection) -> None:
    """Where that fails, or we are told to stop meanwhile, the connection is closed: same end."""
    try:
        await asyncio.wait_for(connection.rollback(), 2)
    except BaseException:
        connection.close()
