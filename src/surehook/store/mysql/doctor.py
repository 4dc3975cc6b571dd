"""Doctor: proves that a MySQL or MariaDB database is fit for surehook, finding by finding.

Reads   the server's settings, the schema's ledger, the catalogue; as the owner and as each role
Writes  nothing (one row of schema_settings is locked for a moment and let go)

A finding is one line: what was looked at, what it means, what to do. A database that cannot be
reached is no finding but DatabaseUnreachable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

from asyncmy.errors import MySQLError

from surehook.config import Config
from surehook.errors import AnswerIsNo, SurehookError
from surehook.model.roles import ROLES_ON, TABLES_ON, Role
from surehook.store.findings import Finding, Level
from surehook.store.logins import DatabaseAccess, Login, login
from surehook.store.mysql import failures, rights
from surehook.store.mysql.connection import Connection, connect
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.mysql.migrate import damage, read_state
from surehook.store.rights import Right, expected
from surehook.store.shape import listed

# A statement that meets a lock must come back at once; one that waits this long does not skip.
SKIP_SECONDS_MAX = 2.0
CLOCK_SECONDS_MAX = 5.0
# A batch of events, and every quote and backslash in it twice.
PACKET_BYTES_MIN = 16 * 1024**2
ROLES = ROLES_ON["mysql"]


async def examine(config: Config, access: DatabaseAccess) -> list[Finding]:
    """Everything that can be found out; stops early where the rest would make no sense."""
    timeout = config.seconds("database.connect_timeout")
    connection = await connect(Login("doctor", access.url), timeout)
    try:
        version = _version(connection)
        if version.level is Level.WRONG:
            return [version]
        findings = [version, *[one async for one in _server(config, connection)]]
        schema = await _schema(connection)
        findings.append(schema)
        if schema.level is Level.WRONG:
            return findings
        findings.append(await _tables(connection))
        findings.append(await _parts(connection))
        findings.append(await _skip_locked(connection, access, timeout))
        findings += await _components(config, access)
        return findings
    finally:
        await connection.close()


# ── The server ────────────────────────────────────────────────────────────────────────────────


def _version(connection: Connection) -> Finding:
    try:
        connection.server.refuse_if_unfit()
    except AnswerIsNo as error:
        return Finding("version", Level.WRONG, error.message, error.advice)
    return Finding("version", Level.GOOD, str(connection.server))


async def _server(config: Config, connection: Connection) -> AsyncIterator[Finding]:
    yield await durability(config, connection)
    yield await _clock(connection)
    settings = await _settings(connection)
    yield _writable(settings)
    yield _packets(settings)
    if settings.get("wsrep_on") == "ON" or settings.get(_PRIMARIES) == "OFF":
        yield Finding(
            "cluster",
            Level.NOTE,
            "The server is one of several that take writes.",
            "Row locks end at one server: let every component and every application that writes "
            "events connect to the same one; the others may stand by.",
        )


_PRIMARIES = "group_replication_single_primary_mode"
_SETTINGS = (
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "innodb_flush_method",
    "log_bin",
    "sync_binlog",
    "binlog_format",
    "read_only",
    "max_allowed_packet",
    "innodb_rollback_on_timeout",
    "wsrep_on",
    _PRIMARIES,
)


async def _settings(connection: Connection) -> dict[str, str]:
    """Those of them that this server knows."""
    names = ", ".join(f"'{name}'" for name in _SETTINGS)
    rows = await connection.fetch(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return {name.lower(): str(value).upper() for name, value in rows}


async def durability(config: Config, connection: Connection) -> Finding:
    """Whether what was acknowledged survives a crash of the server and of its machine."""
    settings = await _settings(connection)
    unsafe = []
    if settings["innodb_flush_log_at_trx_commit"] != "1":
        unsafe.append("innodb_flush_log_at_trx_commit is not 1")
    # What a crash leaves prepared is kept only if the binary log has it.
    if settings.get("log_bin") == "ON" and settings.get("sync_binlog") != "1":
        unsafe.append("log_bin is on and sync_binlog is not 1")
    if settings.get("innodb_doublewrite") == "OFF":
        unsafe.append("innodb_doublewrite is off")
    if settings.get("innodb_flush_method") == "NOSYNC":
        unsafe.append("innodb_flush_method is nosync")
    if not unsafe:
        return Finding("durability", Level.GOOD, "commits are on disk before they are acknowledged")
    says = f"The server may lose acknowledged events: {', '.join(unsafe)}."
    if config.flag("database.allow_unsafe"):
        return Finding("durability", Level.NOTE, says, "Permitted by database.allow_unsafe.")
    return Finding(
        "durability",
        Level.WRONG,
        says,
        "Change it in the server's configuration; or set database.allow_unsafe = true if losing "
        "events is acceptable here.",
    )


async def _clock(connection: Connection) -> Finding:
    asked = datetime.now(UTC)
    theirs: datetime = await connection.value("SELECT UTC_TIMESTAMP(6)")
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


def _writable(settings: dict[str, str]) -> Finding:
    if settings.get("read_only", "OFF") not in ("OFF", "0"):
        return Finding(
            "writing",
            Level.WRONG,
            "The server is read-only: it is a replica, or it is being switched over.",
            "Name the server that takes writes in the URL.",
        )
    if settings.get("log_bin") == "ON" and settings.get("binlog_format") == "STATEMENT":
        return Finding(
            "writing",
            Level.WRONG,
            "binlog_format is STATEMENT: such a log cannot follow READ COMMITTED, which we use.",
            "Set binlog_format to ROW or MIXED.",
        )
    if settings.get("innodb_rollback_on_timeout") == "ON":
        return Finding(
            "writing",
            Level.WRONG,
            "innodb_rollback_on_timeout is on: a lock that is not free ends a whole transaction, "
            "and what follows in it would be written by itself.",
            "Turn it off in the server's configuration (its default).",
        )
    return Finding("writing", Level.GOOD, "the server takes writes")


def _packets(settings: dict[str, str]) -> Finding:
    size = int(settings["max_allowed_packet"])
    if size >= PACKET_BYTES_MIN:
        return Finding("packets", Level.GOOD, f"max_allowed_packet is {size / 1024**2:.0f} MiB")
    return Finding(
        "packets",
        Level.WRONG,
        f"max_allowed_packet is {size / 1024**2:.1f} MiB: large batches of events would fail.",
        f"Set it to {PACKET_BYTES_MIN // 1024**2} MiB or more.",
    )


# ── The database ──────────────────────────────────────────────────────────────────────────────


async def _schema(connection: Connection) -> Finding:
    try:
        state = await read_state(connection)
        state.refuse_if_too_new()
        state.refuse_if_changed()
        state.refuse_if_too_old()
    except AnswerIsNo as error:
        return Finding("schema", Level.WRONG, error.message, error.advice)
    return Finding("schema", Level.GOOD, state.summary)


async def _tables(connection: Connection) -> Finding:
    """A table that was converted would not lock rows, or take two keys for one."""
    rows = await connection.fetch(
        "SELECT table_name, engine, table_collation FROM information_schema.tables "
        "WHERE table_schema = DATABASE()"
    )
    collation = connection.server.collation
    wrong = [
        f"{table} ({engine}, {found})"
        for table, engine, found in rows
        if table in TABLES_ON["mysql"] and (engine != "InnoDB" or found != collation)
    ]
    if not wrong:
        return Finding("tables", Level.GOOD, f"all are InnoDB with {collation}")
    says = f"Tables were converted: {', '.join(wrong)}."
    return Finding("tables", Level.WRONG, says, "Run `surehook migrate`: it writes them anew.")


async def _parts(connection: Connection) -> Finding:
    """Whether keys, functions and triggers are what the migrations made."""
    found = await damage(connection, await read_state(connection))
    wrong = [one for one in found if one.part.kind != "table" or one.found is None]
    if wrong:
        return Finding("parts", Level.WRONG, f"{listed(wrong)}.", "Run `surehook migrate`.")
    return Finding("parts", Level.GOOD, "columns, keys and triggers are as migrated")


async def _skip_locked(connection: Connection, access: DatabaseAccess, timeout: float) -> Finding:
    """Lock a row here; another connection must pass it by, not wait and not get it."""
    row = "SELECT name FROM schema_settings WHERE name = 'buckets' FOR UPDATE"
    other = await connect(Login("doctor", access.url), timeout)
    try:
        await connection.write("START TRANSACTION")
        await connection.fetch(row)
        found = await asyncio.wait_for(other.fetch(f"{row} SKIP LOCKED"), SKIP_SECONDS_MAX)
    except (TimeoutError, MySQLError) as error:
        return _does_not_skip(failures.words(error) or "it waited")
    finally:
        other.terminate()
        await connection.write("ROLLBACK")
    if found:
        return _does_not_skip("two connections got the same row")
    return Finding("locks", Level.GOOD, "SKIP LOCKED passes by what another connection holds")


def _does_not_skip(reason: str) -> Finding:
    return Finding(
        "locks",
        Level.WRONG,
        f"SKIP LOCKED does not skip here ({reason}).",
        "Use MySQL or MariaDB itself: workers would wait for each other or send a job twice.",
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


Judge = Callable[[Role, set[Right]], str]


async def _component(config: Config, access: DatabaseAccess, judge: Judge, role: Role) -> Finding:
    """Log in as the component does, through its pool, and look around."""
    subject = f"role {role.name}" if judge is _judge else "main login"
    database = MysqlDatabase(config, login(config, access, role.login))
    try:
        await database.open()  # asserts the session settings from inside
        user, found = await database.run(_look_around)
    except SurehookError as error:
        return Finding(subject, Level.WRONG, error.message, error.advice)
    finally:
        await database.close()
    words = judge(role, found)
    if words:
        return Finding(subject, Level.WRONG, f"{user} {words}.", "Run `surehook migrate`.")
    who = role.login if judge is _judge else user
    return Finding(subject, Level.GOOD, f"{who} logs in, its settings and rights are right")


async def _look_around(session: MysqlSession) -> tuple[str, set[Right]]:
    user = str(await session.connection.value("SELECT CURRENT_USER()")).rpartition("@")[0]
    return user, await rights.own(session.connection)


def _judge(role: Role, found: set[Right]) -> str:
    return rights.difference_of(role, found)


def _judge_main_login(_role: Role, found: set[Right]) -> str:
    """With roles off one login does everything: it must be able to."""
    needed: set[Right] = set().union(*(expected(role) for role in ROLES))
    missing = [
        (verb, table, column)
        for verb, table, column in needed
        if not {(verb, table, column), (verb, table, "*"), (verb, "*", "*"), (verb, "*.*", "*")}
        & found
    ]
    return f"lacks {len(missing)} of the rights that the components need" if missing else ""
