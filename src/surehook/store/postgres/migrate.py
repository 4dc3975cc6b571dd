"""Brings a PostgreSQL database to this program's schema: numbered, forward only, repeatable.

Reads   the migration and generated files of the package, schema_migrations, schema_settings, the
        catalogue: what was changed or lost since is put back (shape.py)
Writes  schema, roles, grants, schema_migrations, schema_settings      (as the main login)

Any number of processes may migrate at once: each step is one transaction that first inserts its
own row, so the second waits for the first and then finds the step done. A crash undoes the step
under way and nothing else. No DDL waits longer than 2 s for a lock: it lets go and tries again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import asyncpg

from surehook.errors import Bug, ConfigError, Declined
from surehook.model.roles import ROLES
from surehook.store.logins import derived_password, secret_fingerprint
from surehook.store.migrations import (
    Applied,
    Migration,
    Report,
    State,
    agreed_buckets,
    generated_sql,
    migrations,
    new_installation,
    patiently,
)
from surehook.store.postgres import rights, shape
from surehook.store.postgres.scram import is_of, verifier
from surehook.store.shape import Fault

Connection = Any  # asyncpg ships no types
Result = TypeVar("Result")

LOCK_WAIT_SECONDS = 2
SERVER_MAJOR_MIN = 15

_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version        integer      PRIMARY KEY,
    name           varchar(100) NOT NULL,
    checksum       varchar(64)  NOT NULL,
    oldest_program varchar(50)  NOT NULL,
    applied_at     timestamptz  NOT NULL DEFAULT statement_timestamp()
);
CREATE TABLE IF NOT EXISTS schema_settings (
    name  varchar(100) PRIMARY KEY,
    value varchar(200) NOT NULL
);
"""


DIALECT = "postgres"
generated = partial(generated_sql, DIALECT)


# ── What is there ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PostgresState(State):
    """What a database says about its own schema, and which one that is."""

    schema: str


async def read_state(connection: Connection) -> PostgresState:
    """Read-only, for any role; an empty database has an empty state."""
    schema = await connection.fetchval("SELECT quote_ident(current_schema())") or ""
    if await connection.fetchval("SELECT to_regclass('schema_settings')") is None:
        return PostgresState(DIALECT, {}, {}, schema)
    rows = await connection.fetch(
        "SELECT version, name, checksum, oldest_program FROM schema_migrations ORDER BY version"
    )
    settings = await connection.fetch("SELECT name, value FROM schema_settings")
    applied = {row[0]: Applied(*row) for row in rows}
    return PostgresState(DIALECT, applied, dict(map(tuple, settings)), schema)


async def set_installation(connection: Connection, value: str) -> None:
    """For a copy: from now on it is another installation than its original."""
    await connection.execute(
        "INSERT INTO schema_settings (name, value) VALUES ('installation', $1) "
        "ON CONFLICT (name) DO UPDATE SET value = $1",
        value,
    )


# ── Migrating ─────────────────────────────────────────────────────────────────────────────────


async def migrate(
    connection: Connection,
    *,
    buckets: int | None = None,
    role_secret: str | None = None,
    grants: bool | None = None,
    until: int | None = None,
    report: Report = lambda _: None,
) -> None:
    """Apply what is missing. With a role secret, the logins are made too.

    `grants` without a secret is for logins that an administrator made (one URL per login).
    """
    refuse_old_server(connection)
    # One schema and no "$user": functions that bring their search path along keep this one.
    await connection.execute(
        "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', false)"
    )
    await _patiently(lambda: connection.execute(_LEDGER), report)
    state = await read_state(connection)
    state.refuse_if_too_new()
    state.refuse_if_changed()
    count = await _fix_buckets(connection, state, buckets)
    await _apply_generated(connection, "enums", report)
    for migration in state.pending:
        if until is None or migration.version <= until:
            await _patiently(partial(_apply, connection, migration, count, report), report)
    now = await read_state(connection)
    if now.pending:
        return  # stopped on the way, on request
    if not now.installation:  # somebody took it away
        await set_installation(connection, new_installation())
        report("gave the installation a new id")
    await _apply_generated(connection, "guard", report)
    if state.applied:
        await _repair(connection, count, report)
    if role_secret is not None:
        await _patiently(lambda: _make_logins(connection, role_secret, report), report)
    elif grants:
        await _require_roles(connection)
    if role_secret is not None or grants:
        # A restored dump brings the mark that they are applied, not always the grants themselves.
        wrong = bool(await rights.differences(connection))
        if wrong:
            await _patiently(lambda: connection.execute(rights.FOR_ALL), report)
        await _apply_generated(connection, "grants", report, again=wrong)


