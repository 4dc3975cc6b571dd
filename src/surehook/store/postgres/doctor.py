"""Doctor: proves that a PostgreSQL database is fit for surehook, finding by finding.

Reads   the server's settings, the schema's ledger, the catalogue; as the owner and as each role
Writes  nothing (one row of schema_settings is locked for a moment and let go)

A finding is one line: what was looked at, what it means, what to do. A database that cannot be
reached is no finding but DatabaseUnreachable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg

from surehook.config import Config
from surehook.errors import AnswerIsNo, ConfigError, SurehookError
from surehook.model.roles import ROLES, Role
from surehook.store.findings import Finding, Level
from surehook.store.logins import DatabaseAccess, Login, login
from surehook.store.postgres import location, rights
from surehook.store.postgres.database import PostgresDatabase, connect, connect_anywhere
from surehook.store.postgres.migrate import damage, read_state, refuse_old_server
from surehook.store.rights import Right, expected
from surehook.store.shape import listed

Connection = Any  # asyncpg ships no types

# A statement that meets a lock must come back at once; one that waits this long does not skip.
SKIP_SECONDS_MAX = 2.0
CLOCK_SECONDS_MAX = 5.0
_UNSAFE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


async def examine(config: Config, access: DatabaseAccess) -> list[Finding]:
    """Everything that can be found out; stops early where the rest would make no sense."""
    timeout = config.seconds("database.connect_timeout")
    connection = await connect_anywhere(Login("doctor", access.url), timeout)
    try:
        version = _version(connection)
        if version.level is Level.WRONG:
            return [version]
        where = await _location(connection, access.url)
        if where is not None:
            return [version, where]
        findings = [version, *[one async for one in _server(config, connection)]]
        schema = await _schema(connection)
        findings.append(schema)
        if schema.level is Level.WRONG:
            return findings
        findings.append(await _parts(connection))
        findings.append(await _skip_locked(connection, access, timeout))
        findings += await _components(config, access)
        return findings
    finally:
        await connection.close()


# ── The server ────────────────────────────────────────────────────────────────────────────────


def _version(connection: Connection) -> Finding:
    try:
        refuse_old_server(connection)
    except AnswerIsNo as error:
        return Finding("version", Level.WRONG, error.message, error.advice)
    version = connection.get_server_version()
    return Finding("version", Level.GOOD, f"PostgreSQL {version.major}.{version.micro}")


async def _location(connection: Connection, url: str) -> Finding | None:
    """Whether there is one installation, and where; looks at its schema from here on."""
    try:
        found = await location.schemas(connection)
        if len(found) > 1:
            raise location.several(found)
        await location.enter(connection, url)
    except (AnswerIsNo, ConfigError) as error:
        return Finding("location", Level.WRONG, error.message, error.advice)
    return None


async def _server(config: Config, connection: Connection) -> AsyncIterator[Finding]:
    described: str = await connection.fetchval("SELECT version()")
    if described.startswith("PostgreSQL "):
        yield Finding("engine", Level.GOOD, "it is PostgreSQL itself")
    else:
        yield Finding(
            "engine",
            Level.WRONG,
            f"The server says it is {described.split(',')[0]}, not PostgreSQL.",
            "Use PostgreSQL 15 or newer: others accept the same words with other meanings.",
        )
    yield await durability(config, connection)
    yield await _clock(connection)


async def durability(config: Config, connection: Connection) -> Finding:
    """Whether the server forgets what it acknowledged."""
    rows = await connection.fetch(
        "SELECT name, current_setting(name) FROM unnest($1::text[]) AS name", list(_UNSAFE)
    )
    unsafe = [name for name, value in rows if value == _UNSAFE[name]]
    if not unsafe:
        return Finding("durability", Level.GOOD, f"{', '.join(_UNSAFE)} are on")
    says = f"The server may lose acknowledged events: {', '.join(unsafe)} off."
    if config.flag("database.allow_unsafe"):
        return Finding("durability", Level.NOTE, says, "Permitted by database.allow_unsafe.")
    return Finding(
        "durability",
        Level.WRONG,
        says,
        "Switch it on in postgresql.conf and reload; or set database.allow_unsafe = true if "
        "losing events is acceptable here.",
    )


async def _clock(connection: Connection) -> Finding:
    asked = datetime.now(UTC)
    theirs: datetime = await connection.fetchval("SELECT statement_timestamp()")
    ours = asked + (datetime.now(UTC) - asked) / 2
    seconds = (theirs - ours).total_seconds()
    if abs(seconds) <= CLOCK_SECONDS_MAX:
        return Finding("clock", Level.GOOD, f"the database's clock differs by {seconds:+.3f} s")
    return Finding(
        "clock",
        Level.NOTE,
        f"The database's clock differs from this machine's by {seconds:+.1f} s.",
        "Only the database's counts; receivers refuse signatures that are minutes off: run NTP.",
    )


async def _schema(connection: Connection) -> Finding:
    try:
        state = await read_state(connection)
        state.refuse_if_too_new()
        state.refuse_if_changed()
        state.refuse_if_too_old()
    except AnswerIsNo as error:
        return Finding("schema", Level.WRONG, error.message, error.advice)
    return Finding("schema", Level.GOOD, state.summary)


async def _parts(connection: Connection) -> Finding:
    """Whether tables, indexes, functions and triggers are what the migrations made."""
    wrong = await damage(connection, await read_state(connection))
    if wrong:
        return Finding("parts", Level.WRONG, f"{listed(wrong)}.", "Run `surehook migrate`.")
    if wrong is None:
        return Finding(
            "parts",
            Level.NOTE,
            "Indexes and triggers were not compared with the migrations: this login may not "
            "create a schema, in which they would be made once more and undone.",
            "Run doctor as the owner of the database.",
        )
    return Finding("parts", Level.GOOD, "tables, indexes and triggers are as migrated")


async def _skip_locked(connection: Connection, access: DatabaseAccess, timeout: float) -> Finding:
    """Lock a row here; another connection must pass it by, not wait and not get it."""
    row = "SELECT name FROM schema_settings WHERE name = 'buckets' FOR UPDATE"
    other = await connect(Login("doctor", access.url), timeout)
    try:
        async with connection.transaction():
            await connection.fetch(row)
            found = await asyncio.wait_for(other.fetch(f"{row} SKIP LOCKED"), SKIP_SECONDS_MAX)
    except (TimeoutError, asyncpg.PostgresError) as error:
        return _does_not_skip(str(error) or "it waited")
    finally:
        other.terminate()
    if found:
        return _does_not_skip("two connections got the same row")
    return Finding("locks", Level.GOOD, "SKIP LOCKED passes by what another connection holds")


def _does_not_skip(reason: str) -> Finding:
    return Finding(
        "locks",
        Level.WRONG,
        f"SKIP LOCKED does not skip here ({reason}).",
        "Use PostgreSQL itself: workers would wait for each other or send the same job twice.",
    )


# ── The components' logins ────────────────────────────────────────────────────────────────────


async def _components(config: Config, access: DatabaseAccess) -> list[Finding]:
    if not config.flag("database.roles"):
        return [
            Finding(
                "roles",
                Level.NOTE,
                "Roles are off: every component has all rights of the main login.",
                "The database no longer stops a component that oversteps its part; the triggers "
                "still refuse forbidden moves and changes of events and dead letters.",
            ),
            await _component(config, access, _judge_main_login, ROLES[0]),
        ]
    return [await _component(config, access, _judge, role) for role in ROLES]


Judge = Callable[[Role, str, set[Right]], str]


async def _component(config: Config, access: DatabaseAccess, judge: Judge, role: Role) -> Finding:
    """Log in as the component does, through its pool, and look around."""
    subject = f"role {role.name}" if judge is _judge else "main login"
    database = PostgresDatabase(config, login(config, access, role.login))
    try:
        await database.open()  # asserts the session settings from inside
        user, settings, found = await database.run(_look_around)
    except SurehookError as error:
        return Finding(subject, Level.WRONG, error.message, error.advice)
    finally:
        await database.close()
    if settings["synchronous_commit"] == "off" and not config.flag("database.allow_unsafe"):
        return Finding(
            subject,
            Level.WRONG,
            f"{user} has synchronous_commit off: its acknowledged writes may be lost.",
            f"Run: ALTER ROLE {user} RESET synchronous_commit",
        )
    words = judge(role, user, found)
    if words:
        return Finding(subject, Level.WRONG, f"{user} {words}.", "Run `surehook migrate`.")
    who = role.login if judge is _judge else user
    return Finding(subject, Level.GOOD, f"{who} logs in, its settings and rights are right")


async def _look_around(session: Any) -> tuple[str, dict[str, str], set[Right]]:
    connection = session.connection
    user: str = await connection.fetchval("SELECT current_user::text")
    committing: str = await connection.fetchval("SHOW synchronous_commit")
    found = await rights.actual(connection, [user])
    return user, {"synchronous_commit": committing}, found[user]


def _judge(role: Role, _user: str, found: set[Right]) -> str:
    return rights.difference_of(role, found)


def _judge_main_login(_role: Role, _user: str, found: set[Right]) -> str:
    """With roles off one login does everything: it must be able to."""
    missing = set().union(*(expected(role) for role in ROLES)) - found
    return f"lacks {len(missing)} of the rights that the components need" if missing else ""
