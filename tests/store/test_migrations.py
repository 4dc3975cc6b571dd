"""Migrations: from empty, step by step, all at once, interrupted, refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import asyncpg
import pytest

from support.servers import Server, connected, private_server
from support.waiting import PATIENCE
from surehook import __version__
from surehook.errors import ConfigError, Declined
from surehook.model.roles import ROLES
from surehook.store.migrations import Migration, migrations, version_tuple
from surehook.store.postgres import migrate as module
from surehook.store.postgres.migrate import as_sql, migrate, read_state

pytestmark = pytest.mark.only_on("postgres", reason="MySQL's are in mysql/test_mysql_migrations.py")
OURS = migrations("postgres")
LAST = OURS[-1].version


@pytest.fixture
def buckets() -> int:
    """What a migration makes unless it is told otherwise; compared with a database of the kind."""
    return 1


def schema_of(server: Server, url: str) -> str:
    """Everything that pg_dump knows of a schema, grants included."""
    done = subprocess.run(
        [f"{server.binaries}/pg_dump", "--schema-only", "--no-owner", "-d", url],
        capture_output=True,
        text=True,
        check=True,
    )
    # Newer ones wrap their output in a random key.
    lines = [line for line in done.stdout.splitlines() if not line.startswith("\\")]
    return "\n".join(lines)


async def ledger_of(owner: Any) -> list[tuple[object, ...]]:
    rows = await owner.fetch(
        "SELECT version::text, name, checksum FROM schema_migrations "
        "UNION ALL SELECT name, value, '' FROM schema_settings "
        "WHERE name <> 'installation' ORDER BY 1, 2"
    )
    return [tuple(row) for row in rows]


# ── The same schema, whichever way ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
async def test_from_empty_and_step_by_step_give_the_same_schema(
    postgres: Server, database_url: str, empty_url: str, buckets: int
) -> None:
    async with connected(empty_url) as owner:
        for version in range(LAST + 1):
            await migrate(owner, buckets=buckets, role_secret=postgres.role_secret, until=version)
            assert set((await read_state(owner)).applied) == set(range(1, version + 1))
        stepwise = await ledger_of(owner)
    async with connected(database_url) as owner:
        assert await ledger_of(owner) == stepwise
    schema = schema_of(postgres, empty_url)
    assert schema == schema_of(postgres, database_url)
    partitions = schema.count("ALTER TABLE ONLY public.events ATTACH PARTITION")
    assert partitions == (4 if buckets == 4 else 0)
    assert "GRANT SELECT(id) ON TABLE public.events TO router_worker" in schema


@pytest.mark.parametrize("buckets", [1, 4])
async def test_the_printed_sql_run_by_psql_gives_the_same_schema(
    postgres: Server, database_url: str, empty_url: str, buckets: int
) -> None:
    async with connected(empty_url) as nobody:
        printed = as_sql(await read_state(nobody), buckets, with_roles=True)
    done = subprocess.run(
        [f"{postgres.binaries}/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", empty_url],
        input=printed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert schema_of(postgres, empty_url) == schema_of(postgres, database_url)
    async with connected(empty_url) as printed_owner, connected(database_url) as owner:
        assert await ledger_of(printed_owner) == await ledger_of(owner)
        # And migrate finds nothing left to do.
        done_by_migrate: list[str] = []
        await migrate(
            printed_owner, role_secret=postgres.role_secret, report=done_by_migrate.append
        )
        assert done_by_migrate == []


async def test_the_printed_sql_of_a_half_migrated_database_is_the_rest(
    postgres: Server, database_url: str, empty_url: str
) -> None:
    async with connected(empty_url) as owner:
        await migrate(owner, buckets=1, until=1)
        printed = as_sql(await read_state(owner), 1, with_roles=True)
        assert "CREATE TABLE events" not in printed
        await owner.execute(printed)
    assert schema_of(postgres, empty_url) == schema_of(postgres, database_url)


async def test_without_roles_there_are_no_grants_and_they_can_come_later(
    postgres: Server, database_url: str, empty_url: str
) -> None:
    async with connected(empty_url) as owner:
        await migrate(owner)
        assert "GRANT" not in schema_of(postgres, empty_url)
        await migrate(owner, role_secret=postgres.role_secret)
    assert schema_of(postgres, empty_url) == schema_of(postgres, database_url)


async def test_grants_for_logins_that_an_administrator_made_need_no_secret(
    postgres: Server, database_url: str, empty_url: str
) -> None:
    async with connected(empty_url) as owner:
        await migrate(owner, grants=True)
    assert schema_of(postgres, empty_url) == schema_of(postgres, database_url)


# ── Repeated, at once, interrupted ────────────────────────────────────────────────────────────


async def test_a_second_run_changes_nothing_and_takes_only_the_lock_of_a_reader_on_a_hot_table(
    postgres: Server, database_url: str, owner: Any
) -> None:
    """EXCLUSIVE lets plain SELECTs through and nothing else."""
    before = schema_of(postgres, database_url)
    done: list[str] = []
    async with connected(database_url) as busy, busy.transaction():
        hot = "events, webhook_delivery_sagas, webhook_delivery_jobs"
        await busy.execute(f"LOCK TABLE {hot} IN EXCLUSIVE MODE")
        await asyncio.wait_for(
            migrate(owner, role_secret=postgres.role_secret, report=done.append), 10
        )
    assert done == [] and schema_of(postgres, database_url) == before


@pytest.mark.parametrize("name", ["enums", "guard", "grants"])
async def test_generated_sql_is_applied_again_only_when_it_changed(
    postgres: Server, database_url: str, owner: Any, name: str
) -> None:
    setting = f"generated {name}"
    await owner.execute("UPDATE schema_settings SET value = 'old' WHERE name = $1", setting)
    before = schema_of(postgres, database_url)
    done: list[str] = []
    await migrate(owner, role_secret=postgres.role_secret, report=done.append)
    assert done == [f"applied {name}"] and schema_of(postgres, database_url) == before


async def test_many_connections_migrate_at_once_and_each_step_is_done_once(
    postgres: Server, database_url: str, empty_url: str
) -> None:
    done: list[str] = []

    async def one() -> None:
        async with connected(empty_url) as owner:
            await migrate(owner, role_secret=postgres.role_secret, report=done.append)

    await asyncio.gather(*(one() for _ in range(6)))
    steps = [line for line in done if line.startswith("applied 0")]
    assert sorted(steps) == [f"applied {one.version:04} {one.name}" for one in OURS]
    assert done.count("applied guard") == done.count("applied enums") == 1
    assert schema_of(postgres, empty_url) == schema_of(postgres, database_url)


async def test_several_processes_migrate_at_once(
    postgres: Server, database_url: str, empty_url: str
) -> None:
    environment = {
        "SUREHOOK_DATABASE_URL": empty_url,
        "SUREHOOK_ROLE_SECRET": postgres.role_secret,
        "PATH": "/usr/bin:/bin",
    }
    command = [sys.executable, "-m", "surehook", "--config", "/dev/null", "migrate"]
    processes = [
        await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for _ in range(3)
    ]
    outputs = [await process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert schema_of(postgres, empty_url) == schema_of(postgres, database_url)


@pytest.mark.parametrize("version", [one.version for one in OURS])
async def test_a_crash_in_the_middle_of_a_step_is_repaired_by_the_next_run(
    postgres: Server,
    database_url: str,
    empty_url: str,
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Migration.rendered

    def dying(self: Migration, buckets: int) -> str:
        text = real(self, buckets)
        if self.version == version:
            text += "\n;SELECT pg_terminate_backend(pg_backend_pid());"
        return text

    monkeypatch.setattr(Migration, "rendered", dying)
    doomed = await asyncpg.connect(empty_url)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await migrate(doomed, role_secret=postgres.role_secret)
    monkeypatch.setattr(Migration, "rendered", real)
    async with connected(empty_url) as owner:
        assert set((await read_state(owner)).applied) == set(range(1, version))
        await migrate(owner, role_secret=postgres.role_secret)
    assert schema_of(postgres, empty_url) == schema_of(postgres, database_url)


async def test_ddl_lets_go_of_its_place_in_the_queue_and_tries_again(
    postgres: Server, database_url: str, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for a lock holds up everybody behind: not longer than 2 s, then again."""
    assert module.LOCK_WAIT_SECONDS == 2
    monkeypatch.setattr(module, "LOCK_WAIT_SECONDS", 0.2)
    await owner.execute("UPDATE schema_settings SET value = 'old' WHERE name = 'generated guard'")
    done: list[str] = []
    tried_twice = asyncio.Event()

    def report(line: str) -> None:
        done.append(line)
        if len(done) == 2:
            tried_twice.set()

    insert = "INSERT INTO events (event_type, payload) VALUES ('x', '{}')"
    async with connected(database_url) as busy, connected(database_url) as writer:
        transaction = busy.transaction()
        await transaction.start()
        await busy.execute(insert)
        migrating = asyncio.create_task(
            migrate(owner, role_secret=postgres.role_secret, report=report)
        )
        await asyncio.wait_for(tried_twice.wait(), PATIENCE)
        assert set(done) == {"someone holds a lock on the schema; trying again"}
        await asyncio.wait_for(writer.execute(insert), PATIENCE)  # gets its turn in between
        await transaction.commit()
        await asyncio.wait_for(migrating, PATIENCE)
    assert done[-1] == "applied guard"


