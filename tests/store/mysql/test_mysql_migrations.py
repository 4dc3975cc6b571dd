"""Migrations on MySQL and MariaDB, where every DDL statement commits by itself."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from support.connections import engine_connection, migrate
from support.mysql_server import OWN_SERVERS
from support.servers import Server, connected, fresh_database, private_directory
from support.waiting import PATIENCE, until_row
from surehook.errors import ConfigError, DatabaseUnreachable, Declined
from surehook.model.roles import ROLES, TABLES_ON
from surehook.store.logins import Login, derived_password
from surehook.store.migrations import migrations
from surehook.store.mysql import migrate as module
from surehook.store.mysql import rights
from surehook.store.mysql.connection import Connection, connect
from surehook.store.mysql.migrate import as_sql, read_state

pytestmark = pytest.mark.only_on("mysql", reason="DDL that commits by itself, accounts with hosts")
LAST = migrations("mysql")[-1].version
COUNTER = re.compile(r" AUTO_INCREMENT=\d+")


@pytest.fixture
def buckets() -> int:
    """What a migration makes unless it is told otherwise; compared with a database of the kind."""
    return 1


async def schema_of(url: str) -> dict[str, object]:
    """Everything that a migration makes, as the catalogue shows it."""
    async with engine_connection(url) as owner:
        tables = [row[0] for row in await owner.fetch("SHOW TABLES")]
        seen: dict[str, object] = {}
        for table in tables:
            definition = (await owner.fetch(f"SHOW CREATE TABLE {table}"))[0][1]
            seen[table] = COUNTER.sub("", definition)
        seen["triggers"] = await owner.fetch(
            "SELECT trigger_name, event_manipulation, event_object_table, action_statement "
            "FROM information_schema.triggers WHERE trigger_schema = DATABASE() ORDER BY 1"
        )
        seen["functions"] = await owner.fetch(
            "SELECT routine_name, routine_definition, security_type "
            "FROM information_schema.routines WHERE routine_schema = DATABASE()"
        )
        found = await rights.actual(owner)
        seen["rights"] = {
            account: found.get(account) for role in ROLES for account in rights.accounts(role)
        }
        seen["ledger"] = await owner.fetch(
            "SELECT CONCAT(version), name, checksum FROM schema_migrations "
            "UNION ALL SELECT name, value, '' FROM schema_settings "
            "WHERE name NOT IN ('accounts', 'installation') "
            "ORDER BY 1, 2"
        )
        return seen


def by_client(server: Server, url: str, script: str) -> subprocess.CompletedProcess[str]:
    """Feed a script to the engine's own client."""
    parts = urlsplit(url)
    socket = parse_qs(parts.query).get("unix_socket", [""])[0]
    where = ["-S", socket] if socket else ["-h", parts.hostname or "", f"-P{parts.port or 3306}"]
    login = [f"-u{unquote(parts.username or '')}"]
    return subprocess.run(
        ["mariadb", "--no-defaults", *where, *login, parts.path[1:]],
        env={**os.environ, "MYSQL_PWD": unquote(parts.password or "")},
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )


# ── The same schema, whichever way ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
async def test_step_by_step_gives_the_same_schema_as_all_at_once(
    server: Server, database_url: str, empty_url: str, buckets: int
) -> None:
    async with engine_connection(empty_url) as owner:
        for version in range(LAST + 1):
            await module.migrate(
                owner, buckets=buckets, role_secret=server.role_secret, until=version
            )
            assert set((await read_state(owner)).applied) == set(range(1, version + 1))
    schema = await schema_of(empty_url)
    assert schema == await schema_of(database_url)
    partitions = re.findall(r"PARTITION `?b\d`? VALUES IN", str(schema["events"]))
    assert len(partitions) == (4 if buckets == 4 else 0)


@pytest.mark.parametrize("buckets", [1, 4])
async def test_the_printed_sql_run_by_the_client_gives_the_same_schema(
    server: Server, database_url: str, empty_url: str, buckets: int
) -> None:
    async with engine_connection(empty_url) as owner:
        printed = as_sql(await read_state(owner), buckets, with_roles=True)
    done = by_client(server, empty_url, printed)
    assert done.returncode == 0, done.stderr
    assert await schema_of(empty_url) == await schema_of(database_url)
    reported: list[str] = []
    await migrate(empty_url, role_secret=server.role_secret, report=reported.append)
    assert reported == []


async def test_the_printed_sql_never_opens_an_account_without_a_password(
    server: Server, empty_url: str
) -> None:
    async with engine_connection(empty_url) as owner:
        printed = as_sql(await read_state(owner), 1, with_roles=True)
    created = [line for line in printed.splitlines() if line.startswith("CREATE USER")]
    assert len(created) == 2 * len(ROLES)
    assert all(line.endswith("ACCOUNT LOCK;") for line in created)


