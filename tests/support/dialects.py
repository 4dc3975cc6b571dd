"""What a test needs and each engine has in its own words, written once per engine, here.

Reads and writes only the test's own database; ends only sessions of that database.
"""

from __future__ import annotations

import io
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pymysql

from support import mysql_connection
from support.connections import connected
from support.mysql_connection import MysqlConnection
from support.server import Server
from support.translate import literal
from surehook.model.roles import BY_LOGIN
from surehook.store.logins import derived_password

# For pytest.raises: what either driver raises.
Error = (asyncpg.PostgresError, mysql_connection.Refusal)
NotAllowed = (asyncpg.InsufficientPrivilegeError, mysql_connection.NotAllowed)
TAKEN = {"postgres": "23505", "mysql": "23000"}  # the code of a key that is there already
CheckViolation = (asyncpg.CheckViolationError, mysql_connection.CheckViolation)


def speaks_mysql(connection: Any) -> bool:
    return isinstance(connection, MysqlConnection)


def as_role(server: Server, url: str, role: str) -> Any:
    """A connection with a role's own login."""
    return connected(url, user=role, password=derived_password(server.role_secret, role))


# ── Sessions ──────────────────────────────────────────────────────────────────────────────────


async def sessions(owner: Any, login: str, waiting: bool = False) -> list[int]:
    """The sessions of a login in this database; only those that wait for a lock, if asked."""
    if speaks_mysql(owner):
        # MariaDB's state of a session says so; MySQL's stays what it was before the wait.
        held = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx "
        held += "WHERE trx_state = 'LOCK WAIT'"
        waits = f"AND (state LIKE '%lock%' OR id IN ({held}))" if waiting else ""
        rows = await owner.native(
            f"SELECT id FROM {owner.processlist} WHERE db = DATABASE() "
            f"AND user = '{BY_LOGIN[login].name}' {waits}"
        )
    else:
        waits = "AND wait_event_type = 'Lock'" if waiting else ""
        rows = await owner.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            f"AND application_name = 'surehook {login}' {waits}"
        )
    return [row[0] for row in rows]


async def end_sessions(owner: Any, login: str) -> int:
    """As a restart of the server does; returns how many sessions there were."""
    found = await sessions(owner, login)
    for session in found:
        if speaks_mysql(owner):
            await owner.native(f"KILL {session}")
        else:
            await owner.fetchval("SELECT pg_terminate_backend($1, 5000)", session)
    return len(found)


@asynccontextmanager
async def nobody_writes_events(owner: Any) -> AsyncIterator[None]:
    """Who inserts an event meanwhile waits. The owner itself can do nothing else until then."""
    if speaks_mysql(owner):
        await owner.native("LOCK TABLES events READ")
    else:
        await owner.execute("BEGIN; LOCK TABLE events IN SHARE MODE")
    try:
        yield
    finally:
        await owner.execute("UNLOCK TABLES" if speaks_mysql(owner) else "COMMIT")


async def deadlocks(owner: Any) -> int:
    """How many there were; on MySQL in the whole server, so look before and after."""
    if not speaks_mysql(owner):
        found: int = await owner.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        return found
    if owner.is_mariadb:
        return int((await owner.native("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'"))[0][1])
    rows = await owner.native(
        "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
    )
    return int(rows[0][0])


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────


async def without_guards(owner: Any) -> None:
    """From now on the owner may write what no move permits."""
    if not speaks_mysql(owner):
        await owner.execute("SET session_replication_role = replica")
        return
    for row in await owner.native("SHOW TRIGGERS"):
        await owner.native(f"DROP TRIGGER {row[0]}")


async def drop_unique_key(owner: Any, table: str, name: str) -> None:
    kind = "KEY" if speaks_mysql(owner) else "CONSTRAINT"
    await owner.execute(f"ALTER TABLE {table} DROP {kind} {name}")


async def number_from(owner: Any, table: str, first: int) -> None:
    """The next row of this table gets this id."""
    if speaks_mysql(owner):
        await owner.native(f"ALTER TABLE {table} AUTO_INCREMENT = {first}")
    else:
        await owner.execute(f"ALTER TABLE {table} ALTER COLUMN id RESTART WITH {first}")


async def drop_index(owner: Any, table: str, name: str) -> None:
    await owner.execute(f"DROP INDEX {name}" + (f" ON {table}" if speaks_mysql(owner) else ""))


# The column that says how far the router has read, and what else to reset when it is changed.
_CURSOR = {
    False: (
        "snapshot::text",
        "snapshot = $2::text::pg_snapshot, partial_xid = '0', partial_id = 0",
    ),
    True: ("read_until_id", "read_until_id = $2"),
}


