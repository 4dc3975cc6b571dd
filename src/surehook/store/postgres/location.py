"""Which schema holds surehook's tables: found in the catalogue, whatever the search path is.

Reads   the catalogue, the database's URL       Writes  nothing

One database holds one installation. A new one goes where the search path of the login that first
migrates points to (`public`, unless someone chose otherwise); from then on it is found there by
every login. A URL may name a schema (`?search_path=hooks`): then that one is meant.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from surehook.errors import ConfigError, Declined

Connection = Any  # asyncpg ships no types

# By a table and a column that no other program has together.
_FOUND = """
SELECT nspname, quote_ident(nspname) || ', pg_temp', nspname = ANY (current_schemas(false))
FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
WHERE attname = 'oldest_program' AND relname = 'schema_migrations' AND relkind = 'r'
    AND NOT attisdropped AND NOT pg_is_other_temp_schema(n.oid)
ORDER BY 1
"""


def names_schema(url: str) -> bool:
    """Whether the URL itself says where to look first."""
    given = parse_qs(urlsplit(url).query)
    return "search_path" in given or any("search_path" in one for one in given.get("options", []))


async def schemas(connection: Connection) -> list[str]:
    """Every schema of this database that holds surehook's tables."""
    return [row[0] for row in await connection.fetch(_FOUND)]


async def search_path(connection: Connection, url: str) -> str | None:
    """For sessions of this installation; None if there is none yet."""
    found = await connection.fetch(_FOUND)
    named = names_schema(url)
    if len(found) > 1:
        if named:
            found = [row for row in found if row[2]][:1]
        if len(found) != 1:
            raise several(await schemas(connection))
    if not found:
        await _refuse_nowhere(connection)
        return None
    [(schema, path, on_path)] = found
    if named and not on_path:
        raise ConfigError(
            f"The URL names a schema, but surehook's tables are in the schema {schema}.",
            "One database holds one installation: leave search_path out of the URL, or correct it.",
        )
    return str(path)


async def _refuse_nowhere(connection: Connection) -> None:
    if await connection.fetchval("SELECT current_schema()") is None:
        path = await connection.fetchval("SHOW search_path")
        raise Declined(
            f"No schema of the search path {path} exists: there is no place for the tables.",
            "Create it (CREATE SCHEMA …), or correct the search path.",
        )


def several(found: list[str]) -> Declined:
    names = ", ".join(found)
    return Declined(
        f"This database holds surehook's tables more than once, in the schemas {names}.",
        "Find the one that is in use (SELECT max(created_at) FROM schema.events), name it in the "
        "URL meanwhile (?search_path=…), and drop the other (DROP SCHEMA … CASCADE).",
    )


async def enter(connection: Connection, url: str) -> None:
    """Let a connection outside of any pool see this installation's tables."""
    path = await search_path(connection, url)
    if path is not None:
        await connection.execute("SELECT set_config('search_path', $1, false)", path)