async def test_the_tables_and_columns_are_those_of_roles_py(owner: Any) -> None:
    rows = await owner.native(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = DATABASE()"
    )
    assert {tuple(row) for row in rows} == {
        (table, column) for table, columns in TABLES_ON["mysql"].items() for column in columns
    }


async def test_every_text_is_compared_by_its_bytes_and_no_padding(owner: Any) -> None:
    rows = await owner.native(
        "SELECT DISTINCT collation_name FROM information_schema.columns "
        "WHERE table_schema = DATABASE() AND collation_name IS NOT NULL"
    )
    assert [row[0] for row in rows] in (["utf8mb4_nopad_bin"], ["utf8mb4_0900_bin"])
    for one, other in (("a", "A"), ("a", "á"), ("a", "a ")):
        query = "SELECT COUNT(DISTINCT event_type) FROM subscriptions WHERE event_type IN"
        for event_type in (one, other):
            await owner.native(
                "INSERT INTO subscriptions (event_type, callback_url) "
                f"VALUES ('{event_type}', 'https://x.example')"
            )
        assert (await owner.native(f"{query} ('{one}', '{other}')"))[0][0] == 2
        assert (await owner.native(f"{query} ('{one}')"))[0][0] == 1


# ── Repeated, at once, interrupted ────────────────────────────────────────────────────────────


async def test_a_second_run_changes_nothing_and_takes_no_lock_on_a_hot_table(
    server: Server, database_url: str
) -> None:
    before = await schema_of(database_url)
    reported: list[str] = []
    async with connected(database_url) as busy:
        await busy.native("LOCK TABLES events WRITE, webhook_delivery_sagas WRITE")
        await asyncio.wait_for(
            migrate(database_url, role_secret=server.role_secret, report=reported.append), 10
        )
        await busy.native("UNLOCK TABLES")
    assert reported == [] and await schema_of(database_url) == before


@pytest.mark.parametrize("name", ["guard", "grants"])
async def test_generated_sql_is_applied_again_when_it_changed(
    server: Server, database_url: str, owner: Any, name: str
) -> None:
    await owner.native(f"UPDATE schema_settings SET value = 'old' WHERE name = 'generated {name}'")
    before = await schema_of(database_url)
    reported: list[str] = []
    await migrate(database_url, role_secret=server.role_secret, report=reported.append)
    after = await schema_of(database_url)
    before.pop("ledger"), after.pop("ledger")
    assert reported == [f"applied {name}"] and after == before


async def test_many_processes_migrate_at_once_and_each_step_is_done_once(
    server: Server, database_url: str, empty_url: str
) -> None:
    reported: list[str] = []
    await asyncio.gather(
        *(
            migrate(empty_url, role_secret=server.role_secret, report=reported.append)
            for _ in range(6)
        )
    )
    steps = [line for line in reported if line.startswith("applied 0")]
    assert steps == [f"applied {one.version:04} {one.name}" for one in migrations("mysql")]
    assert reported.count("applied guard") == reported.count("applied grants") == 1
    assert await schema_of(empty_url) == await schema_of(database_url)


