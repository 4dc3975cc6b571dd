"""Who inserts the outbox's event: which driver a connection is of, and how that one executes.

Reads   nothing       Writes  INSERT events, in the caller's transaction

A driver is recognised by the classes that its object is made of, so that none is imported here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from surehook.outbox.statement import (
    PARAMETERS,
    Dialect,
    Values,
    has_key_beyond_ascii,
    in_dialect,
    is_repetition,
    text_of,
)

# By the package that the driver's classes are in. None: it speaks several, its connections say.
_DIALECTS: dict[str, Dialect | None] = {
    "psycopg": "postgres",
    "psycopg2": "postgres",
    "asyncpg": "postgres",
    "pymysql": "mysql",
    "MySQLdb": "mysql",
    "mysql.connector": "mysql",
    "aiomysql": "mysql",
    "asyncmy": "mysql",
    "sqlalchemy": None,
    "django": None,
}
_NAMES: dict[str, Dialect] = {  # as SQLAlchemy's dialects and Django's vendors are called
    "postgresql": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_ASYNC = ("asyncpg", "aiomysql", "asyncmy", "mysql.connector.aio")
# They take the server's messages for UTF-8, whatever the connection's character set: when one is
# not, Connector loses the number of the error, and mysqlclient takes the process down.
_READ_ONLY_UTF8 = ("mysql.connector", "MySQLdb")
_POOLS = {
    *("Pool", "Engine", "AsyncEngine", "sessionmaker", "async_sessionmaker", "ConnectionPool"),
    *("AsyncConnectionPool", "MySQLConnectionPool"),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """What a connection is."""

    family: str
    is_async: bool
    dialect: Dialect | None
    """None: ask the connection."""


# ── Sending ───────────────────────────────────────────────────────────────────────────────────


def send(connection: Any, kind: Kind, schema: str | None, values: Values) -> None:
    dialect = _dialect_of(connection, kind)
    given = in_dialect(dialect, values)
    if dialect == "mysql" and has_key_beyond_ascii(values):
        _refuse_unreadable(_raw_connection(connection, kind))
    with _ignore_duplicate_key(dialect):
        if kind.family == "sqlalchemy":
            connection.execute(_clause(dialect, schema), _named(given))
        else:
            # Of its own: executing on the caller's would lose the rows that it holds.
            with closing(_of_cursor(connection).cursor()) as cursor:
                cursor.execute(text_of(dialect, "format", schema), given)


async def send_async(connection: Any, kind: Kind, schema: str | None, values: Values) -> None:
    dialect = _dialect_of(connection, kind)
    given = in_dialect(dialect, values)
    # SQLAlchemy's asynchronous drivers read every answer.
    if dialect == "mysql" and kind.family != "sqlalchemy" and has_key_beyond_ascii(values):
        _refuse_unreadable(_of_cursor(connection))
    with _ignore_duplicate_key(dialect):
        if kind.family == "sqlalchemy":
            await connection.execute(_clause(dialect, schema), _named(given))
        elif kind.family == "asyncpg":
            await connection.execute(text_of(dialect, "numeric", schema), *given)
        else:
            await _by_cursor(_of_cursor(connection), text_of(dialect, "format", schema), given)


async def _by_cursor(connection: Any, text: str, given: Values) -> None:
    made = connection.cursor()
    cursor = await made if inspect.isawaitable(made) else made
    try:
        await cursor.execute(text, given)
    finally:
        await cursor.close()


@contextmanager
def _ignore_duplicate_key(dialect: Dialect) -> Iterator[None]:
    """On PostgreSQL the statement itself forgives them: an error there ends the transaction."""
    try:
        yield
    except Exception as error:
        if dialect != "mysql" or not is_repetition(error):
            raise


def _refuse_unreadable(connection: Any) -> None:
    """If the key is a repetition, the server's answer will quote it."""
    if not any(_is_within(base.__module__, *_READ_ONLY_UTF8) for base in type(connection).__mro__):
        return
    says = getattr(connection, "character_set_name", None)
    charset = says() if says else connection.charset
    if not charset.startswith("utf8"):
        raise ValueError(
            f"tenant and external_id must be ASCII on a connection in {charset}, of which this "
            "driver cannot read every answer: open it with charset='utf8mb4'"
        )


def _raw_connection(connection: Any, kind: Kind) -> Any:
    """The connection below SQLAlchemy's or Django's."""
    if kind.family == "sqlalchemy":
        bound = connection.connection() if hasattr(connection, "get_bind") else connection
        return bound.connection.driver_connection
    if kind.family == "django":
        wrapper = getattr(connection, "db", connection)
        wrapper.ensure_connection()
        return wrapper.connection
    return _of_cursor(connection)


@cache
def _clause(dialect: Dialect, schema: str | None) -> Any:
    """The statement for SQLAlchemy, made once: it keeps what it compiled by this object."""
    import sqlalchemy

    return sqlalchemy.text(text_of(dialect, "named", schema))


def _named(given: Values) -> dict[str, object]:
    return dict(zip(PARAMETERS, given, strict=True))


def _of_cursor(connection: Any) -> Any:
    """A cursor's connection; a connection's own self."""
    if hasattr(connection, "commit"):
        return connection
    return getattr(connection, "connection", None) or connection._connection


# ── Recognising ───────────────────────────────────────────────────────────────────────────────

_known: dict[type[Any], Kind] = {}


def recognised(connection: Any) -> Kind:
    """Which driver's object this is, and whether that is asynchronous."""
    kind = type(connection)
    if kind not in _known:
        _known[kind] = _kind_of(kind)
    return _known[kind]


def django_connection(alias: str) -> Any:
    from django.db import connections

    return connections[alias]


def _kind_of(kind: type[Any]) -> Kind:
    for base in kind.__mro__:
        family = _family_of(base.__module__)
        if family is None:
            continue
        name = base.__name__
        if name in _POOLS:
            raise TypeError(
                f"{name} holds many connections: give the one on which your transaction is open"
            )
        is_async = _is_within(base.__module__, *_ASYNC) or name.startswith(("Async", "async_"))
        return Kind(family, is_async, _DIALECTS[family])
    raise TypeError(
        f"{kind.__module__}.{kind.__qualname__} is not a connection or session that the outbox "
        f"knows: {', '.join(_DIALECTS)}"
    )


def _family_of(module: str) -> str | None:
    return next((family for family in _DIALECTS if _is_within(module, family)), None)


def _is_within(module: str, *packages: str) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _dialect_of(connection: Any, kind: Kind) -> Dialect:
    if kind.dialect is not None:
        return kind.dialect
    name = _vendor_of(connection) if kind.family == "django" else _bound_to(connection).dialect.name
    if name not in _NAMES:
        raise TypeError(f"the outbox is for PostgreSQL, MySQL and MariaDB, and not for {name}")
    return _NAMES[name]


def _bound_to(connection: Any) -> Any:
    """A session's engine or connection; a connection's own self."""
    return connection.get_bind() if hasattr(connection, "get_bind") else connection


def _vendor_of(connection: Any) -> str:
    vendor: str = getattr(connection, "db", connection).vendor  # a cursor's connection is its db
    return vendor
