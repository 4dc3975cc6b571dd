"""The grants: log in as each role and try everything; exactly roles.py succeeds, nothing more."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from support.rows import a_job, a_subscription, an_event
from support.servers import Server, connected
from surehook.roles import ROLES, TABLES, Role, Verb
from surehook.store.logins import derived_password

pytestmark = pytest.mark.only_on("postgres", reason="tests/store/mysql/test_mysql_grants.py is its")
every_role = pytest.mark.parametrize("role", ROLES, ids=[role.name for role in ROLES])
NOT_ALLOWED = "42501"
COLUMN_STATEMENTS = {
    Verb.SELECT: "SELECT {column} FROM {table} LIMIT 0",
    Verb.INSERT: "INSERT INTO {table} ({column}) VALUES (DEFAULT)",
    Verb.UPDATE: "UPDATE {table} SET {column} = DEFAULT WHERE false",
}
TABLE_STATEMENTS = {
    "DELETE": "DELETE FROM {table} WHERE false",
    "TRUNCATE": "TRUNCATE {table}",
    "LOCK": "LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE NOWAIT",
    "DROP": "DROP TABLE {table}",
    "ALTER": "ALTER TABLE {table} ADD COLUMN more integer",
    "GRANT": "GRANT SELECT ON {table} TO PUBLIC",
    "TRIGGER": "ALTER TABLE {table} DISABLE TRIGGER ALL",
    "COPY": "COPY {table} TO STDOUT",
}


def expected(role: Role) -> set[tuple[str, str, str]]:
    return {
        (verb, table, column)
        for verb in Verb
        for table in TABLES
        for column in role.columns(verb, table)
    }


def logged_in(server: Server, url: str, role: Role) -> Any:
    return connected(url, user=role.name, password=derived_password(server.role_secret, role.name))


async def allowed(connection: Any, statement: str) -> bool:
    """Whether the database lets this login try; what comes of it is another matter."""
    try:
        async with connection.transaction():
            await connection.execute(statement)
            raise _Undo
    except _Undo:
        return True
    except asyncpg.PostgresError as error:
        return bool(error.sqlstate != NOT_ALLOWED)


class _Undo(Exception):
    pass


# ── What the catalogue says ───────────────────────────────────────────────────────────────────

COLUMN_RIGHTS = """
SELECT verb, c.relname, a.attname
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS verb
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND has_column_privilege($1, c.oid, a.attnum, verb)
"""
TABLE_RIGHTS = """
SELECT verb, c.relname
FROM pg_class c
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES',
                        'TRIGGER']) AS verb
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND has_table_privilege($1, c.oid, verb)
"""


@pytest.mark.parametrize("buckets", [1, 4])
async def test_the_catalogue_grants_each_role_exactly_its_columns(owner: Any, buckets: int) -> None:
    """Partitions included: nobody reaches a row past the table's own grants."""
    for role in ROLES:
        rows = await owner.fetch(COLUMN_RIGHTS, role.name)
        assert {tuple(row) for row in rows} == expected(role), role.name


@pytest.mark.parametrize("buckets", [1, 4])
async def test_no_role_has_a_right_on_a_whole_table(owner: Any, buckets: int) -> None:
    for role in ROLES:
        assert await owner.fetch(TABLE_RIGHTS, role.name) == [], role.name


async def test_the_tables_of_roles_py_are_the_tables_of_the_database(owner: Any) -> None:
    rows = await owner.fetch(
        "SELECT c.relname, array_agg(a.attname::text ORDER BY a.attname) FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
        "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') "
        "AND NOT c.relispartition GROUP BY 1"
    )
    assert {row[0]: row[1] for row in rows} == {
        table: sorted(columns) for table, columns in TABLES.items()
    }


async def test_no_role_is_more_than_a_plain_login(owner: Any) -> None:
    rows = await owner.fetch(
        "SELECT rolname, rolcanlogin, rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication "
        "OR rolbypassrls, EXISTS (SELECT 1 FROM pg_auth_members m WHERE m.member = r.oid) "
        "FROM pg_roles r WHERE rolname = ANY($1)",
        [role.name for role in ROLES],
    )
    assert sorted(tuple(row) for row in rows) == sorted(
        (role.name, True, False, False) for role in ROLES
    )


async def test_a_password_is_stored_as_a_verifier_only(owner: Any, postgres: Server) -> None:
    rows = await owner.fetch(
        "SELECT rolpassword FROM pg_authid WHERE rolname = ANY($1)", [role.name for role in ROLES]
    )
    assert len(rows) == len(ROLES)
    assert all(row[0].startswith("SCRAM-SHA-256$4096:") for row in rows)


