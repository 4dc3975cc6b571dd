"""Functions of ours do the same under every search path: whoever writes chooses his own."""

from __future__ import annotations

from typing import Any

import pytest

from support import dialects
from support.dialects import as_role
from support.rows import a_saga, a_subscription
from support.servers import Server

pytestmark = pytest.mark.only_on("postgres", reason="MySQL's functions know no search path")

# One of each name and operator that a function of ours uses, to be found before the real one.
FORGED = [
    ("surehook_now", "", "timestamptz"),
    ("surehook_bucket", "bigint", "smallint"),
    ("statement_timestamp", "", "timestamptz"),
    ("format", "text, VARIADIC text[]", "text"),
    ("format", "text, name", "text"),
    ("format", "text, text", "text"),
    ("format", "text, bigint", "text"),
    ("has_column_privilege", "oid, text, text", "boolean"),
    ("strpos", "text, text", "integer"),
    ("replace", "text, text, text", "text"),
    ("translate", "text, text, text", "text"),
    ("length", "text", "integer"),
    ("regexp_replace", "text, text, text, text", "text"),
]
OPERATORS = [
    ("<", "timestamptz, timestamptz", "boolean"),
    ("=", "timestamptz, timestamptz", "boolean"),
    ("=", "bigint, bigint", "boolean"),
    ("=", "text, text", "boolean"),
    ("<>", "text, text", "boolean"),
    ("+", "bigint, integer", "bigint"),
    ("-", "integer, integer", "integer"),
    (">", "integer, integer", "boolean"),
    ("%", "bigint, integer", "bigint"),
    ("~", "text, text", "boolean"),
    ("||", "text, text", "text"),
]
PATHS = ["''", "pg_catalog", "forged, pg_catalog, public", "pg_temp, forged, public, pg_catalog"]
every_path = pytest.mark.parametrize("path", PATHS)


@pytest.fixture
async def forged(owner: Any) -> Any:
    """A schema that has everything, each of which says so if it is ever called."""
    await owner.execute("CREATE SCHEMA forged; GRANT USAGE ON SCHEMA forged TO PUBLIC")
    body = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'forged: %', '{name}'; END $$"
    for name, given, result in FORGED:
        await owner.execute(
            f"CREATE FUNCTION forged.{name}({given}) RETURNS {result} {body.format(name=name)}"
        )
    for number, (sign, given, result) in enumerate(OPERATORS):
        left, right = given.split(", ")
        await owner.execute(
            f"CREATE FUNCTION forged.operator_{number}({given}) RETURNS {result} "
            f"{body.format(name=f'{sign} ({given})')}; CREATE OPERATOR forged.{sign} "
            f"(FUNCTION = forged.operator_{number}, LEFTARG = {left}, RIGHTARG = {right})"
        )
    return owner


@every_path
async def test_a_subscription_is_switched_changed_and_deleted(forged: Any, path: str) -> None:
    number = await a_subscription(forged)
    await forged.execute(f"SET search_path = {path}")
    table = "public.subscriptions"
    for change in (
        "active = false",
        "active = true",
        "event_type = 'order.sent'",
        "callback_url = 'https://elsewhere.example/', verified = true",
    ):
        await forged.execute(f"UPDATE {table} SET {change}")
    await forged.execute(f"DELETE FROM public.subscription_secrets; DELETE FROM {table}")
    await forged.execute("SET search_path = public")
    kept = "SELECT count(*) FROM subscription_eligibility WHERE subscription_id = $1"
    assert await forged.fetchval(kept, number) == 3


@every_path
async def test_an_event_of_an_outbox_is_checked_and_gets_the_time_of_the_database(
    forged: Any, server: Server, database_url: str, path: str
) -> None:
    insert = "INSERT INTO public.events (event_type, payload) VALUES ('a.b', '{}')"
    async with as_role(server, database_url, "outbox_writer") as login:
        await login.execute(f"SET search_path = {path}")
        await login.execute(insert.format("{}"))
        for payload in (r'"\ud800"', "[" * 31 + "]" * 31):
            with pytest.raises(dialects.Error, match="the payload is refused"):
                await login.execute(insert.format(payload))
        bucket = await login.fetchval("SELECT public.surehook_bucket(7)")
    recent = "created_at BETWEEN now() - interval '1 hour' AND now() + interval '1 hour'"
    assert await forged.fetchval(f"SELECT count(*) FROM events WHERE {recent}") == 1
    assert bucket == await forged.fetchval("SELECT surehook_bucket(7)")


@every_path
async def test_what_the_guards_refuse_is_refused_in_their_own_words(forged: Any, path: str) -> None:
    saga = await a_saga(forged)
    await forged.execute(f"SET search_path = {path}")
    refused = {
        "DELETE FROM public.events": "events is append-only: DELETE is refused",
        f"UPDATE public.webhook_delivery_sagas SET status = 'Completed' WHERE id IN ({saga})": (
            "is not a permitted move"
        ),
        "INSERT INTO public.webhook_delivery_jobs (saga_id, event_id, subscription_id, attempt_at)"
        " VALUES (99, 1, 1, 'epoch')": "a job for saga 99 is refused",
    }
    for statement, said in refused.items():
        with pytest.raises(dialects.Error, match=said):
            await forged.execute(statement)


async def test_every_function_says_where_it_looks(owner: Any) -> None:
    """But the two that are part of statements: a setting of their own would make them calls."""
    loose = await owner.fetch(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace "
        "AND NOT COALESCE(proconfig::text LIKE '%search_path=%', false) ORDER BY 1"
    )
    assert [row[0] for row in loose] == ["surehook_bucket", "surehook_now"]