async def test_databases_of_one_new_server_migrate_at_once(server_kind: str) -> None:
    """Roles belong to the whole server: their creation is what the databases fight over."""
    names = [f"database_{number}" for number in range(4)]
    with private_server(server_kind) as server:
        async with connected(server.url) as admin:
            for name in names:
                await admin.execute(f"CREATE DATABASE {name}")
        await _refuse_without_createrole(server, server.url)

        async def one(name: str) -> None:
            async with connected(server.url_of(name)) as owner:
                await migrate(owner, role_secret=server.role_secret)

        await asyncio.gather(*(one(name) for name in names * 2))
        schemas = {schema_of(server, server.url_of(name)) for name in names}
        assert len(schemas) == 1 and "TO router_worker" in schemas.pop()


async def _refuse_without_createrole(server: Server, url: str) -> None:
    """A login that may not create roles is told so, and can do without."""
    async with connected(url) as owner:
        await owner.execute("CREATE ROLE limited LOGIN PASSWORD 'sesame'")
        await owner.execute("CREATE SCHEMA limited AUTHORIZATION limited")
    async with connected(url, user="limited", password="sesame") as limited:
        with pytest.raises(Declined, match="may not do that") as refused:
            await migrate(limited, role_secret=server.role_secret)
        assert "CREATEROLE" in refused.value.advice and "roles = off" in refused.value.advice
        with pytest.raises(Declined, match="The server has no roles dead_letter_operator, "):
            await migrate(limited, grants=True)
        await migrate(limited)  # roles off