async def saved_cursors(owner: Any) -> list[Any]:
    """How far the router has read, to be given to `wind_back` later."""
    column, _ = _CURSOR[speaks_mysql(owner)]
    rows: list[Any] = await owner.fetch(f"SELECT bucket, {column} FROM router_cursor")
    return rows


async def wind_back(owner: Any, saved: list[Any]) -> None:
    """One statement per bucket: routers may be at work."""
    _, change = _CURSOR[speaks_mysql(owner)]
    for bucket, position in saved:
        await owner.execute(
            f"UPDATE router_cursor SET {change} WHERE bucket = $1", bucket, position
        )


async def ids_in_gaps(owner: Any) -> int:
    """How many events may still appear below MySQL's cursor, which it routes before others: in the
    bucket that knows of most. (Each bucket keeps its own list of what may be in any of them.)"""
    if not speaks_mysql(owner):
        return 0
    rows = await owner.fetch("SELECT sum(last_id - first_id + 1) FROM router_gaps GROUP BY bucket")
    return max((int(row[0]) for row in rows), default=0)


async def router_has_read_everything(owner: Any) -> bool:
    """Whether a router that began anew has come to the end."""
    if speaks_mysql(owner):
        question = (
            "SELECT bool_and(c.read_until_id >= (SELECT max(e.id) FROM events e "
            "WHERE e.bucket = c.bucket)) FROM router_cursor c"
        )
    else:
        question = (
            "SELECT bool_and(rescan_after_id >= rescan_until_id AND system_identifier <> 0) "
            "FROM router_cursor"
        )
    return bool(await owner.fetchval(question))


# ── The schema ────────────────────────────────────────────────────────────────────────────────


def schema_of(server: Server, url: str) -> str:
    """Everything that pg_dump knows of a schema, grants included."""
    done = subprocess.run(
        [f"{server.binaries}/pg_dump", "--schema-only", "--no-owner", "-d", url],
        capture_output=True,
        text=True,
        check=True,
    )
    # Newer ones wrap their output in a random key.
    lines = [line for line in done.stdout.splitlines() if not line.startswith("\\")]
    return "\n".join(lines)


def of_partition(owner: Any, verb: str, table: str, number: int, rest: str = "") -> str:
    """A statement about one partition, past its table where that can be."""
    if speaks_mysql(owner):
        return native(f"{verb} {table} PARTITION (b{number}) {rest}")
    return f"{verb} {table}_b{number} {rest}"


# ── Statements ────────────────────────────────────────────────────────────────────────────────


def native(sql: str) -> str:
    """A statement that is left as it is: it does not begin with a word that is translated."""
    return f"/* native */ {sql}"


UPSERT_OF_EVENT = {
    "postgres": "INSERT INTO events (event_type, payload, external_id) VALUES ('x', '{}', 'key') "
    "ON CONFLICT (tenant, external_id, bucket) DO UPDATE SET event_type = 'x'",
    "mysql": native(
        "INSERT INTO events (event_type, payload, external_id) VALUES ('x', '{}', 'key') "
        "ON DUPLICATE KEY UPDATE event_type = 'x'"
    ),
}
# The verifier's swap: MySQL's trigger knows it by a value that only the verifier may write.
SWAP_OF_URL = {
    "postgres": "UPDATE subscriptions SET callback_url = pending_callback_url, "
    "pending_callback_url = NULL",
    "mysql": "UPDATE subscriptions SET callback_url = pending_callback_url, "
    "pending_callback_url = NULL, verified = 2",
}
# Further ways to change a row that is there, beside UPDATE and DELETE.
OVERWRITING: dict[tuple[str, str], list[str]] = {
    ("postgres", "events"): [],
    ("postgres", "dead_letters"): [],
    ("mysql", "events"): [
        native(
            "REPLACE INTO events (id, bucket, event_type, payload) "
            "SELECT id, bucket, 'x', '{}' FROM events"
        ),
        native("UPDATE events e JOIN dead_letters d ON d.event_id = e.id SET e.payload = '{}'"),
        native("DELETE e FROM events e JOIN dead_letters d ON d.event_id = e.id"),
    ],
    ("mysql", "dead_letters"): [
        native(
            "REPLACE INTO dead_letters (id, bucket, saga_id, event_id, subscription_id, "
            "failed_at, payload_snapshot) SELECT id, bucket, saga_id, event_id, "
            "subscription_id, failed_at, '{}' FROM dead_letters"
        ),
        native("DELETE d FROM dead_letters d JOIN events e ON d.event_id = e.id"),
    ],
}


# ── Rights ────────────────────────────────────────────────────────────────────────────────────

