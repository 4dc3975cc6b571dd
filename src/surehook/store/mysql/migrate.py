"""Brings a MySQL or MariaDB database to this program's schema: numbered, forward only, repeatable.

Reads   the migration and generated files of the package, schema_migrations, schema_settings
Writes  schema, accounts, grants, schema_migrations, schema_settings      (as the main login)

DDL commits at once here, so a crash may leave half a step. Every statement may be run again, and
a step's row in schema_migrations comes last: the next run repeats the step. Processes that migrate
at once take turns by GET_LOCK; where that does not reach (a cluster), repeating does no harm. No
DDL waits longer than 2 s for a lock: it lets go and tries again.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from asyncmy.errors import MySQLError

from surehook.errors import Bug, ConfigError, DatabaseUnreachable, Declined
from surehook.model.roles import ROLES, ROLES_ON, TABLES_ON
from surehook.store.logins import Login, derived_password, secret_fingerprint
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
from surehook.store.mysql import failures, passwords, rights, shape
from surehook.store.mysql.connection import Connection, connect, sql_mode
from surehook.store.mysql.script import replaceable, statements
from surehook.store.mysql.server import Server
from surehook.store.mysql.shape import Expected
from surehook.store.shape import Fault

Result = TypeVar("Result")
Together = list[str]  # statements of which the first is repeated if the last one fails

LOCK_WAIT_SECONDS = 2
TURN_SECONDS = 60
LOGIN_SECONDS = 10

DIALECT = "mysql"
generated = partial(generated_sql, DIALECT)

# Two first migrations at once: the name is there, or gone already, also that of the trigger before
# which another one is to come (3011, MariaDB: 4031); a table changes meanwhile.
_AGAIN = {*failures.TRY_AGAIN, 1304, 1305, 1359, 1360, 1684, 3011, 4031}
# A step that a crash had left half done: the column, the index, the foreign key is there.
_DONE_BEFORE = {1060, 1061, 1826}
_ACCOUNT_EXISTS = 1396
_NO_ACCOUNT = {1133, 1410}
_NO_GRANT = {1141, 1147}
_FORBIDDEN_ROWS = {1062, 1452, 1216, 1169}  # that a key or a foreign key does not allow

_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version        INT          NOT NULL PRIMARY KEY,
    name           VARCHAR(100) NOT NULL,
    checksum       VARCHAR(64)  NOT NULL,
    oldest_program VARCHAR(50)  NOT NULL,
    applied_at     DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;
CREATE TABLE IF NOT EXISTS schema_settings (
    name  VARCHAR(100) NOT NULL PRIMARY KEY,
    value VARCHAR(200) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = :collation;
"""


# ── What is there ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class MysqlState(State):
    """What a database says about its own schema, and which server it is on."""

    server: Server


async def read_state(connection: Connection) -> MysqlState:
    """Read-only, for any role; an empty database has an empty state."""
    there = await connection.value(
        "SELECT 1 FROM information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name = 'schema_settings'"
    )
    if there is None:
        return MysqlState(DIALECT, {}, {}, connection.server)
    rows = await connection.fetch(
        "SELECT version, name, checksum, oldest_program FROM schema_migrations ORDER BY version"
    )
    settings = await connection.fetch("SELECT name, value FROM schema_settings")
    applied = {row[0]: Applied(*row) for row in rows}
    return MysqlState(DIALECT, applied, {row[0]: row[1] for row in settings}, connection.server)


async def set_installation(connection: Connection, value: str) -> None:
    """For a copy: from now on it is another installation than its original."""
    await _note(connection, "installation", value)


