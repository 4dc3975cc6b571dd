"""The outbox, by every driver, as a login with no right but outbox_writer's, seen by the router."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from django.db import connections
from django.utils.connection import ConnectionProxy

from support.applications import DRIVERS, Driver, Login, usual
from support.dialects import NotAllowed, native
from support.outbox import Routed
from support.servers import connected
from surehook import outbox
from surehook.actions.ingest import Ingest
from surehook.model.records import NewEvent
from surehook.outbox.statement import values_of
from surehook.store import store_of
from surehook.store.hints import Hints
from surehook.store.ingest import IngestStore

on_postgres = pytest.mark.only_on("postgres", reason="is about drivers or a schema of its own")
several_buckets = pytest.mark.parametrize("buckets", [4])


class Undone(Exception):
    """Makes a transaction roll back."""


# ── With the caller's transaction ─────────────────────────────────────────────────────────────


async def test_an_event_lives_and_dies_with_the_callers_transaction(
    driver: Driver, login: Login, routed: Routed, owner: Any
) -> None:
    with pytest.raises(Undone):
        async with driver(login) as transaction:
            await transaction.execute("INSERT INTO orders VALUES (1)")
            await transaction.publish("order.paid", {"order": 1})
            raise Undone
    async with driver(login) as transaction:
        await transaction.execute("INSERT INTO orders VALUES (2)")
        await transaction.publish("order.paid", b'{"order":  2.50}')
        assert await routed.now() == []  # nobody sees it before the commit
    await routed.until('{"order":  2.50}')
    assert await routed.now() == ['{"order":  2.50}']
    assert [row[0] for row in await owner.fetch("SELECT id FROM orders")] == [2]


async def test_a_transaction_held_open_delays_nobody_else(
    driver: Driver, login: Login, routed: Routed
) -> None:
    await _held_open(driver, login, routed, seconds=2)


@pytest.mark.long
async def test_a_transaction_held_open_for_half_a_minute_delays_nobody_else(
    driver: Driver, login: Login, routed: Routed
) -> None:
    await _held_open(driver, login, routed, seconds=30)


async def _held_open(driver: Driver, login: Login, routed: Routed, seconds: float) -> None:
    until = time.monotonic() + seconds
    async with driver(login) as held:
        await held.publish("order.paid", "held")
        number = 0
        while number < 3 or time.monotonic() < until:
            number += 1
            async with usual(login) as other:
                await other.publish("order.paid", number)
            await routed.until(str(number))
        assert '"held"' not in await routed.now()
    await routed.until('"held"')
    assert len(await routed.now()) == number + 1


@several_buckets
async def test_a_repeated_key_inserts_nothing_and_breaks_nothing(
    driver: Driver, login: Login, routed: Routed, owner: Any, buckets: int
) -> None:
    keys = ["o-1", "o'1\"\\% %s :name ü😀", "x" * 255]
    for number in range(3):
        async with driver(login) as transaction:
            for key in keys:
                await transaction.publish("order.paid", "first", tenant="t", external_id=key)
            await transaction.publish("order.paid", number)
            await transaction.execute(f"INSERT INTO orders VALUES ({number})")
    rows = await owner.fetch("SELECT external_id FROM events WHERE tenant = 't' ORDER BY id")
    assert [row[0] for row in rows] == keys
    assert await owner.fetchval("SELECT count(*) FROM orders") == 3
    await routed.until("0", "1", "2")


@pytest.mark.parametrize("buckets", [1, 4])
async def test_an_event_of_the_outbox_and_the_same_one_sent_to_the_api_meet(
    login: Login, open_store: Any, owner: Any, buckets: int
) -> None:
    store = store_of(IngestStore, await open_store("ingest"))
    api = Ingest(store, Hints(), buckets)
    keys = [f"order-{number}-ü" for number in range(16)]
    async with usual(login) as transaction:
        for key in keys:
            await transaction.publish("order.paid", {"a": "ü"}, tenant="x", external_id=key)
    for key in keys:
        assert (await api.publish(NewEvent("order.paid", '{"a":"ü"}', "x", key))).duplicate
    used = await owner.fetchval("SELECT count(DISTINCT bucket) FROM events")
    assert used == buckets


@several_buckets
async def test_events_without_a_key_spread_over_the_buckets(
    login: Login, owner: Any, buckets: int
) -> None:
    async with usual(login) as transaction:
        for number in range(64):
            await transaction.publish("order.paid", number)
    assert await owner.fetchval("SELECT count(DISTINCT bucket) FROM events") == buckets


@on_postgres
async def test_a_cursor_keeps_its_rows(login: Login, owner: Any) -> None:
    with psycopg.connect(login.url()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT generate_series(1, 3)")
        outbox.publish(cursor, "order.paid", 1)
        assert cursor.fetchall() == [(1,), (2,), (3,)]
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


@on_postgres
async def test_a_json_codec_of_the_application_changes_nothing(login: Login, owner: Any) -> None:
    async with connected(login.url()) as connection:
        await connection.set_type_codec(
            "json", schema="pg_catalog", encoder=lambda _: '"wrong"', decoder=str
        )
        await outbox.publish_async(connection, "order.paid", {"a": 1})
    assert await owner.fetchval("SELECT payload FROM events") == '{"a":1}'


async def test_djangos_default_connection_object_will_do(login: Login, owner: Any) -> None:
    async with DRIVERS[login.engine]["django"](login) as transaction:
        proxy = ConnectionProxy(connections, transaction.handle.alias)
        outbox.publish(proxy, "order.paid", 1)
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


# ── Rights ────────────────────────────────────────────────────────────────────────────────────


REFUSED = {
    "postgres": [
        "INSERT INTO events (event_type, payload) VALUES ('a', '1') RETURNING id",
        "SELECT nextval('events_id_seq')",
    ],
    "mysql": [
        native("REPLACE INTO events (event_type, payload) VALUES ('a', '1')"),
        native(
            "INSERT INTO events (event_type, payload) VALUES ('a', '1') "
            "ON DUPLICATE KEY UPDATE payload = '2'"
        ),
        native("SELECT id FROM events LOCK IN SHARE MODE"),
    ],
}


async def test_the_login_has_the_rights_of_outbox_writer_and_no_more(
    login: Login, owner: Any
) -> None:
    async with connected(login.url()) as connection:
        for statement in (
            "SELECT id FROM events",
            "SELECT count(*) FROM events",
            "INSERT INTO events (id, event_type, payload) VALUES (1, 'a', '1')",
            "UPDATE events SET payload = '2'",
            "DELETE FROM events",
            "SELECT value FROM schema_settings",
            "SELECT id FROM subscriptions",
            *REFUSED[login.engine],
        ):
            with pytest.raises(NotAllowed):
                await connection.execute(statement)
    assert await owner.fetchval("SELECT count(*) FROM events") == 0


@on_postgres
async def test_the_tables_may_be_in_a_schema_that_is_not_on_the_path(
    login: Login, owner: Any
) -> None:
    await owner.execute(
        "CREATE SCHEMA hooks; ALTER TABLE events SET SCHEMA hooks; "
        "ALTER FUNCTION surehook_bucket SET SCHEMA hooks; "
        "GRANT USAGE ON SCHEMA hooks TO outbox_writer; "
        "CREATE TABLE events (mine integer)"
    )
    for driver in ("psycopg", "asyncpg", "sqlalchemy session"):
        async with DRIVERS["postgres"][driver](login) as transaction:
            await transaction.publish("order.paid", driver, schema="hooks")
    assert await owner.fetchval("SELECT count(*) FROM hooks.events") == 3
    await owner.execute("DROP SCHEMA hooks CASCADE")


# ── What is refused ───────────────────────────────────────────────────────────────────────────

deep: Any = 1
for _ in range(31):
    deep = [deep]


@pytest.mark.parametrize(
    ("arguments", "named", "reason"),
    [
        (("order paid", 1), {}, "event_type must be"),
        (("", 1), {}, "event_type must be"),
        (("order.paid\n", 1), {}, "event_type must be"),
        (("x" * 101, 1), {}, "event_type must be"),
        (("a", float("nan")), {}, "cannot be written as JSON"),
        (("a", object()), {}, "cannot be written as JSON"),
        (("a", "\ud800"), {}, "surrogate"),
        (("a", b'"\\ud800"'), {}, "not JSON"),
        (("a", b"{"), {}, "not JSON"),
        (("a", b'{"a":1},"tenant":"other"'), {}, "not JSON"),
        (("a", b"NaN"), {}, "not JSON"),
        (("a", b'"\xff"'), {}, "not UTF-8"),
        (("a", b""), {}, "not JSON"),
        (("a", deep), {}, "deeper than 30"),
        (("a", b"[" * 31 + b"]" * 31), {}, "deeper than 30"),
        (("a", b"[" * 99999 + b"]" * 99999), {}, "deeper than 30"),
        (("a", "x" * 1024 * 1024), {}, "at most 1048576"),
        (("a", 1), {"tenant": "t" * 101}, "tenant must be"),
        (("a", 1), {"tenant": "\0"}, "tenant contains a control character, U\\+0000"),
        (("a", 1), {"external_id": ""}, "external_id must be"),
        (("a", 1), {"external_id": "x" * 256}, "external_id must be"),
        (("a", 1), {"external_id": "\udc00"}, "external_id contains an unpaired surrogate"),
    ],
)
def test_what_may_not_be_stored_is_refused_before_anything_is_sent(
    arguments: tuple[Any, ...], named: dict[str, Any], reason: str
) -> None:
    """An object that looks like psycopg's would fail at the first use of it."""
    connection = type("Connection", (), {"__module__": "psycopg"})()
    with pytest.raises(ValueError, match=reason):
        outbox.publish(connection, *arguments, **named)


