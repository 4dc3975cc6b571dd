"""What the doctor looks at on PostgreSQL, in order. Reads settings and catalogue only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from surehook.config import Config
from surehook.errors import ConfigError, Declined
from surehook.store import doctor
from surehook.store.doctor import ROW_TO_LOCK, Around, refusal
from surehook.store.findings import Finding, Level
from surehook.store.logins import DatabaseAccess, Login
from surehook.store.postgres import location, rights
from surehook.store.postgres.database import PostgresDatabase, connect, connect_anywhere
from surehook.store.postgres.migrate import damage, read_state, refuse_old_server

Connection = Any  # asyncpg ships no types

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
        server = [await _engine(connection), await durability(config, connection)]
        clock = await doctor.clock(connection.fetchval("SELECT statement_timestamp()"))
        schema = doctor.schema(await read_state(connection))
        findings = [version, *server, clock, schema]
        if schema.level is Level.WRONG:
            return findings
        findings.append(await _parts(connection))
        findings.append(
            doctor.locks(await _not_skipping(connection, access, timeout), "PostgreSQL")
        )
        return findings + await doctor.logins(
            config, access, PostgresDatabase, _looking_around(config), rights.difference_of
        )
    finally:
        await connection.close()


def _version(connection: Connection) -> Finding:
    try:
        refuse_old_server(connection)
    except Declined as error:
        return refusal("version", error)
    version = connection.get_server_version()
    return Finding("version", Level.GOOD, f"PostgreSQL {version.major}.{version.micro}")


async def _location(connection: Connection, url: str) -> Finding | None:
    """Whether there is one installation, and where; looks at its schema from here on."""
    try:
        found = await location.schemas(connection)
        if len(found) > 1:
            raise location.several(found)
        await location.enter(connection, url)
    except (Declined, ConfigError) as error:
        return refusal("location", error)
    return None


async def _engine(connection: Connection) -> Finding:
    described: str = await connection.fetchval("SELECT version()")
    if described.startswith("PostgreSQL "):
        return Finding("engine", Level.GOOD, "it is PostgreSQL itself")
    return Finding(
        "engine",
        Level.WRONG,
        f"The server says it is {described.split(',')[0]}, not PostgreSQL.",
        "Use PostgreSQL 15 or newer: others accept the same words with other meanings.",
    )


async def durability(config: Config, connection: Connection) -> Finding:
    """Whether the server forgets what it acknowledged."""
    rows = await connection.fetch(
        "SELECT name, current_setting(name) FROM unnest($1::text[]) AS name", list(_UNSAFE)
    )
    unsafe = [name for name, value in rows if value == _UNSAFE[name]]
    return doctor.durability_of(
        config,
        f"{', '.join(unsafe)} off" if unsafe else "",
        good=f"{', '.join(_UNSAFE)} are on",
        advice="Switch it on in postgresql.conf and reload",
    )


async def _parts(connection: Connection) -> Finding:
    wrong = await damage(connection, await read_state(connection))
    if wrong is not None:
        return doctor.parts(wrong, "tables, indexes and triggers")
    return Finding(
        "parts",
        Level.NOTE,
        "Indexes and triggers were not compared with the migrations: this login may not "
        "create a schema, in which they would be made once more and undone.",
        "Run doctor as the owner of the database.",
    )


async def _not_skipping(connection: Connection, access: DatabaseAccess, timeout: float) -> str:
    """Lock a row here; another connection must pass it by, not wait and not get it."""
    other = await connect(Login("doctor", access.url), timeout)
    try:
        async with connection.transaction():
            await connection.fetch(ROW_TO_LOCK)
            found = await doctor.unless_it_waits(other.fetch(f"{ROW_TO_LOCK} SKIP LOCKED"))
    except (TimeoutError, asyncpg.PostgresError) as error:
        return str(error) or "it waited"
    finally:
        other.terminate()
    return "two connections got the same row" if found else ""


def _looking_around(config: Config) -> Callable[[Any], Awaitable[Around]]:
    async def look_around(session: Any) -> Around:
        connection = session.connection
        user: str = await connection.fetchval("SELECT current_user::text")
        committing: str = await connection.fetchval("SHOW synchronous_commit")
        if committing == "off" and not config.flag("database.allow_unsafe"):
            raise Declined(
                f"{user} has synchronous_commit off: its acknowledged writes may be lost.",
                f"Run: ALTER ROLE {user} RESET synchronous_commit",
            )
        return user, (await rights.actual(connection, [user]))[user]

    return look_around
