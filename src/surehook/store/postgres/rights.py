"""What the components' roles may really do, compared with roles.py. Reads the catalogue only."""

from __future__ import annotations

from typing import Any

from surehook.roles import ROLES, TABLES, Role, Verb

Connection = Any  # asyncpg ships no types
Right = tuple[str, str, str]  # verb, table, column; "*" for the whole table

_RIGHTS = """
WITH ours AS (
    SELECT c.oid, c.relname FROM pg_class c
    WHERE c.relname = ANY ($2) AND c.relnamespace = current_schema()::regnamespace
), logins AS (
    SELECT oid, rolname FROM pg_roles WHERE rolname = ANY ($1)
)
SELECT rolname, verb, relname, attname::text
FROM logins CROSS JOIN ours JOIN pg_attribute a ON a.attrelid = ours.oid AND a.attnum > 0
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS verb
WHERE has_column_privilege(logins.oid, ours.oid, a.attnum, verb)
UNION ALL
SELECT rolname, verb, relname, '*'
FROM logins CROSS JOIN ours
CROSS JOIN unnest(ARRAY['DELETE', 'TRUNCATE', 'TRIGGER', 'REFERENCES']) AS verb
WHERE has_table_privilege(logins.oid, ours.oid, verb)
"""


def expected(role: Role) -> set[Right]:
    """What roles.py says."""
    return {
        (verb, table, column)
        for verb in Verb
        for table in TABLES
        for column in role.columns(verb, table)
    }


async def actual(connection: Connection, users: list[str]) -> dict[str, set[Right]]:
    """What each of these users may do with our tables."""
    found: dict[str, set[Right]] = {user: set() for user in users}
    for user, *right in await connection.fetch(_RIGHTS, users, list(TABLES)):
        found[user].add((right[0], right[1], right[2]))
    return found


def difference(role: Role, rights: set[Right]) -> str:
    """In words: what is missing and what is too much; empty if it is exactly right."""
    missing, extra = expected(role) - rights, rights - expected(role)
    words = [f"lacks {_listed(missing)}"] if missing else []
    words += [f"may also {_listed(extra)}"] if extra else []
    return " and ".join(words)


async def differences(connection: Connection) -> list[str]:
    """One line per role whose rights are not exactly those of roles.py."""
    found = await actual(connection, [role.name for role in ROLES])
    compared = {role.name: difference(role, found[role.name]) for role in ROLES}
    return [f"{name} {words}" for name, words in compared.items() if words]


def _listed(rights: set[Right]) -> str:
    shown = [
        f"{verb} {table}" + (f".{column}" if column != "*" else "")
        for verb, table, column in sorted(rights)[:3]
    ]
    more = f" and {len(rights) - 3} more" if len(rights) > 3 else ""
    return ", ".join(shown) + more
