"""What the doctor looks at on MySQL and MariaDB, in order. Reads settings and catalogue only."""

from __future__ import annotations

from asyncmy.errors import MySQLError

from surehook.config import Config
from surehook.errors import Declined
from surehook.model.roles import TABLES_ON
from surehook.store import doctor
from surehook.store.doctor import ROW_TO_LOCK, Around, refusal
from surehook.store.findings import Finding, Level
from surehook.store.logins import DatabaseAccess, Login
from surehook.store.mysql import failures, rights
from surehook.store.mysql.connection import Connection, connect
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.mysql.migrate import damage, read_state

# A batch of events, and every quote and backslash in it twice.
PACKET_BYTES_MIN = 16 * 1024**2


async def examine(config: Config, access: DatabaseAccess) -> list[Finding]:
    """Everything that can be found out; stops early where the rest would make no sense."""
    timeout = config.seconds("database.connect_timeout")
    connection = await connect(Login("doctor", access.url), timeout)
    try:
        version = _version(connection)
        if version.level is Level.WRONG:
            return [version]
        schema = doctor.schema(await read_state(connection))
        findings = [version, *await _server(config, connection), schema]
        if schema.level is Level.WRONG:
            return findings
        findings += [await _tables(connection), await _parts(connection)]
        reason = await _not_skipping(connection, access, timeout)
        findings.append(doctor.locks(reason, "MySQL or MariaDB"))
        return findings + await doctor.logins(
            config, access, MysqlDatabase, _look_around, rights.difference_of
        )
    finally:
        await connection.close()


def _version(connection: Connection) -> Finding:
    try:
        connection.server.refuse_if_unfit()
    except Declined as error:
        return refusal("version", error)
    return Finding("version", Level.GOOD, str(connection.server))


async def _server(config: Config, connection: Connection) -> list[Finding]:
    durable = await durability(config, connection)
    clock = await doctor.clock(connection.value("SELECT UTC_TIMESTAMP(6)"))
    settings = await _settings(connection)
    findings = [durable, clock, _writable(settings), _packets(settings)]
    if settings.get("wsrep_on") == "ON" or settings.get(_PRIMARIES) == "OFF":
        findings.append(
            Finding(
                "cluster",
                Level.NOTE,
                "The server is one of several that take writes.",
                "Row locks end at one server: let every component and every application that "
                "writes events connect to the same one; the others may stand by.",
            )
        )
    return findings


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
    return doctor.durability_of(
        config,
        ", ".join(unsafe),
        good="commits are on disk before they are acknowledged",
        advice="Change it in the server's configuration",
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
    """But for converted tables: they have their own finding."""
    found = await damage(connection, await read_state(connection))
    wrong = [one for one in found if one.part.kind != "table" or one.found is None]
    return doctor.parts(wrong, "columns, keys and triggers")


async def _not_skipping(connection: Connection, access: DatabaseAccess, timeout: float) -> str:
    """Lock a row here; another connection must pass it by, not wait and not get it."""
    other = await connect(Login("doctor", access.url), timeout)
    try:
        await connection.write("START TRANSACTION")
        await connection.fetch(ROW_TO_LOCK)
        found = await doctor.unless_it_waits(other.fetch(f"{ROW_TO_LOCK} SKIP LOCKED"))
    except (TimeoutError, MySQLError) as error:
        return failures.message_of(error) or "it waited"
    finally:
        other.terminate()
        await connection.write("ROLLBACK")
    return "two connections got the same row" if found else ""


async def _look_around(session: MysqlSession) -> Around:
    user = str(await session.connection.value("SELECT CURRENT_USER()")).rpartition("@")[0]
    return user, await rights.own(session.connection)
