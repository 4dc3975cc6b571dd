"""A connection to MySQL or MariaDB that a test uses like one of asyncpg's.

Reads and writes whatever the test's statements do. They are written for PostgreSQL and translated
(translate.py); `native` takes a statement as it is. Times go in and come out aware and in UTC.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import asyncmy
from asyncmy import errors
from asyncmy.constants import CLIENT

from support.translate import in_mysql

TINY = 1  # a column's type in the protocol; of length 1 it is MySQL's BOOLEAN
SETTINGS = (
    "SET time_zone = '+00:00', sql_mode = 'TRADITIONAL', innodb_lock_wait_timeout = 30, "
    "transaction_isolation = 'READ-COMMITTED'"
)
# MariaDB spells one of them in the old way.
MARIADB_SETTINGS = SETTINGS.replace("transaction_isolation", "tx_isolation")
ROWS_MAX = 500  # of one statement
RETURNING_ID = re.compile(r"\s+RETURNING id\s*$")
RETURNING = re.compile(r"(INSERT INTO (\w+) .*) RETURNING (.*)", re.DOTALL)
NOT_ALLOWED = {1044, 1045, 1142, 1143, 1227, 1370, 1410}
CHECK_FAILED = {3819, 4025}


class Refusal(Exception):
    """What the server refused; `sqlstate` as asyncpg has it."""

    def __init__(self, error: Exception) -> None:
        self.number, self.message = error.args[0], str(error.args[1])
        self.sqlstate: str | None = getattr(error, "sqlstate", None)
        super().__init__(f"({self.number}) {self.message}")


class NotAllowed(Refusal):
    """This login may not do that."""


class CheckViolation(Refusal):
    """A value that a CHECK does not let pass."""


class Record(tuple[Any, ...]):
    """A row: by number, by name, equal to another with the same values."""

    _names: tuple[str, ...]

    @classmethod
    def of(cls, names: tuple[str, ...], values: Iterable[object]) -> Self:
        record = cls(values)
        record._names = names
        return record

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, str):
            return super().__getitem__(self._names.index(which))
        return super().__getitem__(which)

    def keys(self) -> tuple[str, ...]:
        return self._names

    def items(self) -> Iterator[tuple[str, Any]]:
        return zip(self._names, self, strict=True)


def parameters(url: str) -> dict[str, Any]:
    """What the driver wants to know, from a URL."""
    parts = urlsplit(url)
    found: dict[str, Any] = {
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": unquote(parts.path[1:]) or None,
    }
    socket = parse_qs(parts.query).get("unix_socket")
    if socket:
        return {**found, "unix_socket": socket[0]}
    return {**found, "host": parts.hostname or "127.0.0.1", "port": parts.port or 3306}


async def connect(url: str, **how: Any) -> MysqlConnection:
    """`how` overrides the URL, as with asyncpg: user=…, password=…"""
    try:
        connection = await asyncmy.connect(
            **{**parameters(url), **how},
            charset="utf8mb4",
            autocommit=True,
            client_flag=CLIENT.FOUND_ROWS,
        )
    except errors.MySQLError as error:
        raise _refusal(error) from None
    made = MysqlConnection(connection)
    await made.native(MARIADB_SETTINGS if made.is_mariadb else SETTINGS)
    return made


class MysqlConnection:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._depth = 0  # of transactions
        self._busy = False
        self.is_mariadb = "MariaDB" in connection.get_server_info()
        # MySQL's older table of sessions fails while one of them stores an emoji.
        self.processlist = (
            f"{'information' if self.is_mariadb else 'performance'}_schema.processlist"
        )

    # ── As asyncpg has it ─────────────────────────────────────────────────────────────────────

    async def fetch(self, sql: str, *values: object, timeout: float | None = None) -> list[Record]:
        text = in_mysql(sql, values)
        returning = None if self.is_mariadb else RETURNING.fullmatch(text)
        if returning:
            return await self._insert_and_read(*returning.groups())
        rows, _ = await self._run(text)
        return rows

    async def fetchrow(
        self, sql: str, *values: object, timeout: float | None = None
    ) -> Record | None:
        rows = await self.fetch(sql, *values)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *values: object, timeout: float | None = None) -> Any:
        rows = await self.fetch(sql, *values)
        return rows[0][0] if rows else None

    async def execute(self, sql: str, *values: object, timeout: float | None = None) -> str:
        """The command and how many rows it concerned: `UPDATE 1`."""
        _, count = await self._run(in_mysql(sql, values))
        return f"{sql.split(None, 1)[0].upper()} {count}"

    async def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """INSERT … VALUES, many rows to a statement."""
        given = list(rows)
        head = re.split(r"\bVALUES\b", sql, maxsplit=1)[0]
        async with self.transaction():
            for start in range(0, len(given), ROWS_MAX):
                several = (in_mysql(sql, row) for row in given[start : start + ROWS_MAX])
                tuples = [re.split(r"\bVALUES\b", one, maxsplit=1)[1] for one in several]
                await self.native(f"{head} VALUES {', '.join(tuples)}")

    def transaction(self) -> Transaction:
        return Transaction(self)

    async def close(self) -> None:
        with contextlib.suppress(errors.MySQLError, OSError):
            await self._connection.ensure_closed()

    # ── Our own ───────────────────────────────────────────────────────────────────────────────

    async def native(self, sql: str) -> list[Record]:
        """A statement in the engine's own words."""
        rows, _ = await self._run(sql)
        return rows

    @property
    def id(self) -> int:
        """What KILL takes."""
        number: int = self._connection.thread_id()
        return number

    async def _insert_and_read(self, insert: str, table: str, columns: str) -> list[Record]:
        """INSERT … RETURNING where there is no such thing: the rows' ids follow each other."""
        _, count = await self._run(insert)
        return await self.native(
            f"SELECT {columns} FROM {table} WHERE id >= LAST_INSERT_ID() ORDER BY id LIMIT {count}"
        )

    async def _run(self, sql: str) -> tuple[list[Record], int]:
        assert not self._busy, "another operation is in progress"
        self._busy = True
        wanted = None if self.is_mariadb else RETURNING_ID.search(sql)  # MySQL has no such words
        try:
            async with self._connection.cursor() as cursor:
                await cursor.execute(sql[: wanted.start()] if wanted else sql)
                if wanted:
                    ids = range(cursor.lastrowid, cursor.lastrowid + cursor.rowcount)
                    return [Record.of(("id",), (number,)) for number in ids], cursor.rowcount
                rows = await cursor.fetchall() if cursor.description else ()
                return _records(cursor.description or (), rows), cursor.rowcount
        except errors.MySQLError as error:
            raise _refusal(error) from None
        finally:
            self._busy = False


