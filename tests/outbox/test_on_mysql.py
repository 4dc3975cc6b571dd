"""The outbox where connections differ: MySQL's character sets, SQL modes, time zones and errors."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import aiomysql
import asyncmy
import mysql.connector
import pymysql
import pytest
import sqlalchemy as sa
from mysql.connector.pooling import MySQLConnectionPool

from support import mysql_drivers
from support.applications import Driver, Login, usual
from support.outbox import Routed
from surehook import outbox
from surehook.outbox.statement import is_repetition

pytestmark = pytest.mark.only_on("mysql", reason="is about what its connections are set to")

PAYLOADS = [
    '{"text":"ü 😀 \' \\" \\\\ % %s :name \\u0000"}'.encode(),
    r"""["¿\\' 縗\\"]""".encode(),  # gbk and sjis see other backslashes
    b"null",
]
SETTINGS = [
    "SET NAMES latin1",
    "SET NAMES gbk",
    "SET NAMES sjis",
    "SET character_set_client = 'binary', character_set_connection = 'binary'",
    "SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
    "SET sql_mode = 'ANSI,IGNORE_SPACE'",
    "SET sql_mode = ''",
]
# Drivers that take every message of the server for UTF-8.
UTF8_READERS = [
    mysql_drivers.with_connector,
    mysql_drivers.with_connector_pool,
    mysql_drivers.with_connector_async,
    mysql_drivers.with_sqlalchemy_connection,
    *([mysql_drivers.with_mysqlclient, mysql_drivers.with_django] * mysql_drivers.HAS_MYSQLCLIENT),
]


# ── Whatever the connection is set to ─────────────────────────────────────────────────────────


async def test_payloads_arrive_byte_for_byte_however_the_session_is_set(
    driver: Driver, login: Login, owner: Any
) -> None:
    for setting in SETTINGS:
        async with driver(login) as transaction:
            await transaction.execute(setting)
            for payload in PAYLOADS:
                await transaction.publish("order.paid", payload, tenant="ü\\'")
    rows = await owner.fetch("SELECT payload, tenant FROM events ORDER BY id")
    assert [row[0].encode() for row in rows] == PAYLOADS * len(SETTINGS)
    assert {row[1] for row in rows} == {"ü\\'"}


async def test_a_connection_in_latin1_stores_the_same_bytes(
    driver: Driver, login: Login, owner: Any
) -> None:
    async with driver(replace(login, charset="latin1")) as transaction:
        for payload in PAYLOADS:
            await transaction.publish("order.paid", payload, external_id="the same")
            await transaction.publish("order.paid", payload, tenant="ü😀")
    rows = await owner.fetch("SELECT payload FROM events WHERE tenant <> '' ORDER BY id")
    assert [row[0].encode() for row in rows] == PAYLOADS
    assert await owner.fetchval("SELECT count(*) FROM events WHERE tenant = ''") == 1


async def test_a_key_beyond_ascii_in_latin1_is_forgiven_or_refused_before_anything_is_sent(
    driver: Driver, login: Login, owner: Any
) -> None:
    async with driver(replace(login, charset="latin1")) as transaction:
        for _ in range(2):
            if driver in UTF8_READERS:
                with pytest.raises(ValueError, match="open it with charset='utf8mb4'"):
                    await transaction.publish("order.paid", 1, external_id="ü😀")
            else:
                await transaction.publish("order.paid", 1, external_id="ü😀")
        await transaction.execute("INSERT INTO orders VALUES (1)")
    stored = 0 if driver in UTF8_READERS else 1
    assert await owner.fetchval("SELECT count(*) FROM events") == stored
    assert await owner.fetchval("SELECT count(*) FROM orders") == 1


async def test_what_the_server_cannot_read_is_an_error_and_stores_nothing(
    login: Login, owner: Any
) -> None:
    """Such character sets have no digits of one byte."""
    async with usual(login) as transaction:
        await transaction.execute("SET character_set_connection = 'utf16'")
        with pytest.raises(asyncmy.errors.MySQLError):
            await transaction.publish("order.paid", 1)
    assert await owner.fetchval("SELECT count(*) FROM events") == 0


@pytest.mark.parametrize("zone", ["+08:00", "-11:00"])
async def test_created_at_is_utc_through_a_connection_in_another_time_zone(
    zone: str, driver: Driver, login: Login, routed: Routed, owner: Any
) -> None:
    async with driver(login) as transaction:
        await transaction.execute(f"SET time_zone = '{zone}'")
        await transaction.publish("order.paid", 1)
    age = await owner.fetchval("SELECT EXTRACT(EPOCH FROM surehook_now() - created_at) FROM events")
    assert 0 <= age < 60
    await routed.until("1")  # an hour too early, and the subscription would not want it


# ── Errors ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1])  # in two of them the other key would not be repeated
async def test_only_a_repeated_key_is_forgiven(
    driver: Driver, login: Login, owner: Any, buckets: int
) -> None:
    await owner.native("ALTER TABLE events ADD UNIQUE KEY another_key (event_type, bucket)")
    with pytest.raises(Exception, match="another_key"):
        async with driver(login) as transaction:
            await transaction.publish("order.paid", 1, external_id="a")
            await transaction.publish("order.paid", 2, external_id="uniq_event_external_id")
    assert await owner.fetchval("SELECT count(*) FROM events") == 0


async def test_a_missing_right_is_an_error(driver: Driver, login: Login, owner: Any) -> None:
    for host in ("localhost", "'%'"):
        await owner.native(f"REVOKE EXECUTE ON FUNCTION surehook_bucket FROM {login.user}@{host}")
    with pytest.raises(Exception, match="denied"):
        async with driver(login) as transaction:
            await transaction.publish("order.paid", 1, external_id="a")
    for host in ("localhost", "'%'"):  # as it was, for the next test
        await owner.native(f"GRANT EXECUTE ON FUNCTION surehook_bucket TO {login.user}@{host}")


@pytest.mark.parametrize(
    ("error", "forgiven"),
    [
        (
            pymysql.IntegrityError(1062, "Duplicate entry '-a-0' for key 'uniq_event_external_id'"),
            1,
        ),
        (pymysql.IntegrityError(1062, "… 'x' for key 'events.uniq_event_external_id'"), 1),
        (pymysql.IntegrityError(1062, "Doppelter Eintrag 'x' für 'uniq_event_external_id'"), 1),
        (mysql.connector.IntegrityError("… 'x' for key 'uniq_event_external_id'", 1062), 1),
        (pymysql.IntegrityError(1062, "… 'uniq_event_external_id' for key 'PRIMARY'"), 0),
        (pymysql.IntegrityError(1062, "… 'x' for key 'not_uniq_event_external_id'"), 0),
        (pymysql.IntegrityError(1048, "Column 'uniq_event_external_id' cannot be null"), 0),
        (pymysql.IntegrityError(1062), 0),
        (pymysql.InterfaceError(), 0),
        (mysql.connector.InterfaceError("Failed getting Error information"), 0),
        (ValueError("1062 'uniq_event_external_id'"), 0),
    ],
)
def test_a_repetition_is_known_by_its_number_and_its_key(error: Exception, forgiven: int) -> None:
    assert is_repetition(error) is bool(forgiven)


async def test_a_repetition_is_recognised_in_the_language_of_the_server(
    login: Login, owner: Any
) -> None:
    for language in ("de_DE", "fr_FR", "ja_JP", "uk_UA"):
        async with usual(login) as transaction:
            await transaction.execute(f"SET lc_messages = '{language}'")
            for _ in range(2):
                await transaction.publish("order.paid", 1, external_id=language)
    assert await owner.fetchval("SELECT count(*) FROM events") == 4


# ── Which connections ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def elsewhere(login: Login, owner: Any) -> AsyncIterator[Login]:
    """The same login in a database of the application's own, where `events` is another table."""
    name = f"app_{uuid.uuid4().hex[:8]}"
    await owner.native(f"CREATE DATABASE {name}")
    await owner.native(f"CREATE TABLE {name}.events (mine integer)")
    for host in ("localhost", "'%'"):
        await owner.native(f"GRANT ALL ON {name}.* TO {login.user}@{host}")
    yield replace(login, database=name)
    await owner.native(f"DROP DATABASE {name}")


