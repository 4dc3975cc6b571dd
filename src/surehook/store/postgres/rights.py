"""What the components' roles may really do, compared with roles.py. Reads the catalogue only."""

from __future__ import annotations

from typing import Any

from surehook.roles import ROLES, TABLES
from surehook.store.rights import Right, difference

Connection = Any  # asyncpg ships no types

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


async def actual(connection: Connection, users: list[str]) -> dict[str, set[Right]]:
    """What each of these users may do with our tables."""
    found: dict[str, set[Right]] = {user: set() for user in users}
    for user, *right in await connection.fetch(_RIGHTS, users, list(TABLES)):
        found[user].add((right[0], right[1], right[2]))
    return found


async def differences(connection: Connection) -> list[str]:
    """One line per role whose rights are not exactly those of roles.py."""
    found = await actual(connection, [role.name for role in ROLES])
    compared = {role.name: difference(role, found[role.name]) for role in ROLES}
    return [f"{name} {words}" for name, words in compared.items() if words]