async def _note(connection: Connection, name: str, value: str) -> None:
    await connection.write(
        "INSERT INTO schema_settings (name, value) VALUES (%(name)s, %(value)s) "
        "ON DUPLICATE KEY UPDATE value = %(value)s",
        name=name,
        value=value,
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
    """Apply what is missing. With a role secret, the logins' accounts are made too.

    `grants` without a secret is for accounts that an administrator made (one URL per login).
    """
    connection.server.refuse_if_unfit()
    await connection.write(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}")
    async with _turn(connection):
        if not await _schema(connection, buckets, until, report):
            return  # stopped on the way, on request
        new = False
        if role_secret is not None:
            new = await _make_accounts(connection, role_secret, report)
        if role_secret is not None or grants:
            await _grant(connection, role_secret, new, report)


@asynccontextmanager
async def _turn(connection: Connection) -> AsyncIterator[None]:
    """One at a time, as a courtesy: correctness does not rest on it."""
    name = await connection.value(
        "SELECT CONCAT('surehook migrate ', LEFT(SHA2(DATABASE(), 256), 32))"
    )
    await connection.value("SELECT GET_LOCK(%(name)s, %(wait)s)", name=name, wait=TURN_SECONDS)
    try:
        yield
    finally:
        if connection.usable:
            await connection.value("SELECT RELEASE_LOCK(%(name)s)", name=name)


async def _schema(
    connection: Connection, buckets: int | None, until: int | None, report: Report
) -> bool:
    """Tables and triggers; False if some were left out on request."""
    await _run_all(connection, _rendered(_LEDGER, 1, connection.server), report)
    state = await read_state(connection)
    state.refuse_if_too_new()
    state.refuse_if_changed()
    count = await _fix_buckets(connection, state, buckets)
    for migration in state.pending:
        if until is None or migration.version <= until:
            await _apply(connection, migration, count, report)
    now = await read_state(connection)
    if now.pending:
        return False
    if not now.installation:  # somebody took it away
        await set_installation(connection, new_installation())
        report("gave the installation a new id")
    if await _changed(connection, "guard"):
        await _run_all(connection, _rendered(generated("guard"), count, connection.server), report)
        await _remember(connection, "guard")
        report("applied guard")
    await _repair(connection, count, report)
    return True


def expected_parts(buckets: int, server: Server) -> Expected:
    """What all scripts together make of an empty database."""
    texts = [_LEDGER, *(m.rendered(buckets) for m in migrations(DIALECT)), generated("guard")]
    return shape.expected(
        (one for text in texts for one in _statements(text, buckets, server)), server
    )


async def damage(connection: Connection, state: State) -> list[Fault]:
    """What was lost or changed since migrating."""
    return await shape.compare(connection, expected_parts(state.buckets or 1, connection.server))


async def _repair(connection: Connection, buckets: int, report: Report) -> None:
    made = expected_parts(buckets, connection.server)
    wrong = await shape.compare(connection, made)
    shape.refuse_if_lost(wrong)
    for fault in wrong:
        if fault.part.kind == "column":
            continue  # its table is converted, and it with it
        try:
            statements = await shape.repair(connection, fault, made)
            await _run_all(connection, [statements], report)
        except MySQLError as error:
            if failures.number(error) not in _FORBIDDEN_ROWS:
                raise
            raise Declined(
                f"The {fault.part} cannot be put back: {failures.message_of(error)}.",
                "Correct the rows that it forbids, then run `surehook migrate` again.",
            ) from None
        report(f"repaired: {fault}")
    if any(fault.part.kind == "column" for fault in wrong):
        shape.refuse_if_lost(await shape.compare(connection, made))


def _rendered(text: str, buckets: int, server: Server) -> list[Together]:
    """The statements of a script, as this server takes them."""
    found = _statements(text, buckets, server)
    return [[one] if server.is_mariadb else replaceable(one) for one in found]


def _statements(text: str, buckets: int, server: Server) -> list[str]:
    parts = ", ".join(f"PARTITION b{n} VALUES IN ({n})" for n in range(buckets))
    text = text.replace(":partitions", f"({parts})" if buckets > 1 else "")
    return statements(text.replace(":collation", server.collation))


async def _fix_buckets(connection: Connection, state: State, wanted: int | None) -> int:
    if state.buckets is None:
        await connection.write(
            "INSERT INTO schema_settings (name, value) VALUES ('buckets', %(count)s) "
            "ON DUPLICATE KEY UPDATE name = name",
            count=str(wanted or 1),
        )
    fixed = await connection.value("SELECT value FROM schema_settings WHERE name = 'buckets'")
    return agreed_buckets(int(fixed), wanted)


async def _apply(
    connection: Connection, migration: Migration, buckets: int, report: Report
) -> None:
    text = migration.rendered(buckets)
    await _run_all(connection, _rendered(text, buckets, connection.server), report, repeated=True)
    try:
        await connection.write(
            "INSERT INTO schema_migrations (version, name, checksum, oldest_program) "
            "VALUES (%(version)s, %(name)s, %(checksum)s, %(oldest)s)",
            version=migration.version,
            name=migration.name,
            checksum=migration.checksum,
            oldest=migration.oldest_program,
        )
    except MySQLError as error:
        if failures.number(error) != failures.DUPLICATE:
            raise
        return  # another process was faster
    report(f"applied {migration.version:04} {migration.name}")


def _checksum(name: str) -> str:
    return hashlib.sha256(generated(name).encode()).hexdigest()


async def _changed(connection: Connection, name: str) -> bool:
    """Generated SQL is applied again only when it changed: it takes locks on hot tables."""
    applied = await connection.value(
        "SELECT value FROM schema_settings WHERE name = %(name)s", name=f"generated {name}"
    )
    return bool(applied != _checksum(name))


async def _remember(connection: Connection, name: str) -> None:
    await _note(connection, f"generated {name}", _checksum(name))


# ── Accounts and grants ───────────────────────────────────────────────────────────────────────


async def _make_accounts(connection: Connection, role_secret: str, report: Report) -> bool:
    """One login per role, its password derived from the role secret; True if any was missing.

    Accounts belong to the whole server: two databases on it share them, and so must share the
    secret. There is no place on every server to note a fingerprint of it (MariaDB's accounts have
    no comments, and the schema `mysql` is not ours), and none is needed: the password of an account
    that is there either lets us in or was made with another secret.
    """
    mark = f"surehook {secret_fingerprint(role_secret)}"
    setting = await connection.value("SELECT value FROM schema_settings WHERE name = 'accounts'")
    if setting == mark and await _all_let_in(connection, role_secret):
        return False
    made = [await _make_account(connection, role.name, role_secret, report) for role in ROLES]
    await _note(connection, "accounts", mark)
    if any(made):
        report("created the logins' roles")
    return any(made)


async def _make_account(
    connection: Connection, role: str, role_secret: str, report: Report
) -> bool:
    password = derived_password(role_secret, role)
    # Only its hash travels: the password itself is never in a statement or a log.
    if connection.server.is_mariadb:
        proof = f"VIA mysql_native_password USING '{passwords.native(password)}'"
    else:
        proof = f"WITH caching_sha2_password AS '{passwords.caching_sha2(password)}'"
    existing = []
    for host in rights.HOSTS:
        statement = f"CREATE USER '{role}'@'{host}' IDENTIFIED {proof}"
        try:
            await _patiently(partial(connection.write, statement), report)
        except MySQLError as error:
            if failures.number(error) != _ACCOUNT_EXISTS:
                raise
            existing.append(host)
    if existing and not await _lets_in(connection, role, role_secret):
        raise ConfigError(
            f"The role {role} on this server was made with another role secret, or by hand.",
            "Databases on one server share these roles: use the same SUREHOOK_ROLE_SECRET, or "
            "drop the roles that are not in use.",
        )
    return len(existing) < len(rights.HOSTS)


async def _all_let_in(connection: Connection, role_secret: str) -> bool:
    """Whether every account is there, on each host as far as we may see, and takes its password."""
    if await rights.sees_all(connection):
        rows = await connection.fetch(
            "SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user"
        )
        if not {one for role in ROLES for one in rights.accounts(role)} <= {row[0] for row in rows}:
            return False
    tried = [await _lets_in(connection, role.name, role_secret) for role in ROLES]
    return all(tried)


async def _lets_in(connection: Connection, role: str, role_secret: str) -> bool:
    """Whether the account takes this secret's password, whatever it may do then."""
    login = Login("migrate", connection.login.url, role, derived_password(role_secret, role))
    try:
        other = await connect(login, LOGIN_SECONDS)
    except DatabaseUnreachable as error:
        return failures.number(error.__context__ or error) not in (1045, 1698)
    await other.close()
    return True


async def _grant(
    connection: Connection, role_secret: str | None, new: bool, report: Report
) -> None:
    """Exactly the rights of roles.py. What is missing is given before anything is taken away."""
    state = await read_state(connection)
    sees_all = await rights.sees_all(connection)
    # A restored dump brings the mark that they are applied, not the grants themselves.
    if sees_all:
        wrong = bool(await rights.differences(connection))
    else:
        wrong = role_secret is not None and await _some_differ(connection, role_secret)
    if not (new or wrong or await _changed(connection, "grants")):
        return
    given = [[one] for one in statements(generated("grants"))]
    await _give(connection, given, report)
    if sees_all:
        extra = [[one] for one in await rights.too_much(connection)]
        await _run_all(connection, extra, report)
        if extra:  # a table's revoked right takes its columns' along
            await _give(connection, given, report)
    elif state.settings.get("generated grants"):
        await _renew(connection, given, report)
    await _remember(connection, "grants")
    report("applied grants")


async def _some_differ(connection: Connection, role_secret: str) -> bool:
    """For who cannot see others' rights: each role sees its own, so it is asked."""
    for role in ROLES_ON[DIALECT]:
        password = derived_password(role_secret, role.name)
        try:
            other = await connect(
                Login("migrate", connection.login.url, role.name, password), LOGIN_SECONDS
            )
        except DatabaseUnreachable:  # it may not even enter this database
            return True
        try:
            if rights.difference_of(role, await rights.own(other)):
                return True
        finally:
            await other.close()
    return False


async def _give(connection: Connection, given: Iterable[Together], report: Report) -> None:
    try:
        await _run_all(connection, given, report)
    except MySQLError as error:
        if failures.number(error) not in _NO_ACCOUNT:
            raise
        names = ", ".join(sorted(role.name for role in ROLES))
        raise Declined(
            f"The server lacks some of the roles {names} for the hosts localhost and %.",
            "Create them (`surehook migrate --sql` shows how), or set SUREHOOK_ROLE_SECRET and "
            "let migrate do it.",
        ) from None


async def _renew(connection: Connection, given: list[Together], report: Report) -> None:
    """For who cannot see what an older program had granted: table by table everything is taken and
    given again, so that for a moment a role cannot use that table."""
    for role in ROLES_ON[DIALECT]:
        for table in TABLES_ON[DIALECT]:
            for account in rights.accounts(role):
                await _take(connection, f"REVOKE ALL PRIVILEGES ON {table} FROM {account}", report)
            again = [step for step in given if f" ON {table} TO '{role.name}'@" in _flat(step)]
            await _run_all(connection, again, report)


async def _take(connection: Connection, revoke: str, report: Report) -> None:
    try:
        await _patiently(partial(connection.write, revoke), report)
    except MySQLError as error:
        if failures.number(error) not in _NO_GRANT:
            raise


def _flat(step: Together) -> str:
    return " ".join(" ".join(step).split())


# ── Patience ──────────────────────────────────────────────────────────────────────────────────


async def _run_all(
    connection: Connection, steps: Iterable[Together], report: Report, repeated: bool = False
) -> None:
    for step in steps:
        try:
            await _patiently(partial(_run, connection, step), report)
        except MySQLError as error:
            code = failures.number(error)
            done = code in _DONE_BEFORE or (code == failures.DUPLICATE and _inserts(step))
            if not (repeated and done):
                raise


def _inserts(step: Together) -> bool:
    """A row that was not there is there meanwhile: another migration has inserted it."""
    return step[-1].lstrip().upper().startswith("INSERT")


async def _run(connection: Connection, step: Together) -> None:
    for text in step:
        await connection.write(text)


async def _patiently(work: Callable[[], Awaitable[Result]], report: Report) -> Result:
    return await patiently(work, report, _busy, "SHOW PROCESSLIST")


def _busy(error: Exception) -> tuple[str, bool] | None:
    if not isinstance(error, MySQLError):
        return None
    code, said = failures.number(error), failures.message_of(error)
    if code in failures.TRIGGERS_REFUSED:
        raise Declined(
            f"The server writes a binary log and lets only its administrator create triggers "
            f"({said}).",
            "Set log_bin_trust_function_creators = 1, or migrate as the administrator.",
        ) from None
    if code in failures.NO_RIGHT:
        raise Declined(
            f"This login may not do that: {said}.",
            "Migrate as an owner of the database with CREATE USER and GRANT OPTION, or set "
            "database.roles = off.",
        ) from None
    return (said, code == failures.LOCK_WAIT) if code in _AGAIN else None


# ── For people ────────────────────────────────────────────────────────────────────────────────


def as_sql(state: State, buckets: int, with_roles: bool) -> str:
    """Everything that `migrate` would run, for an administrator to read and feed to `mysql`."""
    if not isinstance(state, MysqlState):
        raise Bug("this state does not say which server it is of")
    server = state.server
    parts = [
        f"SET NAMES utf8mb4 COLLATE {server.collation};",
        f"SET SESSION sql_mode = '{sql_mode(server)}', time_zone = '+00:00';",
        _as_script(_rendered(_LEDGER, 1, server)),
    ]
    for m in state.pending:
        parts.append(f"-- ── {m.version:04} {m.name} ──")
        parts.append(_as_script(_rendered(m.rendered(buckets), buckets, server)))
        parts.append(
            "INSERT INTO schema_migrations (version, name, checksum, oldest_program) VALUES "
            f"({m.version}, '{m.name}', '{m.checksum}', '{m.oldest_program}');"
        )
    parts.append(_as_script(_rendered(generated("guard"), buckets, server)))
    if with_roles:
        parts.append(_accounts_as_sql())
        parts.append(generated("grants"))
    if state.buckets is None:
        parts.append(f"INSERT INTO schema_settings VALUES ('buckets', '{buckets}');")
    for name in ["guard", "grants"] if with_roles else ["guard"]:
        parts.append(
            f"INSERT INTO schema_settings VALUES ('generated {name}', '{_checksum(name)}')\n"
            f"    ON DUPLICATE KEY UPDATE value = '{_checksum(name)}';"
        )
    return "\n\n".join(parts)


def _as_script(steps: Iterable[Together]) -> str:
    texts = [f"{text}//" for step in steps for text in step]
    return "\n\n".join(["DELIMITER //", *texts, "DELIMITER ;"])


def _accounts_as_sql() -> str:
    made = "\n".join(
        f"CREATE USER IF NOT EXISTS '{role.name}'@'{host}' ACCOUNT LOCK;"
        for role in ROLES
        for host in rights.HOSTS
    )
    return (
        "-- Set a password for each of these (ALTER USER … IDENTIFIED BY … ACCOUNT UNLOCK) and\n"
        "-- give every login its own URL (SUREHOOK_DATABASE_URL_ROUTER …), or let\n"
        f"-- `surehook migrate` make them.\n{made}"
    )
