"""The grants on MySQL and MariaDB: log in as each role and try everything; roles.py, no more."""

from __future__ import annotations

from typing import Any

import pytest

from support.connections import engine_connection
from support.mysql_connection import NotAllowed, Refusal
from support.rows import a_job, a_subscription
from support.servers import Server, connected
from surehook.roles import ROLES_ON, TABLES_ON, Role, Verb
from surehook.store.logins import derived_password
from surehook.store.mysql import rights
from surehook.store.rights import expected

pytestmark = pytest.mark.only_on("mysql", reason="its rights are read and refused in its own way")
ROLES, TABLES = ROLES_ON["mysql"], TABLES_ON["mysql"]
every_role = pytest.mark.parametrize("role", ROLES, ids=[role.name for role in ROLES])
COLUMN_STATEMENTS = {
    Verb.SELECT: "SELECT {column} FROM {table} LIMIT 0",
    Verb.INSERT: "INSERT INTO {table} ({column}) VALUES (DEFAULT)",
    Verb.UPDATE: "UPDATE {table} SET {column} = DEFAULT WHERE FALSE",
}
TABLE_STATEMENTS = (
    "TRUNCATE {table}",
    "LOCK TABLES {table} WRITE",
    "DROP TABLE {table}",
    "ALTER TABLE {table} ADD COLUMN more INT",
    "RENAME TABLE {table} TO mine",
    "CREATE INDEX mine ON {table} (bucket)",
    "GRANT SELECT ON {table} TO CURRENT_USER()",
    "CREATE TRIGGER mine BEFORE INSERT ON {table} FOR EACH ROW SET @mine = 1",
    "CREATE VIEW mine AS SELECT 1 FROM {table}",
)


def logged_in(server: Server, url: str, role: Role) -> Any:
    return connected(url, user=role.name, password=derived_password(server.role_secret, role.name))


def role_of(component: str) -> Role:
    return next(role for role in ROLES if role.component == component)


async def allowed(login: Any, statement: str) -> bool:
    """Whether the database lets this login try; what comes of it is another matter."""
    await login.native("START TRANSACTION")
    try:
        await login.native(statement)
    except NotAllowed:
        return False
    except Refusal:
        return True
    finally:
        await login.native("ROLLBACK")
    return True


@pytest.mark.parametrize("buckets", [1, 4])
async def test_the_catalogue_grants_each_account_exactly_its_columns(
    database_url: str, buckets: int
) -> None:
    """And nothing on a whole table, database or server; but for the router's own notes."""
    async with engine_connection(database_url) as owner:
        assert await rights.differences(owner) == []
        found = await rights.actual(owner)
    for role in ROLES:
        for account in rights.accounts(role):
            whole = {right for right in found[account] if right[2] == "*"}
            assert whole == {("DELETE", table, "*") for table in role.forgets}


async def test_a_password_is_stored_as_a_hash_only(owner: Any) -> None:
    names = ", ".join(f"'{role.name}'" for role in ROLES)
    rows = await owner.native(
        f"SELECT plugin, authentication_string FROM mysql.user WHERE user IN ({names})"
    )
    assert len(rows) == 2 * len(ROLES)
    for plugin, stored in rows:
        if owner.is_mariadb:
            assert plugin == "mysql_native_password" and stored.startswith("*")
        else:
            assert plugin == "caching_sha2_password" and stored.startswith("$A$005$")


@every_role
async def test_a_role_can_do_with_each_column_exactly_what_it_may(
    role: Role, server: Server, database_url: str
) -> None:
    possible = set()
    async with logged_in(server, database_url, role) as login:
        for verb, statement in COLUMN_STATEMENTS.items():
            for table, columns in TABLES.items():
                for column in columns:
                    if await allowed(login, statement.format(table=table, column=column)):
                        possible.add((str(verb), table, column))
        for table in TABLES:
            if await allowed(login, f"DELETE FROM {table}"):
                possible.add(("DELETE", table, "*"))
    assert possible == expected(role)


@every_role
async def test_no_role_can_do_anything_with_a_whole_table(
    role: Role, server: Server, database_url: str
) -> None:
    async with logged_in(server, database_url, role) as login:
        for statement in TABLE_STATEMENTS:
            for table in TABLES:
                assert not await allowed(login, statement.format(table=table)), (statement, table)


