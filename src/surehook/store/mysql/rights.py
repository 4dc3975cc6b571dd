"""What the components' accounts may really do, compared with roles.py. Reads the catalogue only.

An account sees its own rights; those of others only who may read the schema `mysql`.
"""

from __future__ import annotations

from collections.abc import Iterable

from asyncmy.errors import MySQLError

from surehook.roles import ROLES_ON, Role
from surehook.store.mysql.connection import Connection
from surehook.store.rights import Right, difference, expected

HOSTS = ("localhost", "%")

# A right on the whole database or server is one on each of its tables: shown as such.
_RIGHTS = """
SELECT grantee, privilege_type, table_name, column_name FROM information_schema.column_privileges
WHERE table_schema = DATABASE()
UNION ALL
SELECT grantee, privilege_type, table_name, '*' FROM information_schema.table_privileges
WHERE table_schema = DATABASE()
UNION ALL
SELECT grantee, privilege_type, '*', '*' FROM information_schema.schema_privileges
WHERE DATABASE() LIKE table_schema AND privilege_type <> 'USAGE'
UNION ALL
SELECT grantee, privilege_type, '*.*', '*' FROM information_schema.user_privileges
WHERE privilege_type <> 'USAGE'
"""


def accounts(role: Role) -> list[str]:
    return [f"'{role.name}'@'{host}'" for host in HOSTS]


async def actual(connection: Connection) -> dict[str, set[Right]]:
    """What each account that we can see may do with our tables."""
    found: dict[str, set[Right]] = {}
    for grantee, verb, table, column in await connection.fetch(_RIGHTS):
        found.setdefault(grantee, set()).add((verb.upper(), table, column))
    return found


async def sees_all(connection: Connection) -> bool:
    """Whether others' rights are shown to us."""
    try:
        await connection.fetch("SELECT 1 FROM mysql.user LIMIT 1")
    except MySQLError:
        return False
    return True


async def differences(connection: Connection) -> list[str]:
    """One line per account whose rights are not exactly those of roles.py."""
    found = await actual(connection)
    compared = [
        (account, difference(role, found.get(account, set())))
        for role in ROLES_ON["mysql"]
        for account in accounts(role)
    ]
    return [f"{account} {words}" for account, words in compared if words]


async def too_much(connection: Connection) -> list[str]:
    """The statements that take away what roles.py does not give; nobody's rights are missing
    meanwhile. A right on the whole server is left to its administrator."""
    found = await actual(connection)
    return [
        statement
        for role in ROLES_ON["mysql"]
        for account in accounts(role)
        for statement in _revocations(account, found.get(account, set()) - expected(role))
    ]


def _revocations(account: str, extra: Iterable[Right]) -> Iterable[str]:
    for verb, table, column in sorted(extra):
        if table == "*":
            yield f"REVOKE {verb} ON * FROM {account}"
        elif table != "*.*":
            columns = "" if column == "*" else f" (`{column}`)"
            yield f"REVOKE {verb}{columns} ON `{table}` FROM {account}"
