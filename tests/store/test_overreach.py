"""Every way to write a row but a plain INSERT or UPDATE, tried as each role on each table.

Rights are by column, and a server may forget to ask for them on some way: MariaDB does not look at
the columns that ON DUPLICATE KEY UPDATE writes. So it is the rows that are compared, not the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import dialects
from support.dialects import as_role
from support.rows import a_dead_letter, a_job, a_secret, a_subscription
from support.servers import Server
from support.translate import literal
from surehook.model.roles import ROLES, ROLES_ON, TABLES_ON, Role, Verb

every_role = pytest.mark.parametrize("name", [role.name for role in ROLES])
# What a row is found by, and by which a new one collides with it.
KEYS = {
    "processes": ("process_id", "component"),
    "system_figures": ("name",),
    "events": ("tenant", "external_id", "bucket"),
    "subscriptions": ("tenant", "idempotency_key"),
    "webhook_delivery_sagas": ("event_id", "subscription_id", "requeued_from", "bucket"),
    "webhook_delivery_jobs": ("saga_id", "attempt_at", "bucket"),
    "dead_letters": ("saga_id", "bucket"),
    "router_cursor": ("bucket",),
    "router_gaps": ("bucket", "first_id"),
    "router_held": ("bucket", "subscription_id", "event_id"),
    "orchestrator_subscriptions": ("subscription_id",),
    "dead_letter_cursor": ("bucket",),
    "api_keys": ("key_hash",),
    "schema_migrations": ("version",),
    "schema_settings": ("name",),
}
GENERATED = {"waiting", "died_at", "open_for"}  # no statement of anybody's can write these
STATUSES = {"webhook_delivery_sagas": "InProgress", "webhook_delivery_jobs": "Leased"}


async def a_row_in_every_table(owner: Any, engine: str) -> None:
    subscription_id = await a_subscription(owner, verified=False)
    await owner.execute("UPDATE subscriptions SET idempotency_key = 'key', description = 'd'")
    secret_id = await a_secret(owner, subscription_id, "whsec_c2VjcmV0")
    await owner.execute(
        "INSERT INTO subscription_verifications (subscription_id, callback_url, secret_id, "
        "challenge, code, expires_at) VALUES ($1, 'https://x', $2, 'c', 'c', surehook_now())",
        subscription_id,
        secret_id,
    )
    await a_dead_letter(owner)
    await a_job(owner)
    await owner.execute(
        "INSERT INTO events (event_type, payload, external_id) VALUES ('order.paid', '{}', 'key')"
    )
    await owner.execute(
        "INSERT INTO api_keys (name, key_hash, scopes) VALUES ('k', 'hash', 'read')"
    )
    await owner.execute("INSERT INTO dead_letter_cursor (bucket) VALUES (0)")
    await owner.execute(
        "INSERT INTO subscription_eligibility (subscription_id, tenant, pattern, eligible_from, "
        "eligible_until) VALUES ($1, '', 'order.paid', '2026-01-01', '2026-01-02')",
        subscription_id,
    )
    await owner.execute(
        "INSERT INTO router_held (bucket, subscription_id, event_id) VALUES (0, 1, 1)"
    )
    await owner.execute("INSERT INTO orchestrator_subscriptions (subscription_id) VALUES (1)")
    await owner.execute(
        "INSERT INTO processes (process_id, component, host, pid, version, since, heartbeat_at, "
        "step_at) VALUES ('p', 'worker', 'h', 1, '1', surehook_now(), surehook_now(), "
        "surehook_now())"
    )
    await owner.execute(
        "INSERT INTO system_figures (name, begun_at) VALUES ('backlog', surehook_now())"
    )
    if engine == "mysql":
        await owner.execute("INSERT INTO router_cursor (bucket) VALUES (0)")
        await owner.execute("INSERT INTO router_gaps (bucket, first_id, last_id) VALUES (0, 1, 2)")
    else:
        await owner.execute(
            "INSERT INTO router_cursor (bucket, system_identifier, snapshot) "
            "VALUES (0, 0, pg_current_snapshot())"
        )


def another(table: str, column: str, value: Any) -> str:
    """A literal that is not what stands there, and that the column would take."""
    if column == "status":
        return literal(STATUSES[table])
    if column in ("payload", "payload_snapshot"):
        return "'[7]'"
    if column.endswith("_url"):
        return "'https://elsewhere.example/'"
    if column == "scheme":
        return "'v1a'"
    if column.endswith(("_at", "_until", "eligible_from", "eligible_first")):
        return "'2030-01-01 00:00:00'"
    if column == "snapshot":
        return "'7:7:'"
    if column == "since":
        return "'2030-01-01 00:00:00'"
    if isinstance(value, bool):
        return "0" if value else "1"
    if isinstance(value, str | bytes):
        return "'other'"
    return "7" if value != 7 else "8"


def as_literal(value: Any) -> str:
    if isinstance(value, bytes):
        return literal(value.decode())
    return literal(value)


def sets_to_insert(role: Role, table: str, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Which columns an insert that shall collide names: all, what the role may insert, what it may
    also update (only those are asked for on some servers), the bare key, none."""
    inserts, updates = role.columns(Verb.INSERT, table), role.columns(Verb.UPDATE, table)
    found = [
        columns,
        tuple(c for c in columns if c in inserts),
        tuple(c for c in columns if c in inserts & updates),
        KEYS.get(table, ("id",)),
        (),
    ]
    return list(dict.fromkeys(found))