# ── Refused ───────────────────────────────────────────────────────────────────────────────────


async def test_a_database_that_declares_this_program_too_old_is_refused(
    owner: Any, postgres: Server
) -> None:
    await owner.execute("UPDATE schema_migrations SET oldest_program = '9.1.0' WHERE version = 1")
    says = rf"This database needs surehook 9\.1\.0 or newer; this is {__version__}"
    with pytest.raises(Declined, match=says):
        await migrate(owner, role_secret=postgres.role_secret)
    with pytest.raises(Declined, match=says):
        (await read_state(owner)).refuse_if_too_new()


async def test_a_newer_migration_that_still_suits_this_program_is_no_obstacle(
    owner: Any, postgres: Server
) -> None:
    """A rolling upgrade: the new program has migrated, the old one goes on."""
    await owner.execute(
        "INSERT INTO schema_migrations (version, name, checksum, oldest_program) "
        "VALUES (9999, 'future', 'x', '0.1.0')"
    )
    await migrate(owner, role_secret=postgres.role_secret)
    (await read_state(owner)).refuse_if_too_old()


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(owner: Any) -> None:
    await owner.execute("UPDATE schema_migrations SET checksum = 'other' WHERE version = 2")
    with pytest.raises(Declined, match=r"Migration 2 \(partitions\) is not the one that was"):
        await migrate(owner)


async def test_another_role_secret_is_refused_and_locks_nobody_out(
    postgres: Server, database_url: str, empty_url: str
) -> None:
    async with connected(empty_url) as owner:
        with pytest.raises(ConfigError, match="was made with another role secret") as refused:
            await migrate(owner, role_secret="some other role secret")
    assert "some other" not in str(refused.value)
    role = ROLES[0].name
    from surehook.store.logins import derived_password

    password = derived_password(postgres.role_secret, role)
    async with connected(database_url, user=role, password=password) as login:
        assert await login.fetchval("SELECT current_user::text") == role


@pytest.mark.parametrize("buckets", [4])
async def test_the_number_of_buckets_is_fixed_at_the_first_migration(
    owner: Any, buckets: int
) -> None:
    with pytest.raises(ConfigError, match=r"buckets is 2, but this database was made with 4"):
        await migrate(owner, buckets=2)
    await migrate(owner, buckets=4)
    await migrate(owner)  # not set: whatever it is


def test_versions_are_compared_as_numbers() -> None:
    assert version_tuple("0.10.0") > version_tuple("0.9.1")
    assert version_tuple("0.1.0.dev0") == version_tuple("0.1.0")
    assert version_tuple("1.0") > version_tuple("0.99.99")


def test_every_migration_names_the_oldest_program_and_numbers_have_no_gap() -> None:
    found = OURS
    assert [one.version for one in found] == list(range(1, LAST + 1))
    assert all(version_tuple(one.oldest_program) <= version_tuple(__version__) for one in found)