class Transaction:
    """One that is begun inside another is a savepoint."""

    def __init__(self, connection: MysqlConnection) -> None:
        self._connection = connection
        self._name = ""

    async def start(self) -> None:
        depth = self._connection._depth
        self._name = f"depth_{depth}" if depth else ""
        await self._connection.native(f"SAVEPOINT {self._name}" if self._name else "BEGIN")
        self._connection._depth += 1

    async def commit(self) -> None:
        self._connection._depth -= 1
        await self._connection.native(f"RELEASE SAVEPOINT {self._name}" if self._name else "COMMIT")

    async def rollback(self) -> None:
        self._connection._depth -= 1
        await self._connection.native(
            f"ROLLBACK TO SAVEPOINT {self._name}" if self._name else "ROLLBACK"
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await (self.commit() if kind is None else self.rollback())


def _refusal(error: Exception) -> Exception:
    """An error of the server as one of ours; one of the driver's as it is."""
    if len(error.args) < 2 or not getattr(error, "sqlstate", None):
        return error
    kinds = {
        **dict.fromkeys(NOT_ALLOWED, NotAllowed),
        **dict.fromkeys(CHECK_FAILED, CheckViolation),
    }
    return kinds.get(error.args[0], Refusal)(error)


def _records(description: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[Record]:
    names = tuple(column[0] for column in description)
    booleans = {
        number for number, column in enumerate(description) if column[1] == TINY and column[3] == 1
    }
    return [
        Record.of(
            names,
            (
                bool(value) if number in booleans and value is not None else _plain(value)
                for number, value in enumerate(row)
            ),
        )
        for row in rows
    ]


def _plain(value: Any) -> Any:
    """As PostgreSQL's driver gives it: aware times, and no Decimal for what is whole."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
