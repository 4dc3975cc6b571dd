"""The transactional outbox: an event that exists exactly when your own transaction commits.

Role    outbox_writer
Reads   nothing
Writes  INSERT events, in the caller's transaction
Never   commits, rolls back, reads, notifies, or opens a connection

    with connection.transaction():
        connection.execute("INSERT INTO orders …")
        outbox.publish(connection, "order.paid", {"order": 17})

`publish` is for psycopg 3, psycopg2, SQLAlchemy and Django, `await publish_async` for psycopg's
AsyncConnection, asyncpg and SQLAlchemy's async classes. They are two functions so that a forgotten
`await` cannot lose an event without an error: each refuses the other's connections by name.
docs/outbox.md has the rights that the login needs, and what a repeated external_id does.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from surehook import payload as payloads

Style = Literal["format", "numeric", "named"]
Family = Literal["psycopg", "psycopg2", "asyncpg", "sqlalchemy", "django"]

# The statement's parameters, in their order.
_PARAMETERS = ("event_type", "payload", "tenant", "external_id", "hash")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
# How each family of drivers writes parameters. MySQL's drivers will be further lines here, with
# store/mysql/outbox.sql as their statement.
_STYLES: dict[Family, Style] = {
    "psycopg": "format",
    "psycopg2": "format",
    "asyncpg": "numeric",
    "sqlalchemy": "named",
    "django": "format",
}
_POOLS = "Pool", "Engine", "AsyncEngine", "sessionmaker", "async_sessionmaker", "ConnectionPool"


def publish(
    connection: Any,
    event_type: str,
    payload: object,
    *,
    tenant: str = "",
    external_id: str | None = None,
    schema: str | None = None,
) -> None:
    """Insert one event in the transaction that is open on `connection`.

    `connection`: psycopg or psycopg2 connection or cursor; SQLAlchemy Session or Connection;
    Django's `connection`, or the alias of one as a text ("default").
    `payload`: bytes that are JSON already, or anything that can be written as JSON.
    `schema`: where surehook's tables are, if they are not on the search path.

    Raises ValueError for an event that may not be stored, before anything is sent. An external_id
    that is taken already inserts nothing and raises nothing: your transaction goes on.
    """
    if isinstance(connection, str):
        connection = _django_connection(connection)
    family, is_async = _recognised(connection)
    if is_async:
        raise TypeError(f"{_name(connection)} is asynchronous: await outbox.publish_async(…)")
    values = _values(event_type, payload, tenant, external_id)
    _SENDERS[family](connection, family, schema, values)


async def publish_async(
    connection: Any,
    event_type: str,
    payload: object,
    *,
    tenant: str = "",
    external_id: str | None = None,
    schema: str | None = None,
) -> None:
    """The same on an asyncpg, psycopg AsyncConnection, AsyncSession or AsyncConnection."""
    family, is_async = _recognised(connection)
    if not is_async:
        raise TypeError(f"{_name(connection)} is synchronous: use outbox.publish(…)")
    values = _values(event_type, payload, tenant, external_id)
    if family == "asyncpg":
        await connection.execute(_statement("numeric", schema), *values)
    elif family == "sqlalchemy":
        await connection.execute(_clause(schema), dict(zip(_PARAMETERS, values, strict=True)))
    else:
        await _of_cursor(connection).execute(_statement("format", schema), values)


# ── What is inserted ──────────────────────────────────────────────────────────────────────────

Values = tuple[str, str, str, str | None, int]


def _values(event_type: str, payload: object, tenant: str, external_id: str | None) -> Values:
    payloads.check_names(event_type, tenant, external_id)
    encoded = payloads.encode(payload)
    payloads.check_size(encoded)
    return event_type, encoded.decode(), tenant, external_id, key_hash(tenant, external_id)


def key_hash(tenant: str, external_id: str | None) -> int:
    """What decides the bucket: fixed for a key, so that repetitions meet; else any."""
    if external_id is None:
        return random.getrandbits(32)
    return zlib.crc32(f"{tenant}\0{external_id}".encode())


@cache
def _statement(style: Style, schema: str | None) -> str:
    """The statement of outbox.sql with the driver's own placeholders."""
    resource = files("surehook").joinpath("store", "postgres", "outbox.sql")
    lines = resource.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("--")).strip().removesuffix(";")
    if schema is not None:
        quoted = '"' + schema.replace('"', '""') + '"'
        text = text.replace("INTO events", f"INTO {quoted}.events")
        text = text.replace("surehook_bucket(", f"{quoted}.surehook_bucket(")
    if style == "format":
        return _PARAMETER.sub("%s", text.replace("%", "%%"))
    if style == "numeric":
        return _PARAMETER.sub(lambda found: f"${_PARAMETERS.index(found[1]) + 1}", text)
    return text


# ── Who inserts it ────────────────────────────────────────────────────────────────────────────


def _by_execute(connection: Any, family: Family, schema: str | None, values: Values) -> None:
    _of_cursor(connection).execute(_statement(_STYLES[family], schema), values)


def _by_cursor(connection: Any, family: Family, schema: str | None, values: Values) -> None:
    with _of_cursor(connection).cursor() as cursor:
        cursor.execute(_statement(_STYLES[family], schema), values)


def _by_clause(session: Any, family: Family, schema: str | None, values: Values) -> None:
    session.execute(_clause(schema), dict(zip(_PARAMETERS, values, strict=True)))


_SENDERS: dict[Family, Callable[[Any, Family, str | None, Values], None]] = {
    "psycopg": _by_execute,
    "psycopg2": _by_cursor,
    "sqlalchemy": _by_clause,
    "django": _by_cursor,
}


@cache
def _clause(schema: str | None) -> Any:
    """The statement for SQLAlchemy, made once: it keeps what it compiled by this object."""
    import sqlalchemy

    return sqlalchemy.text(_statement("named", schema))


def _of_cursor(connection: Any) -> Any:
    """A cursor's connection: executing on the cursor itself would lose the rows it holds."""
    return connection.connection if type(connection).__name__.endswith("ursor") else connection


def _django_connection(alias: str) -> Any:
    from django.db import connections

    return connections[alias]


_known: dict[type[Any], tuple[Family, bool]] = {}


def _recognised(connection: Any) -> tuple[Family, bool]:
    """Which driver's object this is, and whether that is asynchronous."""
    kind = type(connection)
    if kind not in _known:
        _known[kind] = _family_of(kind)
    return _known[kind]


def _family_of(kind: type[Any]) -> tuple[Family, bool]:
    """By the classes that it is made of, so that no driver is imported and subclasses count."""
    for base in kind.__mro__:
        family = base.__module__.partition(".")[0]
        if family not in _STYLES:
            continue
        name = base.__name__
        if name in _POOLS:
            raise TypeError(
                f"{name} holds many connections: give the one on which your transaction is open"
            )
        return family, family == "asyncpg" or name.startswith(("Async", "async_"))
    raise TypeError(
        f"{kind.__module__}.{kind.__qualname__} is no connection or session that the outbox "
        f"knows: {', '.join(_STYLES)}"
    )


def _name(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