def upserts(
    engine: str, role: Role, table: str, row: dict[str, Any], column: str
) -> Iterator[list[str]]:
    """Statements, each list in one session, that would change `column` of the row if they could."""
    columns = tuple(c for c in TABLES_ON[engine][table] if c not in GENERATED)
    change = f"{column} = {another(table, column, row[column])}"
    key = KEYS.get(table, ("id",))
    for named in sets_to_insert(role, table, columns):
        names, values = ", ".join(named), ", ".join(as_literal(row[c]) for c in named)
        if engine == "postgres":
            yield from _on_postgres(table, names, values, ", ".join(key), change)
        else:
            yield from _on_mysql(table, names, values, row.get("id"), change)
    where = " AND ".join(f"t.{c} = {as_literal(row[c])}" for c in key)
    if engine == "postgres":
        yield [f"UPDATE {table} t SET {change} FROM (SELECT 1) AS one WHERE {where}"]
        yield [
            f"MERGE INTO {table} t USING (SELECT 1) AS one ON {where} "
            f"WHEN MATCHED THEN UPDATE SET {change}"
        ]
    else:
        yield [f"UPDATE {table} t JOIN (SELECT 1) AS one SET t.{change} WHERE {where}"]
        yield [f"UPDATE (SELECT 1) AS one STRAIGHT_JOIN {table} t SET t.{change}"]


def _on_postgres(table: str, names: str, values: str, key: str, change: str) -> Iterator[list[str]]:
    if names:
        insert = f"INSERT INTO {table} ({names})"
        yield [f"{insert} VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {change}"]
        yield [f"{insert} SELECT {values} ON CONFLICT ({key}) DO UPDATE SET {change}"]
        yield [
            f"MERGE INTO {table} t USING (SELECT 1) AS one ON true WHEN MATCHED THEN "
            f"UPDATE SET {change} WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
        ]


def _on_mysql(
    table: str, names: str, values: str, number: int | None, change: str
) -> Iterator[list[str]]:
    upsert = f"ON DUPLICATE KEY UPDATE {change}"
    yield [f"INSERT INTO {table} ({names}) VALUES ({values}) {upsert}"]
    if names:
        yield [f"INSERT INTO {table} ({names}) SELECT {values} {upsert}"]
        yield [f"REPLACE INTO {table} ({names}) VALUES ({values})"]
    if number is not None:  # the next number given out is the row's own
        forced = f"SET insert_id = {number}"
        yield [forced, f"INSERT INTO {table} ({names}) VALUES ({values}) {upsert}"]
        yield [forced, f"REPLACE INTO {table} ({names}) VALUES ({values})"]


async def attempt(login: Any, statements: Iterable[str], engine: str) -> None:
    try:
        for statement in statements:
            if engine == "mysql":
                await login.native(statement)
            else:
                await login.execute(statement)
    except dialects.Error:
        pass


async def rows_of(owner: Any, table: str) -> list[dict[str, Any]]:
    return [dict(row.items()) for row in await owner.fetch(f"SELECT * FROM {table} ORDER BY 1")]


