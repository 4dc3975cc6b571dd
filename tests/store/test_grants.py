"""The grants: log in as each role and try everything; exactly roles.py succeeds, nothing more."""

from __future__ import annotations

from typing import Any

import pytest

from support import dialects
from support.dialects import as_role
from support.rows import a_job, a_subscription, an_event
from support.servers import Server
from surehook.model.roles import BY_LOGIN, ROLES, ROLES_ON, TABLES_ON, Role, Verb

every_role = pytest.mark.parametrize("name", [role.name for role in ROLES])
COLUMN_STATEMENTS = {
    Verb.SELECT: "SELECT {column} FROM {table} LIMIT 0",
    Verb.INSERT: "INSERT INTO {table} ({column}) VALUES (DEFAULT)",
    Verb.UPDATE: "UPDATE {table} SET {column} = DEFAULT WHERE false",
}


# With a role's own notes; PostgreSQL gives LOCK with DELETE.
OF_OWN_NOTES = {"postgres": {"DELETE", "LOCK"}, "mysql": {"DELETE"}}


@pytest.fixture
def roles(server: Server) -> dict[str, Role]:
    return {role.name: role for role in ROLES_ON[server.engine]}


@pytest.fixture
def tables(server: Server) -> dict[str, tuple[str, ...]]:
    return TABLES_ON[server.engine]


def expected(role: Role) -> set[tuple[str, str, str]]:
    return {(grant.verb, grant.table, column) for grant in role.grants for column in grant.columns}


async def allowed(connection: Any, statement: str) -> bool:
    """Whether the database lets this login try; what comes of it is another matter."""
    try:
        async with connection.transaction():
            await connection.execute(statement)
            raise _Undo
    except _Undo:
        return True
    except dialects.NotAllowed:
        return False
    except dialects.Error:
        return True


class _Undo(Exception):
    pass


async def grants_nothing(connection: Any, statement: str) -> bool:
    """A login with some right on a table, but none to pass on, gets a warning and no error."""
    rights = "SELECT relname::text, relacl::text FROM pg_class ORDER BY oid"
    before = await connection.fetch(rights)
    unchanged = False
    try:
        async with connection.transaction():
            await connection.execute(statement)
            unchanged = before == await connection.fetch(rights)
            raise _Undo
    except _Undo:
        return unchanged


# ── What the catalogue says ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
async def test_the_catalogue_grants_each_role_exactly_its_columns(
    owner: Any, roles: dict[str, Role], buckets: int
) -> None:
    """Partitions included: nobody reaches a row past the table's own grants."""
    for role in roles.values():
        assert await dialects.column_rights(owner, role.name) == expected(role), role.name


@pytest.mark.parametrize("buckets", [1, 4])
async def test_no_role_has_a_right_on_a_whole_table_but_to_forget_its_own_notes(
    owner: Any, roles: dict[str, Role], buckets: int
) -> None:
    for role in roles.values():
        found = await dialects.table_rights(owner, role.name)
        assert found == {("DELETE", table) for table in role.may_delete}, role.name
    forgetful = [role.login for role in roles.values() if role.may_delete]
    assert forgetful in (["registry"], ["router", "registry"])


async def test_the_tables_of_roles_py_are_the_tables_of_the_database(
    owner: Any, tables: dict[str, tuple[str, ...]]
) -> None:
    wanted = {table: set(columns) for table, columns in tables.items()}
    assert await dialects.tables(owner) == wanted


async def test_no_role_is_more_than_a_plain_login(owner: Any) -> None:
    for role in ROLES:
        assert await dialects.is_plain_login(owner, role.name), role.name


async def test_a_password_is_stored_as_a_verifier_only(owner: Any, postgres: Server) -> None:
    rows = await owner.fetch(
        "SELECT rolpassword FROM pg_authid WHERE rolname = ANY($1)", [role.name for role in ROLES]
    )
    assert len(rows) == len(ROLES)
    assert all(row[0].startswith("SCRAM-SHA-256$4096:") for row in rows)


# ── What happens when it tries ────────────────────────────────────────────────────────────────