async def damage(connection: Connection, state: State) -> list[Fault] | None:
    """What was lost or changed since migrating; None if this login may not find out."""
    return await _compared(connection, state.buckets or 1, lambda _: None)


async def _compared(connection: Connection, buckets: int, report: Report) -> list[Fault] | None:
    make = partial(_make, connection, buckets)
    compare = partial(shape.compare, connection, make, LOCK_WAIT_SECONDS)
    return await _patiently(compare, report)


async def _make(connection: Connection, buckets: int) -> None:
    """All that migrating an empty database runs."""
    texts = [_LEDGER, generated("enums"), *(m.rendered(buckets) for m in migrations(DIALECT))]
    for text in [*texts, generated("guard")]:
        await connection.execute(text)


async def _repair(connection: Connection, buckets: int, report: Report) -> None:
    wrong = await _compared(connection, buckets, report) or []
    shape.refuse_if_lost(wrong)
    for fault in wrong:
        await _patiently(partial(shape.repair, connection, fault, LOCK_WAIT_SECONDS), report)
        report(f"repaired: {fault}")


def refuse_old_server(connection: Connection) -> None:
    """By what the server said when it let us in: no statement is sent to a server too old."""
    major = connection.get_server_version().major
    if major < SERVER_MAJOR_MIN:
        raise Declined(
            f"PostgreSQL {major} is too old; surehook needs {SERVER_MAJOR_MIN} or newer.",
            "Upgrade the server, or leave database.url out and use the embedded one.",
        )


async def _fix_buckets(connection: Connection, state: State, wanted: int | None) -> int:
    if state.buckets is None:
        await connection.execute(
            "INSERT INTO schema_settings (name, value) VALUES ('buckets', $1) "
            "ON CONFLICT DO NOTHING",
            str(wanted or 1),
        )
    fixed = await connection.fetchval("SELECT value FROM schema_settings WHERE name = 'buckets'")
    return agreed_buckets(int(fixed), wanted)


async def _apply(
    connection: Connection, migration: Migration, buckets: int, report: Report
) -> None:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_SECONDS}s'")
        mine = await connection.fetchval(
            "INSERT INTO schema_migrations (version, name, checksum, oldest_program) "
            "VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING version",
            migration.version,
            migration.name,
            migration.checksum,
            migration.oldest_program,
        )
        if mine is None:
            return  # another process was faster
        await connection.execute(migration.rendered(buckets))
    report(f"applied {migration.version:04} {migration.name}")


async def _apply_generated(
    connection: Connection, name: str, report: Report, again: bool = False
) -> None:
    """Re-applied only when it changed: it takes locks on hot tables."""
    text = generated(name)
    checksum = hashlib.sha256(text.encode()).hexdigest()
    setting = f"generated {name}"

    async def apply() -> bool:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_SECONDS}s'")
            changed = await connection.fetchval(
                "INSERT INTO schema_settings AS s (name, value) VALUES ($1, $2) "
                "ON CONFLICT (name) DO UPDATE SET value = $2 WHERE s.value <> $2 OR $3 "
                "RETURNING true",
                setting,
                checksum,
                again,
            )
            if changed:
                await connection.execute(text)
            return bool(changed)

    if not again and await connection.fetchval(
        "SELECT value = $2 FROM schema_settings WHERE name = $1", setting, checksum
    ):
        return
    if await _patiently(apply, report):
        report(f"applied {name}")


async def _make_logins(connection: Connection, role_secret: str, report: Report) -> None:
    """One login per role, its password derived from the role secret.

    Roles belong to the whole server: two databases on it share them, and so must share the
    secret. The roles' comment carries its fingerprint, so that a second database with another
    secret is refused instead of locking the first one out.
    """
    mark = f"surehook {secret_fingerprint(role_secret)}"
    names = [role.name for role in ROLES]
    rows = await connection.fetch(
        "SELECT rolname, shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = ANY($1)",
        names,
    )
    existing = dict(map(tuple, rows))
    for name, comment in existing.items():
        if comment and comment.startswith("surehook ") and comment != mark:
            raise ConfigError(
                f"The role {name} on this server was made with another role secret.",
                "Databases on one server share these roles: use the same SUREHOOK_ROLE_SECRET.",
            )
    shut = await _shut_out(connection, role_secret, names)
    missing = [role for role in ROLES if existing.get(role.name) != mark or role.name in shut]
    if not missing:
        return
    async with connection.transaction():
        for role in missing:
            if role.name not in existing:
                await connection.execute(f"CREATE ROLE {role.name}")
            # Only a verifier travels: the password itself is never in a statement or a log.
            secret = verifier(derived_password(role_secret, role.name))
            await connection.execute(
                f"ALTER ROLE {role.name} LOGIN PASSWORD '{secret}' "
                "VALID UNTIL 'infinity' CONNECTION LIMIT -1"
            )
            await connection.execute(f"COMMENT ON ROLE {role.name} IS '{mark}'")
    if all(role.name in existing for role in missing):
        report(f"let the roles {', '.join(role.name for role in missing)} log in again")
    else:
        report("created the logins' roles")