@every_role
async def test_no_statement_changes_a_column_that_the_role_may_not_update(
    name: str, owner: Any, server: Server, database_url: str
) -> None:
    engine = server.engine
    role = next(role for role in ROLES_ON[engine] if role.name == name)
    await a_row_in_every_table(owner, engine)
    async with as_role(server, database_url, name) as login:
        if engine == "mysql":  # without strict mode a column that is not named gets a value
            await login.native("SET SESSION sql_mode = ''")
        for table, columns in TABLES_ON[engine].items():
            if table in role.may_delete:
                continue  # its own notes, which it may even delete
            before = await rows_of(owner, table)
            assert before, table
            forbidden = [c for c in columns if c not in role.columns(Verb.UPDATE, table)]
            if not role.columns(Verb.INSERT, table) and not role.columns(Verb.UPDATE, table):
                forbidden = forbidden[-1:]  # it can do nothing here: once is enough
            for column in forbidden:
                if column in GENERATED:
                    continue
                for statements in upserts(engine, role, table, before[0], column):
                    await attempt(login, statements, engine)
            after = await rows_of(owner, table)
            assert [row for row in after if row in before] == before, table


@every_role
async def test_no_way_of_inserting_writes_a_column_that_the_role_may_not_insert(
    name: str, server: Server, database_url: str, tmp_path: Path
) -> None:
    engine = server.engine
    role = next(role for role in ROLES_ON[engine] if role.name == name)
    async with dialects.inserting(server, database_url, name, tmp_path) as may:
        possible = {
            (table, column)
            for table, columns in TABLES_ON[engine].items()
            for column in columns
            for way in dialects.WAYS_TO_INSERT[engine]
            if column not in GENERATED and await may(way, table, column)
        }
    granted = {
        (table, column)
        for table in TABLES_ON[engine]
        for column in role.columns(Verb.INSERT, table)
    }
    assert possible == granted


@pytest.mark.only_on("mysql", reason="elsewhere an upsert needs the right to update its columns")
@pytest.mark.parametrize("forced", [True, False])
async def test_the_api_cannot_verify_a_subscription_by_an_upsert(
    owner: Any, server: Server, database_url: str, forced: bool
) -> None:
    """Nor swap a verified URL, which is told by the same column."""
    number = await a_subscription(owner, verified=True, callback_url="https://proved.example/")
    await owner.execute(
        "UPDATE subscriptions SET idempotency_key = 'key', "
        "pending_callback_url = 'https://unproved.example/'"
    )
    named, values = "idempotency_key, ", "'key', "
    async with as_role(server, database_url, "subscription_admin") as login:
        if forced:
            await login.native(f"SET insert_id = {number}")
            named = values = ""
        with pytest.raises(dialects.NotAllowed):
            await login.native(
                f"INSERT INTO subscriptions ({named}event_type, callback_url) "
                f"VALUES ({values}'order.paid', 'https://x') ON DUPLICATE KEY UPDATE "
                "callback_url = pending_callback_url, pending_callback_url = NULL, verified = 2"
            )
    row = await owner.fetchrow("SELECT callback_url, verified FROM subscriptions")
    assert tuple(row) == ("https://proved.example/", True)


@pytest.mark.only_on("mysql", reason="elsewhere an upsert needs the right to update its columns")
async def test_a_login_of_any_name_cannot_upsert_by_a_number_that_it_forces(owner: Any) -> None:
    """The guard knows our logins by name; this it refuses to everybody."""
    number = await a_subscription(owner, verified=False)
    await owner.native(f"SET insert_id = {number}")
    with pytest.raises(dialects.NotAllowed):
        await owner.native(
            "INSERT INTO subscriptions (event_type, callback_url) VALUES ('x', 'https://x') "
            "ON DUPLICATE KEY UPDATE verified = 1"
        )


def test_no_role_can_both_insert_and_update_a_column_of_a_unique_key() -> None:
    """Then a login's upsert that names the key is refused by the server, whatever its name."""
    for engine, roles in ROLES_ON.items():
        for role in roles:
            for table, key in KEYS.items():
                if table in TABLES_ON[engine]:
                    both = role.columns(Verb.INSERT, table) & role.columns(Verb.UPDATE, table)
                    assert not both & set(key), (role.name, table)