async def test_the_tables_may_be_in_another_database(
    driver: Driver, login: Login, elsewhere: Login, owner: Any
) -> None:
    async with driver(elsewhere) as transaction:
        await transaction.execute("INSERT INTO events VALUES (1)")
        for _ in range(2):
            await transaction.publish("order.paid", 1, external_id="a", schema=login.database)
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


@contextmanager
def _closing(connection: Any) -> Iterator[Any]:
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


@pytest.mark.parametrize("connect", [pymysql.connect, mysql.connector.connect])
async def test_a_cursor_keeps_its_rows(connect: Any, login: Login, owner: Any) -> None:
    with _closing(connect(**mysql_drivers.arguments(login))) as connection:
        buffered = {"buffered": True} if connect is mysql.connector.connect else {}
        cursor = connection.cursor(**buffered)
        cursor.execute("SELECT 1 UNION ALL SELECT 2")
        outbox.publish(cursor, "order.paid", 1)
        assert cursor.fetchall() in ([(1,), (2,)], ((1,), (2,)))
        cursor.close()
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


@pytest.mark.parametrize("driver_name", ["aiomysql", "asyncmy"])
async def test_an_asynchronous_cursor_keeps_its_rows(
    driver_name: str, login: Login, owner: Any
) -> None:
    async with (
        mysql_drivers.DRIVERS[driver_name](login) as transaction,
        transaction.handle.cursor() as cursor,
    ):
        await cursor.execute("SELECT 1 UNION ALL SELECT 2")
        await outbox.publish_async(cursor, "order.paid", 1)
        assert [*await cursor.fetchall()] == [(1,), (2,)]
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


@asynccontextmanager
async def _pool(library: Any, arguments: dict[str, Any]) -> AsyncIterator[Any]:
    async with library.create_pool(**arguments, minsize=1) as pool:
        yield pool


async def test_a_connection_of_the_other_kind_is_refused_by_name(login: Login) -> None:
    async with usual(login) as transaction:
        with pytest.raises(TypeError, match=r"publish_async"):
            outbox.publish(transaction.handle, "a", 1)
    with (
        _closing(pymysql.connect(**mysql_drivers.arguments(login))) as blocking,
        pytest.raises(TypeError, match="synchronous"),
    ):
        await outbox.publish_async(blocking, "a", 1)


async def test_a_pool_is_refused(login: Login) -> None:
    arguments = mysql_drivers.arguments(login)
    for library, given in ((asyncmy, arguments), (aiomysql, mysql_drivers.renamed(login))):
        async with _pool(library, given) as pool:
            with pytest.raises(TypeError, match="on which your transaction is open"):
                await outbox.publish_async(pool, "a", 1)
    pool = MySQLConnectionPool(pool_size=1, pool_name=login.user, **arguments)
    with pytest.raises(TypeError, match="on which your transaction is open"):
        outbox.publish(pool, "a", 1)
    pool._remove_connections()


def test_the_dialect_of_another_database_is_refused_by_name() -> None:
    with (
        sa.create_engine("sqlite://").connect() as connection,
        pytest.raises(TypeError, match="not for sqlite"),
    ):
        outbox.publish(connection, "a", 1)