_PG_COLUMN_RIGHTS = """
SELECT verb, c.relname, a.attname
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS verb
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND has_column_privilege($1, c.oid, a.attnum, verb)
"""
_PG_TABLE_RIGHTS = """
SELECT verb, c.relname
FROM pg_class c
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES',
                        'TRIGGER']) AS verb
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND has_table_privilege($1, c.oid, verb)
"""
HOSTS = ("localhost", "%")  # each role is an account for both


async def _alike_on_both_hosts(owner: Any, role: str, question: str) -> set[tuple[str, ...]]:
    """The answer for both accounts; :account stands for the one asked about."""
    answers = []
    for host in HOSTS:
        account = literal(f"'{role}'@'{host}'")
        rows = await owner.native(question.replace(":account", account))
        answers.append({tuple(row) for row in rows})
    assert answers[0] == answers[1], f"{role} has other rights from elsewhere"
    return answers[0]


async def column_rights(owner: Any, role: str) -> set[tuple[str, ...]]:
    """(verb, table, column) of everything that it may do with a column."""
    if not speaks_mysql(owner):
        return {tuple(row) for row in await owner.fetch(_PG_COLUMN_RIGHTS, role)}
    return await _alike_on_both_hosts(
        owner,
        role,
        "SELECT privilege_type, table_name, column_name "
        "FROM information_schema.column_privileges "
        "WHERE table_schema = DATABASE() AND grantee = :account",
    )


async def table_rights(owner: Any, role: str) -> set[tuple[str, ...]]:
    """(verb, table) of everything that it may do with a whole table, or with all of them."""
    if not speaks_mysql(owner):
        return {tuple(row) for row in await owner.fetch(_PG_TABLE_RIGHTS, role)}
    return await _alike_on_both_hosts(
        owner,
        role,
        "SELECT privilege_type, table_name FROM information_schema.table_privileges "
        "WHERE table_schema = DATABASE() AND grantee = :account "
        "UNION ALL SELECT privilege_type, '*' FROM information_schema.schema_privileges "
        "WHERE grantee = :account",
    )


async def tables(owner: Any) -> dict[str, set[str]]:
    """Every table and its columns."""
    if speaks_mysql(owner):
        rows = await owner.native(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = DATABASE()"
        )
    else:
        rows = await owner.fetch(
            "SELECT c.relname, a.attname::text FROM pg_class c "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
            "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') "
            "AND NOT c.relispartition"
        )
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    return found


async def is_plain_login(owner: Any, role: str) -> bool:
    """It can log in, has no right on the server as a whole, and is a member of nothing."""
    if speaks_mysql(owner):
        rights = await _alike_on_both_hosts(
            owner,
            role,
            "SELECT privilege_type, is_grantable FROM information_schema.user_privileges "
            "WHERE grantee = :account",
        )
        member = "roles_mapping" if owner.is_mariadb else "role_edges"
        column = "User" if owner.is_mariadb else "TO_USER"
        rows = await owner.native(f"SELECT 1 FROM mysql.{member} WHERE {column} = '{role}'")
        return rights == {("USAGE", "NO")} and rows == []
    row = await owner.fetchrow(
        "SELECT rolcanlogin, rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication "
        "OR rolbypassrls, EXISTS (SELECT 1 FROM pg_auth_members m WHERE m.member = r.oid) "
        "FROM pg_roles r WHERE rolname = $1",
        role,
    )
    return tuple(row) == (True, False, False)


NO_LOADING = {1148, 3948, 4166}  # MySQL's own default: LOAD DATA LOCAL is for nobody
# Ways to insert into one column of a table; LOAD and COPY read rows from a file or from us.
WAYS_TO_INSERT = {
    "postgres": [
        "INSERT INTO {table} ({column}) SELECT NULL WHERE false",
        "MERGE INTO {table} USING (SELECT 1) AS one ON false WHEN NOT MATCHED THEN "
        "INSERT ({column}) VALUES (DEFAULT)",
        "COPY",
    ],
    "mysql": [
        "INSERT INTO {table} ({column}) SELECT NULL FROM DUAL WHERE 1 = 0",
        "INSERT INTO {table} SET {column} = DEFAULT",
        "LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table} ({column})",
        "LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table} (@given) SET {column} = @given",
    ],
}


