"""What the logins' accounts may really do, compared with roles.py. Reads the catalogue only.

An account sees its own rights; those of others only who may read the schema `mysql`.
"""

from __future__ import annotations

from collections.abc import Iterable

from asyncmy.errors import MySQLError

from surehook.model.roles import ROLES_ON, Role
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
# A routine is shown to who may call it. Who reads the schema `mysql` sees who may.
_MINE = (
    "SELECT 'EXECUTE', routine_name, '*' FROM information_schema.routines "
    "WHERE routine_schema = DATABASE()"
)
_CALLERS = (
    "SELECT CONCAT(QUOTE(user), '@', QUOTE(host)), 'EXECUTE', routine_name, '*' "
    "FROM mysql.procs_priv WHERE db = DATABASE() AND FIND_IN_SET('Execute', proc_priv)"
)
# The bucket of an event whose writer may read nothing.
_CALLS: dict[str, set[Right]] = {"outbox": {("EXECUTE", "surehook_bucket", "*")}}


def accounts(role: Role) -> list[str]:
    return [f"'{role.name}'@'{host}'" for host in HOSTS]


async def actual(connection: Connection) -> dict[str, set[Right]]:
    """What each account that we can see may do with our tables."""
    found: dict[str, set[Right]] = {}
    for grantee, verb, table, column in await connection.fetch(_RIGHTS):
        found.setdefault(grantee, set()).add((verb.upper(), table, column))
    return found


async def own(connection: Connection) -> set[Right]:
    """What the account that is logged in may do with our tables and functions."""
    user, _, host = str(await connection.value("SELECT CURRENT_USER()")).rpartition("@")
    found = (await actual(connection)).get(f"'{user}'@'{host}'", set())
    return found | {(row[0], row[1], row[2]) for row in await connection.fetch(_MINE)}


def difference_of(role: Role, found: set[Right]) -> str:
    """In words; empty if it is exactly right."""
    return difference(role, found, _CALLS.get(role.login, set()))


async def sees_all(connection: Connection) -> bool:
    """Whether others' rights are shown to us."""
    try:
        await connection.fetch("SELECT 1 FROM mysql.user LIMIT 1")
    except MySQLError:
        return False
    return True


async def _everybodys(connection: Connection) -> dict[str, set[Right]]:
    """With the functions that each may call; for who sees all."""
    found = await actual(connection)
    for grantee, verb, routine, column in await connection.fetch(_CALLERS):
        found.setdefault(grantee, set()).add((verb, routine, column))
    return found


async def differences(connection: Connection) -> list[str]:
    """One line per account whose rights are not exactly those of roles.py."""
    found = await _everybodys(connection)
    compared = [
        (account, difference_of(role, found.get(account, set())))
        for role in ROLES_ON["mysql"]
        for account in accounts(role)
    ]
    return [f"{account} {words}" for account, words in compared if words]


async def too_much(connection: Connection) -> list[str]:
    """The statements that take away what roles.py does not give; no right is missing
    meanwhile. A right on the whole server is left to its administrator."""
    found = await _everybodys(connection)
    return [
        statement
        for role in ROLES_ON["mysql"]
        for account in accounts(role)
        for statement in _revocations(
            account, found.get(account, set()) - expected(role) - _CALLS.get(role.login, set())
        )
    ]


def _revocations(account: str, extra: Iterable[Right]) -> Iterable[str]:
    for verb, table, column in sorted(extra):
        if verb == "EXECUTE" and not table.startswith("*"):
            yield f"REVOKE EXECUTE ON FUNCTION {table} FROM {account}"
        elif table == "*":
            yield f"REVOKE {verb} ON * FROM {account}"
        elif table != "*.*":
            columns = "" if column == "*" else f" (`{column}`)"
            yield f"REVOKE {verb}{columns} ON `{table}` FROM {account}"
