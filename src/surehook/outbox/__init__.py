"""The transactional outbox: an event that exists exactly when your own transaction commits.

Role    outbox_writer
Reads   nothing
Writes  INSERT events, in the caller's transaction
Never   commits, rolls back, reads, notifies, or opens a connection

    with connection.transaction():
        connection.execute("INSERT INTO orders …")
        outbox.publish(connection, "order.paid", {"order": 17})

`publish` is for blocking drivers, SQLAlchemy and Django, `await publish_async` for asynchronous
drivers and SQLAlchemy's async classes, on PostgreSQL, MySQL and MariaDB alike. They are two
functions so that a forgotten `await` cannot lose an event without an error: each refuses the
other's connections by name. docs/outbox.md lists the drivers and the rights that the login needs,
and says what a repeated external_id does.
"""

from __future__ import annotations

from typing import Any

from surehook.outbox import drivers
from surehook.outbox.statement import values_of


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

    `connection`: a connection or cursor of psycopg, psycopg2, PyMySQL, mysqlclient or MySQL
    Connector; SQLAlchemy's Session or Connection; Django's `connection`, or the alias of one as a
    text ("default").
    `payload`: bytes that are JSON already, or anything that can be written as JSON.
    `schema`: where surehook's tables are, if they are not on the search path; on MySQL the
    database that holds them, if it is not the connection's own.

    Raises ValueError for an event that may not be stored, before anything is sent. An external_id
    that is taken already inserts nothing and raises nothing: your transaction goes on.
    """
    if isinstance(connection, str):
        connection = drivers.django_connection(connection)
    kind = drivers.recognised(connection)
    if kind.is_async:
        raise TypeError(f"{_name(connection)} is asynchronous: await outbox.publish_async(…)")
    drivers.send(connection, kind, schema, values_of(event_type, payload, tenant, external_id))


async def publish_async(
    connection: Any,
    event_type: str,
    payload: object,
    *,
    tenant: str = "",
    external_id: str | None = None,
    schema: str | None = None,
) -> None:
    """The same on a connection of asyncpg, asyncmy, aiomysql, or another that is awaited."""
    kind = drivers.recognised(connection)
    if not kind.is_async:
        raise TypeError(f"{_name(connection)} is synchronous: use outbox.publish(…)")
    values = values_of(event_type, payload, tenant, external_id)
    await drivers.send_async(connection, kind, schema, values)


def _name(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