async def _shut_out(connection: Connection, role_secret: str, names: list[str]) -> set[str]:
    """The roles that cannot log in with their derived password, as far as this login may see."""
    shut = await connection.fetch(
        "SELECT rolname FROM pg_roles WHERE rolname = ANY($1) AND (NOT rolcanlogin "
        "OR rolconnlimit <> -1 OR rolvaliduntil < 'infinity')",
        names,
    )
    found = {row[0] for row in shut}
    if await connection.fetchval("SELECT has_table_privilege('pg_authid', 'SELECT')"):
        rows = await connection.fetch(
            "SELECT rolname, rolpassword FROM pg_authid WHERE rolname = ANY($1)", names
        )
        found |= {
            name for name, kept in rows if not is_of(derived_password(role_secret, name), kept)
        }
    return found


async def _require_roles(connection: Connection) -> None:
    rows = await connection.fetch("SELECT rolname FROM pg_roles")
    missing = {role.name for role in ROLES} - {row[0] for row in rows}
    if missing:
        raise Declined(
            f"The server has no roles {', '.join(sorted(missing))}.",
            "Create them (`surehook migrate --sql` shows how), or set SUREHOOK_ROLE_SECRET and "
            "let migrate do it.",
        )


async def _patiently(work: Callable[[], Awaitable[Result]], report: Report) -> Result:
    return await patiently(work, report, _busy, "pg_locks")


_BUSY = (
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.UniqueViolationError,  # two first migrations create the same name
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateTableError,
    asyncpg.InternalServerError,  # "tuple concurrently updated": role DDL is server-wide
)


def _busy(error: Exception) -> tuple[str, bool] | None:
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        raise Declined(
            f"This login may not do that: {error}.",
            "Migrate as the owner of the database with CREATEROLE, or set database.roles = off.",
        ) from None
    if not isinstance(error, _BUSY):
        return None
    return str(error), isinstance(error, asyncpg.LockNotAvailableError)


# ── For people ────────────────────────────────────────────────────────────────────────────────


def as_sql(state: State, buckets: int, with_roles: bool) -> str:
    """Everything that `migrate` would run, for an administrator to read and run."""
    if not isinstance(state, PostgresState):
        raise Bug("this state does not say which schema it is of")
    where = f"SET LOCAL search_path = {state.schema}, pg_temp;"
    parts = ["BEGIN;", where, _LEDGER.strip(), generated("enums")]
    for m in state.pending:
        parts.append(f"-- ── {m.version:04} {m.name} ──\n{m.rendered(buckets)}")
        parts.append(
            "INSERT INTO schema_migrations (version, name, checksum, oldest_program) VALUES "
            f"({m.version}, '{m.name}', '{m.checksum}', '{m.oldest_program}');"
        )
    parts.append(generated("guard"))
    done = ["enums", "guard"]
    if with_roles:
        roles = "\n".join(
            f"DO $$ BEGIN CREATE ROLE {role.name} LOGIN;\n"
            "EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
            for role in ROLES
        )
        parts.append(
            "-- Set a password for each of these and give every login its own URL\n"
            f"-- (SUREHOOK_DATABASE_URL_ROUTER …), or let `surehook migrate` make them.\n{roles}"
        )
        parts.append(generated("grants"))
        done.append("grants")
    if state.buckets is None:
        parts.append(f"INSERT INTO schema_settings VALUES ('buckets', '{buckets}');")
    for name in done:
        checksum = hashlib.sha256(generated(name).encode()).hexdigest()
        parts.append(
            f"INSERT INTO schema_settings VALUES ('generated {name}', '{checksum}')\n"
            f"    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value;"
        )
    return "\n\n".join([*parts, "COMMIT;"])
