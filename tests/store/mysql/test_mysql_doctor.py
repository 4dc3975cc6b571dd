"""Doctor on MySQL and MariaDB: a healthy database, and every kind of sick one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from support import Configure
from support.connections import engine_connection, migrate
from support.mysql_server import OWN_SERVERS, MariadbServer
from support.servers import Server, connected, private_directory
from surehook.config import Config
from surehook.errors import DatabaseUnreachable, Declined
from surehook.model.roles import ROLES
from surehook.process.doctor import examine, refuse_if_unsafe
from surehook.store.findings import Finding, Level
from surehook.store.logins import DatabaseAccess
from surehook.store.mysql import doctor
from surehook.store.mysql.connection import Connection
from surehook.store.mysql.server import Server as Words

pytestmark = pytest.mark.only_on("mysql", reason="settings and rights of this engine")
UNSAFE = {"database.allow_unsafe": True}  # the harness's own server does not wait for the disk


def wrong(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is Level.WRONG]


def about(findings: list[Finding], subject: str) -> Finding:
    return next(finding for finding in findings if finding.subject == subject)


@asynccontextmanager
async def changed(url: str, variable: str, value: str) -> AsyncIterator[None]:
    """A global setting of a server that others use too: only what does nobody harm."""
    async with connected(url) as owner:
        before = (await owner.native(f"SELECT @@GLOBAL.{variable}"))[0][0]
        await owner.native(f"SET GLOBAL {variable} = {value}")
        try:
            yield
        finally:
            await owner.native(f"SET GLOBAL {variable} = {before}")


# ── Healthy ───────────────────────────────────────────────────────────────────────────────────


async def test_a_healthy_database_has_only_good_findings(
    configure: Configure, access: DatabaseAccess
) -> None:
    findings = await examine(configure(UNSAFE), access)
    assert wrong(findings) == []
    assert [one.subject for one in findings] == [
        *("version", "durability", "clock", "writing", "packets", "schema", "tables", "parts"),
        "locks",
        *(f"role {role.name}" for role in ROLES),
        "encryption key",
    ]


async def test_without_roles_the_main_login_is_looked_at(
    configure: Configure, access: DatabaseAccess
) -> None:
    findings = await examine(configure({**UNSAFE, "database.roles": False}), access)
    assert wrong(findings) == []
    assert about(findings, "roles").level is Level.NOTE
    assert "rights are right" in about(findings, "main login").says


# ── The server ────────────────────────────────────────────────────────────────────────────────


async def test_a_server_that_may_forget_is_refused_unless_permitted(
    configure: Configure, database_url: str, server: Server
) -> None:
    async with (
        changed(database_url, "innodb_flush_log_at_trx_commit", "2"),
        engine_connection(database_url) as connection,
    ):
        finding = await doctor.durability(configure(), connection)
        assert finding.level is Level.WRONG
        assert "innodb_flush_log_at_trx_commit is not 1" in finding.says
        with pytest.raises(Declined, match="may lose acknowledged events"):
            await refuse_if_unsafe(configure(), database_url, connection)
        await refuse_if_unsafe(configure(UNSAFE), database_url, connection)


async def test_settings_under_which_writes_would_go_wrong_are_found(configure: Configure) -> None:
    """Among them: after a crash a server rolls back what its binary log does not have."""
    with (
        private_directory() as directory,
        MariadbServer(
            directory / "data",
            *("--log-bin", "--server-id=1", "--innodb-flush-method=fsync"),
            *("--sync-binlog=0", "--max-allowed-packet=1M", "--binlog-format=STATEMENT"),
            "--innodb-rollback-on-timeout=ON",
        ) as private,
    ):
        async with engine_connection(private.url) as connection:
            finding = await doctor.durability(configure(), connection)
            assert finding.level is Level.WRONG and "sync_binlog is not 1" in finding.says
            await connection.write("SET GLOBAL sync_binlog = 1")
            assert (await doctor.durability(configure(), connection)).level is Level.GOOD
        access = DatabaseAccess(private.url, "a role secret of its own")
        findings = await examine(configure(), access)
        assert "binlog_format is STATEMENT" in about(findings, "writing").says
        assert "max_allowed_packet is 1.0 MiB" in about(findings, "packets").says
        schema = about(findings, "schema")
        assert findings[-1] == schema and schema.level is Level.WRONG
        assert schema.advice == "Run `surehook migrate`."
        async with connected(private.url) as admin:
            await admin.native("SET GLOBAL binlog_format = ROW")
            findings = await examine(configure(), access)
            assert "innodb_rollback_on_timeout is on" in about(findings, "writing").says
            await admin.native("SET GLOBAL read_only = 1")
        findings = await examine(configure(), access)
        assert "it is a replica" in about(findings, "writing").says


async def test_a_server_that_is_too_old_ends_the_examination(
    configure: Configure, access: DatabaseAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Connection.__init__

    def older(self: Connection, *how: Any) -> None:
        real(self, *how)
        self.server = Words("5.7.44-log")

    monkeypatch.setattr(Connection, "__init__", older)
    (finding,) = await examine(configure(UNSAFE), access)
    assert finding.level is Level.WRONG and "MySQL 5.7.44 is too old" in finding.says


async def test_an_unreachable_database_is_no_finding(
    configure: Configure, access: DatabaseAccess
) -> None:
    url = urlsplit(access.url)._replace(query="unix_socket=/nowhere.sock").geturl()
    with pytest.raises(DatabaseUnreachable):
        await examine(configure(UNSAFE), DatabaseAccess(url, access.role_secret))


# ── The database ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE router_gaps ENGINE = MyISAM",
        "ALTER TABLE router_gaps CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    ],
)
async def test_a_table_that_was_converted_is_found(
    configure: Configure, access: DatabaseAccess, owner: Any, change: str
) -> None:
    await owner.native(change)
    finding = about(await examine(configure(UNSAFE), access), "tables")
    assert finding.level is Level.WRONG and "router_gaps" in finding.says


async def test_locks_that_do_not_skip_are_found(
    configure: Configure, access: DatabaseAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a server that accepts the words and waits."""
    real = Connection.fetch

    async def waiting(self: Connection, text: str, **values: object) -> Any:
        return await real(self, text.replace(" SKIP LOCKED", ""), **values)

    monkeypatch.setattr(Connection, "fetch", waiting)
    monkeypatch.setattr("surehook.store.doctor.SKIP_SECONDS_MAX", 0.2)
    finding = about(await examine(configure(UNSAFE), access), "locks")
    assert finding.level is Level.WRONG and "does not skip here (it waited)" in finding.says