@every_role
async def test_no_role_can_make_objects_or_become_another(
    role: Role, server: Server, database_url: str
) -> None:
    other = next(one for one in ROLES if one is not role)
    async with logged_in(server, database_url, role) as login:
        for statement in (
            "CREATE TABLE mine (n INT)",
            "CREATE FUNCTION mine() RETURNS INT DETERMINISTIC RETURN 1",
            "DROP FUNCTION surehook_bucket",
            "DROP TRIGGER guard_saga_moves",
            "CREATE DATABASE mine",
            "CREATE USER mine",
            f"ALTER USER {other.name}@localhost IDENTIFIED BY 'mine'",
            f"DROP USER {other.name}@localhost",
            "SET GLOBAL max_connections = 1",
            "SELECT * FROM mysql.user",
            "SELECT payload FROM events INTO OUTFILE '/tmp/mine'",
        ):
            assert not await allowed(login, statement), statement


@every_role
async def test_only_who_inserts_for_applications_may_ask_for_a_bucket(
    role: Role, server: Server, database_url: str
) -> None:
    async with logged_in(server, database_url, role) as login:
        may = await allowed(login, "SELECT surehook_bucket(7)")
    assert may == (role.component == "outbox")


# ── Some of it in earnest ─────────────────────────────────────────────────────────────────────


async def test_the_worker_locks_and_leases_a_job_but_cannot_give_it_to_another_saga(
    owner: Any, server: Server, database_url: str
) -> None:
    await a_job(owner)
    async with logged_in(server, database_url, role_of("worker")) as login:
        with pytest.raises(NotAllowed):
            await login.native("UPDATE webhook_delivery_jobs SET saga_id = 1")
        lock = "SELECT id FROM webhook_delivery_jobs FOR UPDATE SKIP LOCKED"
        assert len(await login.native(lock)) == 1
        await login.native("UPDATE webhook_delivery_jobs SET status = 'Leased'")
    assert await owner.fetchval("SELECT status FROM webhook_delivery_jobs") == "Leased"


async def test_a_locked_row_of_someone_else_is_passed_by_under_column_grants(
    owner: Any, server: Server, database_url: str
) -> None:
    await a_job(owner)
    lock = "SELECT id FROM webhook_delivery_jobs FOR UPDATE SKIP LOCKED"
    worker = role_of("worker")
    async with (
        logged_in(server, database_url, worker) as one,
        logged_in(server, database_url, worker) as other,
    ):
        await one.native("START TRANSACTION")
        assert len(await one.native(lock)) == 1
        assert len(await other.native(lock)) == 0
        await one.native("ROLLBACK")


async def test_the_outbox_inserts_an_event_and_cannot_even_read_it_back(
    owner: Any, server: Server, database_url: str
) -> None:
    async with logged_in(server, database_url, role_of("outbox")) as login:
        await login.native(
            "INSERT INTO events (event_type, payload, bucket) "
            "VALUES ('x', '{}', surehook_bucket(1))"
        )
        with pytest.raises(NotAllowed):
            await login.native("SELECT id FROM events")
    assert await owner.fetchval("SELECT COUNT(*) FROM events") == 1


async def test_the_api_cannot_write_what_the_verifier_s_swap_writes(
    owner: Any, server: Server, database_url: str
) -> None:
    """verified = 2 is how the trigger knows a login that may write the column."""
    await a_subscription(owner, pending_callback_url="https://next.example/")
    async with logged_in(server, database_url, role_of("subscriptions")) as login:
        for values in ("verified = 2", "verified = TRUE"):
            with pytest.raises(NotAllowed):
                await login.native(
                    "UPDATE subscriptions SET callback_url = pending_callback_url, "
                    f"pending_callback_url = NULL, {values}"
                )
    async with logged_in(server, database_url, role_of("verifier")) as login:
        await login.native(
            "UPDATE subscriptions SET callback_url = pending_callback_url, "
            "pending_callback_url = NULL, verified = 2"
        )
    rows = await owner.native("SELECT callback_url, verified + 0 FROM subscriptions")
    assert [tuple(row) for row in rows] == [("https://next.example/", 1)]


async def test_the_router_routes_without_seeing_a_payload(
    server: Server, database_url: str
) -> None:
    async with logged_in(server, database_url, role_of("router")) as login:
        assert await login.native("SELECT id FROM events") == []
        for statement in ("SELECT payload FROM events", "SELECT * FROM events"):
            with pytest.raises(NotAllowed):
                await login.native(statement)
