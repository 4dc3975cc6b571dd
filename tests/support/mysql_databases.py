"""Fresh databases on a MySQL or MariaDB server: migrated ones from a pool, emptied for the next.

Nothing there copies a database, and making one (tables, triggers, a thousand grants) takes as long
as many a test. So a database that a test leaves as it was migrated is emptied and given out again;
one whose schema, ledger or grants it changed is dropped.

Reads and writes only the databases that it makes, and sockets and clocks in the run's directory.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from support import clock
from support.connections import connected, migrate
from support.server import Server

LEDGER = ("schema_migrations", "schema_settings")  # filled by migrating: compared, never emptied
GRANT_TABLES = ("columns_priv", "tables_priv", "procs_priv", "db")
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")


@dataclass
class Made:
    """A migrated database and what it looked like when it was."""

    name: str
    buckets: int
    schema: dict[str, object] = field(default_factory=dict)


_free: dict[tuple[str, int], list[Made]] = defaultdict(list)  # by server and number of buckets


@asynccontextmanager
async def fresh_database(server: Server, buckets: int | None) -> AsyncIterator[str]:
    made = await (_create(server, 0) if buckets is None else _taken(server, buckets))
    clock.wind(made.name, Path(server.directory) / f"{made.name}.clock")
    _let_in(server, made.name)
    reusable = False
    try:
        yield _url(server, made.name)
        async with connected(server.url) as admin:
            await _refuse_leaks(admin, made.name)
        reusable = buckets is not None
    finally:
        clock.forget(made.name)
        _keep_out(server, made.name)
        async with connected(server.url) as admin:
            if reusable and await _emptied(admin, made):
                _free[server.url, made.buckets].append(made)
            else:
                await _drop(admin, made.name)


# ── Making and emptying ───────────────────────────────────────────────────────────────────────


async def _taken(server: Server, buckets: int) -> Made:
    free = _free[server.url, buckets]
    if free:
        return free.pop()
    made = await _create(server, buckets)
    await migrate(server.url_of(made.name), buckets=buckets, role_secret=server.role_secret)
    async with connected(server.url) as admin:
        made.schema = (await _look(admin, made.name))[0]
    return made


async def _create(server: Server, buckets: int) -> Made:
    made = Made(f"test_{uuid.uuid4().hex[:12]}", buckets)
    async with connected(server.url) as admin:
        await admin.native(f"CREATE DATABASE {made.name}")
    return made


async def _drop(admin: Any, name: str) -> None:
    await admin.native(f"DROP DATABASE IF EXISTS {name}")
    for table in GRANT_TABLES:
        await admin.native(f"DELETE FROM mysql.{table} WHERE Db = '{name}'")
    await admin.native("FLUSH PRIVILEGES")


async def _emptied(admin: Any, made: Made) -> bool:
    """Whether it is as it was migrated; if so, with nothing in it."""
    schema, used = await _look(admin, made.name)
    if schema != made.schema:
        return False
    await admin.native("SET foreign_key_checks = 0")
    for table in used:
        await admin.native(f"TRUNCATE {made.name}.{table}")
    return True


async def _look(admin: Any, name: str) -> tuple[dict[str, object], list[str]]:
    """Everything that a test could have changed for good, and the tables that it used."""
    tables = [row[0] for row in await admin.native(f"SHOW TABLES FROM {name}")]
    seen: dict[str, object] = {}
    used: list[str] = []
    for table in tables:
        definition = (await admin.native(f"SHOW CREATE TABLE {name}.{table}"))[0][1]
        seen[table], counted = _COUNTER.subn("", definition)
        if counted:
            used.append(table)
    others = [table for table in tables if table not in used and table not in LEDGER]
    for table in LEDGER:
        if table in tables:
            seen[f"rows of {table}"] = await admin.native(f"SELECT * FROM {name}.{table}")
    for table in others:
        if (await admin.native(f"SELECT EXISTS (SELECT 1 FROM {name}.{table})"))[0][0]:
            used.append(table)
    seen["triggers"] = await admin.native(
        "SELECT trigger_name, action_statement FROM information_schema.triggers "
        f"WHERE trigger_schema = '{name}'"
    )
    seen["routines"] = await admin.native(
        "SELECT routine_name, routine_definition FROM information_schema.routines "
        f"WHERE routine_schema = '{name}'"
    )
    for table in GRANT_TABLES:
        columns = [row[0] for row in await admin.native(f"SHOW COLUMNS FROM mysql.{table}")]
        told = ", ".join(f"`{column}`" for column in columns if column != "Timestamp")
        seen[table] = await admin.native(
            f"SELECT COUNT(*), SUM(CRC32(CONCAT_WS('|', {told}))) FROM mysql.{table} "
            f"WHERE Db = '{name}'"
        )
    return seen, used


async def _refuse_leaks(admin: Any, name: str) -> None:
    """A session that was closed takes a moment to go; one that was not is ended here."""
    sessions = f"SELECT id, user, info FROM {admin.processlist} WHERE db = '{name}'"
    for _ in range(400):
        left = await admin.native(sessions)
        if not left:
            return
        await asyncio.sleep(0.005)
    for session in left:
        await admin.native(f"KILL {session[0]}")
    raise AssertionError(f"connections left open: {[tuple(row) for row in left]}")


# ── Getting in ────────────────────────────────────────────────────────────────────────────────


def _link(server: Server, name: str) -> Path | None:
    """A database's own link to the server's socket, which can be taken away.

    To a server that was given to us by its host's name there is only the one way.
    """
    return Path(server.directory) / f"{name}.sock" if _socket(server) else None


def _socket(server: Server) -> str | None:
    return parse_qs(urlsplit(server.url).query).get("unix_socket", [None])[0]


def _url(server: Server, name: str) -> str:
    link, url = _link(server, name), urlsplit(server.url_of(name))
    if link is None:
        return url.geturl()
    return url._replace(query=urlencode({"unix_socket": str(link)}, safe="/")).geturl()


def _let_in(server: Server, name: str) -> None:
    link = _link(server, name)
    if link is not None:
        link.symlink_to(str(_socket(server)))


def _keep_out(server: Server, name: str) -> None:
    link = _link(server, name)
    if link is not None:
        link.unlink(missing_ok=True)


@asynccontextmanager
async def out_of_reach(server: Server, name: str) -> AsyncIterator[None]:
    if _link(server, name) is None:
        pytest.skip("another's server cannot be put out of reach")
    owner = urlsplit(server.url).username
    _keep_out(server, name)
    try:
        async with connected(server.url) as admin:
            for session in await admin.native(
                f"SELECT id FROM {admin.processlist} WHERE db = '{name}' AND user <> '{owner}'"
            ):
                await admin.native(f"KILL {session[0]}")
        yield
    finally:
        _let_in(server, name)