async def test_rights_that_are_not_those_of_roles_py_are_found(
    configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    for host in ("localhost", "%"):
        await owner.native(f"GRANT SELECT (payload) ON events TO 'router_worker'@'{host}'")
        await owner.native(f"REVOKE INSERT (payload) ON events FROM 'outbox_writer'@'{host}'")
    findings = await examine(configure(UNSAFE), access)
    assert "may also SELECT events.payload" in about(findings, "role router_worker").says
    assert "lacks INSERT events.payload" in about(findings, "role outbox_writer").says
    assert about(findings, "role outbox_writer").advice == "Run `surehook migrate`."
    assert len(wrong(findings)) == 2


async def test_a_role_that_cannot_log_in_is_found(
    configure: Configure, access: DatabaseAccess
) -> None:
    config: Config = configure(UNSAFE)
    findings = await examine(config, DatabaseAccess(access.url, "another role secret"))
    assert {one.subject for one in wrong(findings)} == {f"role {role.name}" for role in ROLES}
    assert "does not let us in" in wrong(findings)[0].says


async def test_after_migrating_a_new_server_it_is_healthy(
    configure: Configure, server_kind: str
) -> None:
    with private_directory() as directory, OWN_SERVERS[server_kind](directory / "d") as private:
        secret = "a role secret of its own"
        await migrate(private.url, role_secret=secret)
        assert wrong(await examine(configure(UNSAFE), DatabaseAccess(private.url, secret))) == []