def test_thirty_levels_and_brackets_in_texts_are_fine() -> None:
    for payload in (b"[" * 30 + b"]" * 30, b'"' + b"[" * 99 + b'\\"{{"', b"[{},{}]" * 1):
        assert values_of("a", payload, "", None)[1] == payload.decode()


@asynccontextmanager
async def _pool(login: Login) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(login.url(), min_size=0) as pool:
        yield pool


@on_postgres
async def test_a_connection_of_the_other_kind_is_refused_by_name(login: Login) -> None:
    async with connected(login.url()) as connection:
        with pytest.raises(TypeError, match="publish_async"):
            outbox.publish(connection, "a", 1)
    with psycopg.connect(login.url()) as blocking, pytest.raises(TypeError, match="synchronous"):
        await outbox.publish_async(blocking, "a", 1)
    async with _pool(login) as pool:
        with pytest.raises(TypeError, match="on which your transaction is open"):
            await outbox.publish_async(pool, "a", 1)
    with pytest.raises(TypeError, match="knows: psycopg"):
        outbox.publish(object(), "a", 1)


# ── Any payload, byte for byte ────────────────────────────────────────────────────────────────


PAYLOADS = [
    b'{"b":1,"a":2,"b":3}',
    b'{ "spaced" : [ 1.10, 1e400, -0 ] }',
    '{"text":"ü 😀 % %s :name $1 \\u0000"}'.encode(),
    b"9" * 400,
    b"null",
]


async def test_encoded_payloads_are_stored_byte_for_byte(
    driver: Driver, login: Login, owner: Any
) -> None:
    async with driver(login) as transaction:
        for payload in PAYLOADS:
            await transaction.publish("order.paid", payload)
    rows = await owner.fetch("SELECT payload FROM events ORDER BY id")
    assert [row[0].encode() for row in rows] == PAYLOADS