@asynccontextmanager
async def inserting(server: Server, url: str, role: str, directory: Path) -> AsyncIterator[Any]:
    """A function that tells whether a role may insert into a column in one of the ways above."""
    password = derived_password(server.role_secret, role)
    file = directory / "rows"
    file.touch()

    async def may(way: str, table: str, column: str) -> bool:
        text = way.format(table=table, column=column, file=file)
        try:
            if way == "COPY":
                await login.copy_to_table(table, source=io.BytesIO(), columns=[column])
            elif way.startswith("LOAD"):
                loader.query(text)
            else:
                await undone(login, text)
        except NotAllowed:
            return False
        except pymysql.MySQLError as error:
            return error.args[0] not in {*mysql_connection.NOT_ALLOWED, *NO_LOADING}
        except Error:
            pass
        return True

    async with connected(url, user=role, password=password) as login:
        if server.engine == "postgres":
            yield may
            return
        # Our driver loses its place in the conversation when it is asked for a file.
        who = {**mysql_connection.parameters(url), "user": role, "password": password}
        with pymysql.connect(**who, local_infile=True) as loader:
            yield may


async def undone(login: Any, statement: str) -> None:
    """A statement in the engine's own words, and nothing of what came of it."""
    transaction = login.transaction()
    await transaction.start()
    try:
        await (login.native(statement) if speaks_mysql(login) else login.execute(statement))
    finally:
        await transaction.rollback()


# What would reach past the columns that a role was given.
WITH_A_WHOLE_TABLE = {
    "postgres": [
        "DELETE FROM {table} WHERE false",
        "TRUNCATE {table}",
        "LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE NOWAIT",
        "DROP TABLE {table}",
        "ALTER TABLE {table} ADD COLUMN more integer",
        "GRANT SELECT ON {table} TO PUBLIC",
        "ALTER TABLE {table} DISABLE TRIGGER ALL",
        "COPY {table} TO STDOUT",
    ],
    "mysql": [
        "DELETE FROM {table} WHERE false",
        "TRUNCATE {table}",
        "LOCK TABLES {table} WRITE",
        "DROP TABLE {table}",
        "ALTER TABLE {table} ADD COLUMN more integer",
        "CREATE INDEX mine ON {table} (bucket)",
        "RENAME TABLE {table} TO mine",
        "GRANT SELECT ON {table} TO CURRENT_USER",
        native("CREATE TRIGGER mine BEFORE INSERT ON {table} FOR EACH ROW SET @x = 1"),
        native("SELECT 1 FROM {table} INTO OUTFILE '/tmp/mine'"),
        native("HANDLER {table} OPEN AS whole_rows"),
        "SHOW CREATE TABLE mysql.user",
    ],
}
NOBODY_S_BUSINESS = {
    "postgres": [
        "CREATE TABLE public.mine (n integer)",
        "CREATE FUNCTION public.mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "CREATE OR REPLACE FUNCTION surehook_now() RETURNS timestamptz LANGUAGE sql "
        "STABLE AS 'SELECT statement_timestamp()'",
        "CREATE SCHEMA mine",
        "ALTER TYPE saga_status ADD VALUE 'Mine'",
        "SET ROLE {other}",
        "SET ROLE surehook",
        "ALTER ROLE {other} PASSWORD 'mine'",
        "CREATE ROLE mine",
        "SET session_replication_role = replica",
    ],
    "mysql": [
        "CREATE TABLE mine (n integer)",
        "CREATE TEMPORARY TABLE mine (n integer)",
        "CREATE VIEW mine AS SELECT 1 AS n",
        "CREATE FUNCTION mine() RETURNS integer RETURN 1",
        "CREATE EVENT mine ON SCHEDULE EVERY 1 DAY DO SET @x = 1",
        "CREATE DATABASE mine",
        "DROP FUNCTION surehook_bucket",
        "DROP TRIGGER guard_saga_moves",
        "CREATE USER mine",
        "ALTER USER {other} IDENTIFIED BY 'mine'",
        "DROP USER {other}",
        "GRANT ALL ON *.* TO CURRENT_USER",
        "SET GLOBAL max_connections = 1",
        native("SELECT user FROM mysql.user"),
    ],
}


# ── Triggers ──────────────────────────────────────────────────────────────────────────────────


async def triggers(owner: Any) -> dict[str, str]:
    """Every trigger of ours, with the statement that drops it."""
    if speaks_mysql(owner):
        rows = await owner.native(
            "SELECT trigger_name, CONCAT('DROP TRIGGER ', trigger_name) "
            "FROM information_schema.triggers WHERE trigger_schema = DATABASE() ORDER BY 1"
        )
    else:
        rows = await owner.fetch(
            "SELECT format('%s %s', tgrelid::regclass, tgname), "
            "format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass) FROM pg_trigger "
            "WHERE NOT tgisinternal AND tgparentid = 0 ORDER BY 1"
        )
    return {row[0]: row[1] for row in rows}


def shut_out(owner: Any, role: str) -> str:
    """What keeps a role from logging in; migrating undoes it."""
    if speaks_mysql(owner):
        return f"DROP USER '{role}'@'localhost'; DROP USER '{role}'@'%'"
    return f"ALTER ROLE {role} NOLOGIN"