@every_role
async def test_a_role_can_do_with_each_column_exactly_what_it_may(
    name: str,
    server: Server,
    database_url: str,
    roles: dict[str, Role],
    tables: dict[str, tuple[str, ...]],
) -> None:
    possible = set()
    async with as_role(server, database_url, name) as login:
        for verb, statement in COLUMN_STATEMENTS.items():
            for table, columns in tables.items():
                for column in columns:
                    if await allowed(login, statement.format(table=table, column=column)):
                        possible.add((verb, table, column))
    assert possible == expected(roles[name])


@every_role
async def test_no_role_can_do_anything_with_a_whole_table(
    name: str,
    server: Server,
    database_url: str,
    roles: dict[str, Role],
    tables: dict[str, tuple[str, ...]],
) -> None:
    role = roles[name]
    async with as_role(server, database_url, name) as login:
        for statement in dialects.WITH_A_WHOLE_TABLE[server.engine]:
            for table, columns in tables.items():
                if "COPY" in statement and role.columns(Verb.SELECT, table) == {*columns}:
                    continue  # may read all of it anyway
                verb = statement.split()[0]
                wanted = table in role.may_delete and verb in OF_OWN_NOTES[server.engine]
                if "HANDLER" in statement and role.columns(Verb.SELECT, table):
                    continue  # whole rows: test_mysql_grants.py says how far that goes
                if verb == "GRANT" and server.engine == "postgres" and table in role.may_delete:
                    assert await grants_nothing(login, statement.format(table=table)), table
                    continue
                found = await allowed(login, statement.format(table=table))
                assert found == wanted, (statement, table)


@every_role
async def test_no_role_can_make_objects_or_become_another(
    name: str, server: Server, database_url: str
) -> None:
    other = next(role.name for role in ROLES if role.name != name)
    async with as_role(server, database_url, name) as login:
        for statement in dialects.NOBODY_S_BUSINESS[server.engine]:
            assert not await allowed(login, statement.format(other=other)), statement


@pytest.mark.only_on("postgres", reason="there a partition is a table that can be named")
@pytest.mark.parametrize("buckets", [4])
async def test_a_partition_is_closed_to_every_role(
    server: Server, database_url: str, buckets: int
) -> None:
    for role in ROLES:
        async with as_role(server, database_url, role.name) as login:
            assert not await allowed(login, "SELECT count(*) FROM events_b0"), role.name


# ── Some of it in earnest ─────────────────────────────────────────────────────────────────────


async def test_the_worker_leases_a_job_but_cannot_give_it_to_another_saga(
    owner: Any, server: Server, database_url: str
) -> None:
    await a_job(owner)
    async with as_role(server, database_url, BY_LOGIN["worker"].name) as login:
        with pytest.raises(dialects.NotAllowed):
            await login.execute("UPDATE webhook_delivery_jobs SET saga_id = 1")
        async with login.transaction():
            job_id = await login.fetchval(
                "SELECT id FROM webhook_delivery_jobs LIMIT 1 FOR UPDATE SKIP LOCKED"
            )
            done = await login.execute(
                "UPDATE webhook_delivery_jobs SET status = 'Leased' WHERE id = $1", job_id
            )
        assert done == "UPDATE 1"


async def test_the_outbox_inserts_an_event_and_cannot_even_read_it_back(
    owner: Any, server: Server, database_url: str
) -> None:
    async with as_role(server, database_url, BY_LOGIN["outbox"].name) as login:
        await login.execute("INSERT INTO events (event_type, payload) VALUES ('x', '{}')")
        with pytest.raises(dialects.NotAllowed):
            await login.fetch("SELECT id FROM events")
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


async def test_the_api_cannot_mark_a_subscription_verified(
    owner: Any, server: Server, database_url: str
) -> None:
    await a_subscription(owner, verified=False)
    async with as_role(server, database_url, BY_LOGIN["subscriptions"].name) as login:
        with pytest.raises(dialects.NotAllowed):
            await login.execute("UPDATE subscriptions SET verified = true")
        with pytest.raises(dialects.NotAllowed):
            await login.execute(
                "INSERT INTO subscriptions (event_type, callback_url, verified) "
                "VALUES ('x', 'https://x', true)"
            )


async def test_the_router_routes_without_seeing_a_payload(
    owner: Any, server: Server, database_url: str
) -> None:
    await an_event(owner)
    async with as_role(server, database_url, BY_LOGIN["router"].name) as login:
        assert len(await login.fetch("SELECT id, created_at FROM events")) == 1
        with pytest.raises(dialects.NotAllowed):
            await login.fetch("SELECT * FROM events")