# ── What happens when it tries ────────────────────────────────────────────────────────────────


@every_role
async def test_a_role_can_do_with_each_column_exactly_what_it_may(
    role: Role, postgres: Server, database_url: str
) -> None:
    possible = set()
    async with logged_in(postgres, database_url, role) as login:
        for verb, statement in COLUMN_STATEMENTS.items():
            for table, columns in TABLES.items():
                for column in columns:
                    if await allowed(login, statement.format(table=table, column=column)):
                        possible.add((verb, table, column))
    assert possible == expected(role)


@every_role
async def test_no_role_can_do_anything_with_a_whole_table(
    role: Role, postgres: Server, database_url: str
) -> None:
    async with logged_in(postgres, database_url, role) as login:
        for statement in TABLE_STATEMENTS.values():
            for table in TABLES:
                if "COPY" in statement and role.columns(Verb.SELECT, table) == {*TABLES[table]}:
                    continue  # may read all of it anyway
                assert not await allowed(login, statement.format(table=table)), (statement, table)


@every_role
async def test_no_role_can_make_objects_or_become_another(
    role: Role, postgres: Server, database_url: str
) -> None:
    other = next(one for one in ROLES if one is not role)
    async with logged_in(postgres, database_url, role) as login:
        for statement in (
            "CREATE TABLE public.mine (n integer)",
            "CREATE FUNCTION public.mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "CREATE OR REPLACE FUNCTION surehook_now() RETURNS timestamptz LANGUAGE sql "
            "STABLE AS 'SELECT statement_timestamp()'",
            "CREATE SCHEMA mine",
            "ALTER TYPE saga_status ADD VALUE 'Mine'",
            f"SET ROLE {other.name}",
            "SET ROLE surehook",
            f"ALTER ROLE {other.name} PASSWORD 'mine'",
            "CREATE ROLE mine",
            "SET session_replication_role = replica",
        ):
            assert not await allowed(login, statement), statement


@pytest.mark.parametrize("buckets", [4])
async def test_a_partition_is_closed_to_every_role(
    postgres: Server, database_url: str, buckets: int
) -> None:
    for role in ROLES:
        async with logged_in(postgres, database_url, role) as login:
            assert not await allowed(login, "SELECT count(*) FROM events_b0"), role.name


# ── Some of it in earnest ─────────────────────────────────────────────────────────────────────


async def test_the_worker_leases_a_job_but_cannot_give_it_to_another_saga(
    owner: Any, postgres: Server, database_url: str
) -> None:
    await a_job(owner)
    worker = next(role for role in ROLES if role.component == "worker")
    async with logged_in(postgres, database_url, worker) as login:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.execute("UPDATE webhook_delivery_jobs SET saga_id = 1")
        done = await login.execute(
            "UPDATE webhook_delivery_jobs SET status = 'Leased' WHERE id = "
            "(SELECT id FROM webhook_delivery_jobs LIMIT 1 FOR UPDATE SKIP LOCKED)"
        )
        assert done == "UPDATE 1"


async def test_the_outbox_inserts_an_event_and_cannot_even_read_it_back(
    owner: Any, postgres: Server, database_url: str
) -> None:
    outbox = next(role for role in ROLES if role.component == "outbox")
    async with logged_in(postgres, database_url, outbox) as login:
        await login.execute("INSERT INTO events (event_type, payload) VALUES ('x', '{}')")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.fetch("SELECT id FROM events")
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


async def test_the_api_cannot_mark_a_subscription_verified(
    owner: Any, postgres: Server, database_url: str
) -> None:
    await a_subscription(owner, verified=False)
    admin = next(role for role in ROLES if role.component == "subscriptions")
    async with logged_in(postgres, database_url, admin) as login:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.execute("UPDATE subscriptions SET verified = true")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.execute(
                "INSERT INTO subscriptions (event_type, callback_url, verified) "
                "VALUES ('x', 'https://x', true)"
            )


async def test_the_router_routes_without_seeing_a_payload(
    owner: Any, postgres: Server, database_url: str
) -> None:
    await an_event(owner)
    router = next(role for role in ROLES if role.component == "router")
    async with logged_in(postgres, database_url, router) as login:
        assert len(await login.fetch("SELECT id, xid FROM events")) == 1
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.fetch("SELECT e FROM events e")
