"""What the logins' roles may really do, compared with roles.py. Reads the catalogue only."""

from __future__ import annotations

from typing import Any

from surehook.model.roles import ROLES, TABLES, Role
from surehook.store.rights import Right, difference

Connection = Any  # asyncpg ships no types

_RIGHTS = """
WITH place AS (
    -- Not current_schema() first: for a login that lacks USAGE it is another one.
    SELECT n.oid FROM pg_namespace n
    WHERE n.nspname IN (
        (parse_ident(split_part(current_setting('search_path'), ',', 1)))[1], current_schema())
    ORDER BY n.nspname = current_schema() LIMIT 1
), ours AS (
    SELECT c.oid, c.relname FROM pg_class c JOIN place ON place.oid = c.relnamespace
    WHERE c.relname = ANY ($2)
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
UNION ALL
SELECT rolname, 'USAGE', 'the schema', '*'
FROM logins CROSS JOIN place WHERE has_schema_privilege(logins.oid, place.oid, 'USAGE')
UNION ALL
SELECT rolname, 'EXECUTE', proname, '*'
FROM logins CROSS JOIN pg_proc JOIN place ON place.oid = pronamespace
WHERE proname = ANY ($3)
    AND has_function_privilege(logins.oid, pg_proc.oid, 'EXECUTE')
"""
# What every role needs beside the rights of roles.py: the way to the tables, and the functions that
# stand in their defaults.
_FUNCTIONS = ("surehook_now", "surehook_bucket")
FOR_ALL = "GRANT EXECUTE ON FUNCTION surehook_now(), surehook_bucket(bigint) TO PUBLIC"
_NEEDED: set[Right] = {
    ("USAGE", "the schema", "*"),
    *(("EXECUTE", name, "*") for name in _FUNCTIONS),
}


async def actual(connection: Connection, users: list[str]) -> dict[str, set[Right]]:
    """What each of these users may do with our tables."""
    found: dict[str, set[Right]] = {user: set() for user in users}
    for user, *right in await connection.fetch(_RIGHTS, users, list(TABLES), list(_FUNCTIONS)):
        found[user].add((right[0], right[1], right[2]))
    return found


def difference_of(role: Role, found: set[Right]) -> str:
    """In words; empty if it is exactly right."""
    return difference(role, found, _NEEDED)


async def differences(connection: Connection) -> list[str]:
    """One line per role whose rights are not exactly those of roles.py."""
    found = await actual(connection, [role.name for role in ROLES])
    compared = {role.name: difference_of(role, found[role.name]) for role in ROLES}
    return [f"{name} {words}" for name, words in compared.items() if words]