async def test_taking_turns_is_only_a_courtesy(
    server: Server, database_url: str, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the lock does not reach, several do the same at once and do no harm."""

    @asynccontextmanager
    async def nobody_waits(_: Connection) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(module, "_turn", nobody_waits)
    await asyncio.gather(*(migrate(empty_url, role_secret=server.role_secret) for _ in range(4)))
    assert await schema_of(empty_url) == await schema_of(database_url)


async def test_a_row_that_another_migration_inserts_meanwhile_is_no_failure(
    server: Server, empty_url: str
) -> None:
    last_without = next(one.version for one in migrations("mysql") if one.name == "installation")
    await migrate(empty_url, role_secret=server.role_secret, until=last_without - 1)
    async with engine_connection(empty_url) as another, connected(empty_url) as owner:
        await another.write("START TRANSACTION")
        await another.write(
            "INSERT INTO schema_settings (name, value) VALUES ('installation', '0123456789')"
        )
        work = asyncio.ensure_future(migrate(empty_url, role_secret=server.role_secret))
        await until_row(
            owner,
            f"SELECT count(*) > 0 FROM {owner.processlist} "
            "WHERE info LIKE 'INSERT INTO schema_settings%installation%'",
            wanted=1,
        )
        await another.write("COMMIT")
        await work
        found = "SELECT value FROM schema_settings WHERE name = 'installation'"
        assert await owner.fetchval(found) == "0123456789"


async def test_a_crash_between_any_two_statements_is_repaired_by_the_next_run(
    server: Server, database_url: str, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends after the first statement, after the second one, …; all in one test,
    because each run begins where the last one was stopped."""
    real = Connection.write
    survived = 0

    class Crash(Exception):
        pass

    def dying_after(count: int) -> None:
        left = count

        async def write(self: Connection, text: str, **values: object) -> Any:
            nonlocal left
            if left == 0:
                self.terminate()
                raise Crash
            left -= 1
            return await real(self, text, **values)

        monkeypatch.setattr(Connection, "write", write)

    for count in range(2, 60, 3):
        dying_after(count)
        try:
            await migrate(empty_url, role_secret=server.role_secret)
        except Crash:
            survived += 1
    assert survived >= 15
    monkeypatch.setattr(Connection, "write", real)
    await migrate(empty_url, role_secret=server.role_secret)
    assert await schema_of(empty_url) == await schema_of(database_url)


async def test_ddl_lets_go_of_its_place_in_the_queue_and_tries_again(
    server: Server, database_url: str, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for a lock holds up everybody behind: not longer than 2 s, then again."""
    assert module.LOCK_WAIT_SECONDS == 2
    monkeypatch.setattr(module, "LOCK_WAIT_SECONDS", 1)
    await owner.native("UPDATE schema_settings SET value = 'old' WHERE name = 'generated guard'")
    reported: list[str] = []
    tried = asyncio.Event()

    def report(line: str) -> None:
        reported.append(line)
        tried.set()

    insert = "INSERT INTO events (event_type, payload) VALUES ('x', '{}')"
    async with connected(database_url) as busy, connected(database_url) as writer:
        await busy.native("START TRANSACTION")
        await busy.native(insert)
        migrating = asyncio.create_task(
            migrate(database_url, role_secret=server.role_secret, report=report)
        )
        await asyncio.wait_for(tried.wait(), PATIENCE)
        assert set(reported) == {"someone holds a lock on the schema; trying again"}
        await asyncio.wait_for(writer.native(insert), PATIENCE)  # gets its turn in between
        await busy.native("COMMIT")
        await asyncio.wait_for(migrating, PATIENCE)
    assert reported[-1] == "applied guard"


# ── Accounts and grants ───────────────────────────────────────────────────────────────────────


async def test_what_an_account_may_do_too_much_is_taken_away_and_what_it_lacks_given(
    server: Server, database_url: str, owner: Any
) -> None:
    for change in (
        "GRANT SELECT, DELETE ON events TO 'router_worker'@'%'",
        "GRANT UPDATE (verified) ON subscriptions TO 'subscription_admin'@'localhost'",
        "GRANT DROP ON * TO 'observer'@'%'",
        "REVOKE INSERT (payload) ON events FROM 'outbox_writer'@'localhost'",
    ):
        await owner.native(change)
    async with engine_connection(database_url) as connection:
        wrong = await rights.differences(connection)
        assert sorted(line.split(" ", 1)[1] for line in wrong) == [
            "lacks INSERT events.payload",
            "may also DELETE events, SELECT events",
            "may also DROP *",
            "may also UPDATE subscriptions.verified",
        ]
        await module.migrate(connection, role_secret=server.role_secret)
        assert await rights.differences(connection) == []


async def test_another_role_secret_is_refused_and_locks_nobody_out(
    server: Server, database_url: str, empty_url: str
) -> None:
    with pytest.raises(ConfigError, match="was made with another role secret") as refused:
        await migrate(empty_url, role_secret="some other role secret")
    assert "some other" not in str(refused.value)
    role = ROLES[0].name
    password = derived_password(server.role_secret, role)
    async with connected(database_url, user=role, password=password) as login:
        assert await login.native("SELECT 1")


async def test_no_statement_carries_a_password(
    server: Server, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    real = Connection._run

    async def listening(self: Connection, text: str) -> Any:
        sent.append(text)
        return await real(self, text)

    monkeypatch.setattr(Connection, "_run", listening)
    await migrate(empty_url, role_secret=server.role_secret)
    everything = "\n".join(sent)
    assert "CREATE USER" in everything
    for role in ROLES:
        assert derived_password(server.role_secret, role.name) not in everything


@asynccontextmanager
async def a_limited_owner(url: str, *more: str) -> AsyncIterator[str]:
    """A login that has everything in its database and nothing else; yields its URL."""
    name = urlsplit(url).path[1:]
    user = f"limited_{name[-8:]}"
    async with connected(url) as admin:
        await admin.native(f"CREATE USER {user}@localhost IDENTIFIED BY 'sesame'")
        await admin.native(f"GRANT ALL PRIVILEGES ON {name}.* TO {user}@localhost {' '.join(more)}")
    try:
        parts = urlsplit(url)
        netloc = f"{user}:sesame@{parts.netloc.rpartition('@')[2]}"
        yield parts._replace(netloc=netloc).geturl()
    finally:
        async with connected(url) as admin:
            await admin.native(f"DROP USER {user}@localhost")


async def test_an_owner_that_may_not_create_accounts_is_told_so_and_can_do_without(
    server: Server, empty_url: str
) -> None:
    async with a_limited_owner(empty_url) as url:
        with pytest.raises(Declined, match="may not do that") as refused:
            await migrate(url, role_secret=server.role_secret)
        assert "CREATE USER" in refused.value.advice
        assert "database.roles = off" in refused.value.advice
        await migrate(url)  # roles off
        async with engine_connection(url) as connection:
            assert not (await read_state(connection)).pending


async def test_an_owner_as_the_documentation_makes_one_can_migrate(
    server: Server, database_url: str, empty_url: str
) -> None:
    """docs/operate/mysql.md: everything on its database, and CREATE USER."""
    async with a_limited_owner(empty_url, "WITH GRANT OPTION") as url:
        async with connected(empty_url) as admin:
            user = urlsplit(url).username
            await admin.native(f"GRANT CREATE USER ON *.* TO {user}@localhost")
        await migrate(url, role_secret=server.role_secret)
        assert await schema_of(empty_url) == await schema_of(database_url)


async def test_an_owner_that_cannot_see_others_rights_still_grants_exactly(
    server: Server, database_url: str, empty_url: str
) -> None:
    """GRANT OPTION on its database, no right on the schema `mysql`: accounts made by someone."""
    async with a_limited_owner(empty_url, "WITH GRANT OPTION") as url:
        await migrate(url, grants=True)
        async with connected(empty_url) as admin:
            await admin.native("GRANT DELETE, SELECT ON events TO 'router_worker'@'%'")
            await admin.native(
                "UPDATE schema_settings SET value = 'old' WHERE name = 'generated grants'"
            )
        await migrate(url, grants=True)
    assert await schema_of(empty_url) == await schema_of(database_url)


async def test_without_the_accounts_grants_say_which_are_missing(server_kind: str) -> None:
    with private_directory() as directory, OWN_SERVERS[server_kind](directory / "data") as private:
        with pytest.raises(Declined, match="lacks some of the roles dead_letter_operator, "):
            await migrate(private.url, grants=True)
        async with connected(private.url) as admin:  # and none came to be by granting
            rows = await admin.native("SELECT COUNT(*) FROM mysql.user WHERE user LIKE '%worker%'")
            assert rows[0][0] == 0


async def test_a_binary_log_that_forbids_triggers_is_one_clear_line(server_kind: str) -> None:
    with (
        private_directory() as directory,
        OWN_SERVERS[server_kind](directory / "data", "--log-bin", "--server-id=1") as private,
    ):
        async with a_limited_owner(private.url) as url:
            with pytest.raises(Declined, match="lets only its administrator create") as refused:
                await migrate(url)
            assert "log_bin_trust_function_creators" in refused.value.advice
            async with connected(private.url) as admin:
                await admin.native("SET GLOBAL log_bin_trust_function_creators = 1")
            await migrate(url)


async def test_databases_of_one_new_server_migrate_at_once(server_kind: str) -> None:
    """Accounts belong to the whole server: their creation is what the databases fight over."""
    names = [f"database_{number}" for number in range(4)]
    with private_directory() as directory, OWN_SERVERS[server_kind](directory / "data") as private:
        async with connected(private.url) as admin:
            for name in names:
                await admin.native(f"CREATE DATABASE {name}")
        urls = [urlsplit(private.url)._replace(path=f"/{name}").geturl() for name in names]
        await asyncio.gather(*(migrate(url, role_secret="a role secret") for url in urls * 2))
        schemas = [await schema_of(url) for url in urls]
        assert all(schema == schemas[0] for schema in schemas)
        for url in urls:
            async with engine_connection(url) as connection:
                assert await rights.differences(connection) == []


# ── Refused ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [4])
async def test_the_number_of_buckets_is_fixed_at_the_first_migration(
    database_url: str, buckets: int
) -> None:
    with pytest.raises(ConfigError, match=r"buckets is 2, but this database was made with 4"):
        await migrate(database_url, buckets=2)
    await migrate(database_url, buckets=4)
    await migrate(database_url)  # not set: whatever it is


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(
    database_url: str, owner: Any
) -> None:
    await owner.native("UPDATE schema_migrations SET checksum = 'other' WHERE version = 2")
    with pytest.raises(Declined, match=r"Migration 2 \(rules\) is not the one that was"):
        await migrate(database_url)


async def test_a_database_that_is_not_there_is_said_to_be_missing(server: Server) -> None:
    with pytest.raises(DatabaseUnreachable, match="no such database"):
        await connect(Login("x", server.url_of("nowhere")), 5)


async def test_fresh_databases_share_the_accounts_of_their_server(server: Server) -> None:
    async with fresh_database(server, 1) as one, fresh_database(server, 1) as other:
        for url in (one, other):
            async with engine_connection(url) as connection:
                assert await rights.differences(connection) == []
