"""Doctor on a healthy database and on every kind of sick one."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from click.testing import CliRunner

from support import Configure
from support.old_server import old_server
from support.rows import a_subscription
from support.servers import Server, connected, private_directory
from support.waiting import PATIENCE
from surehook.config import load
from surehook.embedded.server import EmbeddedServer
from surehook.errors import DatabaseUnreachable, Declined
from surehook.model.roles import ROLES
from surehook.process.doctor import examine, refuse_if_unsafe
from surehook.store.findings import Finding, Level
from surehook.store.logins import DatabaseAccess
from surehook.store.postgres.database import connect

NOTHING = Path("/dev/null")
UNSAFE = {"database.allow_unsafe": True}  # the harness runs with fsync off


def wrong(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is Level.WRONG]


def about(findings: list[Finding], subject: str) -> Finding:
    return next(finding for finding in findings if finding.subject == subject)


# ── Healthy ───────────────────────────────────────────────────────────────────────────────────


async def test_a_healthy_database_has_only_good_findings(
    configure: Configure, access: DatabaseAccess
) -> None:
    findings = await examine(configure(UNSAFE), access)
    assert wrong(findings) == []
    assert [one.subject for one in findings] == [
        *("version", "engine", "durability", "clock", "schema", "parts", "locks"),
        *(f"role {role.name}" for role in ROLES),
        "encryption key",
    ]
    assert about(findings, "schema").says.startswith("up to date, 1 bucket, installation ")


async def test_a_key_that_does_not_fit_what_is_stored_is_found(
    owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    async def finding(key: str | None) -> Finding:
        findings = await examine(configure(UNSAFE), replace(access, encryption_key=key))
        return about(findings, "encryption key")

    assert (await finding(None)).level is Level.NOTE
    assert (await finding("ab" * 32)).level is Level.GOOD
    await a_subscription(owner)
    missing, other = await finding(None), await finding("ab" * 32)
    assert missing.level is other.level is Level.WRONG
    assert "SUREHOOK_ENCRYPTION_KEY is not set, and a stored secret is" in missing.says
    assert "Add the old key behind the new one" in other.advice
    assert (await finding(access.encryption_key)).level is Level.GOOD


@pytest.fixture(scope="module")
def durable() -> Iterator[EmbeddedServer]:
    """A server as users have it: embedded, durable."""
    with private_directory() as directory, EmbeddedServer(directory / "data") as server:
        yield server


def run_cli(*arguments: str, env: Mapping[str, str]) -> tuple[int, str]:
    """The exit code and what the command printed, or its mistake, in this process."""
    from surehook.cli import surehook

    done = CliRunner().invoke(surehook, ["--config", "/dev/null", *arguments], env=dict(env))
    if isinstance(done.exception, (Declined, DatabaseUnreachable)):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.stdout


def test_the_embedded_server_is_fit_once_it_is_migrated(durable: EmbeddedServer) -> None:
    """`doctor` and `migrate` find the running server by its data directory."""
    env = {"SUREHOOK_DATA_DIR": str(durable.data_dir)}
    code, output = run_cli("doctor", env=env)
    assert code == 1 and "The database lacks migrations" in output
    assert "Run `surehook migrate`." in output
    code, output = run_cli("migrate", env=env)
    assert code == 0 and "applied 0001 tables" in output
    code, output = run_cli("doctor", "--json", env=env)
    assert code == 0 and json.loads(output)["fit"] is True
    # The same server by its URL, as one would name any PostgreSQL.
    env = {
        "SUREHOOK_DATABASE_URL": durable.url,
        "SUREHOOK_ROLE_SECRET": durable.role_secret,
        "SUREHOOK_ENCRYPTION_KEY": durable.encryption_key,
    }
    code, output = run_cli("doctor", "--json", env=env)
    found = json.loads(output)
    assert code == 0 and {one["level"] for one in found["findings"]} == {"good"}


# ── Not reachable ─────────────────────────────────────────────────────────────────────────────


async def test_a_wrong_password_is_one_line_and_exit_3(postgres: Server) -> None:
    url = postgres.url.partition("&passfile")[0].replace("surehook@", "surehook:sesame@")
    config = load(NOTHING, {"SUREHOOK_DATABASE_URL": url, "SUREHOOK_ROLES": "off"})
    with pytest.raises(DatabaseUnreachable) as refused:
        await examine(config, DatabaseAccess(url, None))
    assert refused.value.exit_code == 3
    assert refused.value.message.startswith("The database does not let us in (password")
    assert "Check the user and the password in the URL." in refused.value.advice
    assert "sesame" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_server_that_is_down_is_one_line_and_exit_3() -> None:
    with socket.socket() as unused:  # bound and not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        url = f"postgresql://somebody:sesame@127.0.0.1:{port}/anything"
        env = {"SUREHOOK_DATABASE_URL": url, "SUREHOOK_ROLES": "off"}
        code, output = run_cli("doctor", env=env)
    assert code == 3
    assert "The database does not answer" in output and "sesame" not in output
    assert "Is the server running, and the URL right?" in output


async def test_a_server_that_accepts_and_says_nothing_is_given_up_in_time() -> None:
    silence = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silence.wait()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        url = f"postgresql://x@127.0.0.1:{server.sockets[0].getsockname()[1]}/x?sslmode=disable"
        environment = {"SUREHOOK_DATABASE_URL": url, "SUREHOOK_ROLES": "off"}
        config = load(NOTHING, environment, {"database.connect_timeout": 0.2})
        with pytest.raises(DatabaseUnreachable, match="no answer in time"):
            await asyncio.wait_for(examine(config, DatabaseAccess(url, None)), PATIENCE)
        silence.set()


async def test_a_database_that_does_not_exist_is_named(postgres: Server) -> None:
    url = postgres.url_of("missing")
    config = load(NOTHING, {"SUREHOOK_DATABASE_URL": url, "SUREHOOK_ROLES": "off"})
    with pytest.raises(DatabaseUnreachable, match='database "missing" does not exist'):
        await examine(config, DatabaseAccess(url, None))


# ── Not fit ───────────────────────────────────────────────────────────────────────────────────


async def test_postgresql_14_is_refused_without_asking_it_anything() -> None:
    async with old_server() as (url, asked):
        config = load(NOTHING, {"SUREHOOK_DATABASE_URL": url, "SUREHOOK_ROLES": "off"})
        findings = await examine(config, DatabaseAccess(url, None))
    assert [(one.subject, one.level) for one in findings] == [("version", Level.WRONG)]
    assert findings[0].says == "PostgreSQL 14 is too old; surehook needs 15 or newer."
    assert "use the embedded one" in findings[0].advice
    assert asked in ([], [b"X"])  # hung up, nothing else


async def test_fsync_off_is_refused_unless_permitted(
    configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    finding = about(await examine(configure(), access), "durability")
    assert finding.level is Level.WRONG
    assert finding.says == "The server may lose acknowledged events: fsync off."
    assert "database.allow_unsafe" in finding.advice
    with pytest.raises(Declined, match="may lose acknowledged events"):
        await refuse_if_unsafe(configure(), "postgresql:", owner)
    permitted = about(await examine(configure(UNSAFE), access), "durability")
    assert permitted.level is Level.NOTE
    await refuse_if_unsafe(configure(UNSAFE), "postgresql:", owner)


async def test_a_role_that_commits_without_waiting_is_found(
    configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(f"ALTER ROLE job_worker IN DATABASE {name} SET synchronous_commit = off")
    findings = await examine(configure(), access)
    finding = about(findings, "role job_worker")
    assert finding.level is Level.WRONG and "synchronous_commit off" in finding.says


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "REVOKE SELECT (id) ON events FROM router_worker",
            "router_worker lacks SELECT events.id.",
        ),
        (
            "REVOKE UPDATE (status) ON webhook_delivery_sagas FROM saga_orchestrator",
            "saga_orchestrator lacks UPDATE webhook_delivery_sagas.status.",
        ),
        ("GRANT DELETE ON events TO router_worker", "router_worker may also DELETE events."),
        (
            "GRANT SELECT (payload) ON events TO PUBLIC",
            "router_worker may also SELECT events.payload.",
        ),
    ],
)
async def test_a_missing_or_extra_grant_is_found_and_migrate_repairs_it(
    configure: Configure, access: DatabaseAccess, owner: Any, change: str, says: str
) -> None:
    from surehook.store.postgres.migrate import migrate

    await owner.execute(change)
    findings = wrong(await examine(configure(UNSAFE), access))
    assert says in [finding.says for finding in findings]
    assert {finding.advice for finding in findings} == {"Run `surehook migrate`."}
    done: list[str] = []
    await migrate(owner, role_secret=access.role_secret, report=done.append)
    assert done == ["applied grants"]
    assert wrong(await examine(configure(UNSAFE), access)) == []


async def test_another_role_secret_is_found_for_every_role(
    configure: Configure, access: DatabaseAccess
) -> None:
    findings = await examine(
        configure(UNSAFE), DatabaseAccess(access.url, "some other role secret")
    )
    refused = wrong(findings)
    assert {one.subject for one in refused} == {f"role {role.name}" for role in ROLES}
    assert all("SUREHOOK_ROLE_SECRET" in one.advice for one in refused)
    assert not any("some other role secret" in f"{one}" for one in refused)


async def test_a_session_setting_that_the_database_changed_is_found(
    configure: Configure, access: DatabaseAccess, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler that drops start-up parameters: here the test drops one of them."""
    real = asyncpg.create_pool

    def dropping(*args: Any, server_settings: dict[str, str], **kwargs: Any) -> Any:
        kept = {name: value for name, value in server_settings.items() if name != "jit"}
        return real(*args, server_settings={**kept, "jit": "on"}, **kwargs)

    monkeypatch.setattr(asyncpg, "create_pool", dropping)
    findings = wrong(await examine(configure(UNSAFE), access))
    assert {finding.says for finding in findings} == {
        "The database changed these session settings: jit."
    }
    assert len(findings) == len(ROLES)


async def test_roles_off_says_what_is_lost(configure: Configure, access: DatabaseAccess) -> None:
    findings = await examine(configure({**UNSAFE, "database.roles": False}), access)
    assert wrong(findings) == []
    assert about(findings, "roles").level is Level.NOTE
    assert "no longer stops a component that oversteps" in about(findings, "roles").advice
    assert not [one for one in findings if one.subject.startswith("role ")]


async def test_an_engine_that_does_not_skip_locked_rows_is_found(
    configure: Configure, access: DatabaseAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an engine would that takes the words for a plain FOR UPDATE: it waits."""
    monkeypatch.setattr("surehook.store.doctor.SKIP_SECONDS_MAX", 0.2)

    async def deaf(*args: Any) -> Any:
        return _Deaf(await connect(*args))

    monkeypatch.setattr("surehook.store.postgres.doctor.connect", deaf)
    finding = about(await examine(configure(UNSAFE), access), "locks")
    assert finding.level is Level.WRONG and "SKIP LOCKED does not skip here" in finding.says


class _Deaf:
    """A connection that does not hear the words SKIP LOCKED."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetch(self, query: str, *args: object) -> Any:
        return await self._connection.fetch(query.replace("SKIP LOCKED", ""), *args)


async def test_a_clock_that_is_off_is_a_note(
    configure: Configure, access: DatabaseAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehook.store.doctor.CLOCK_SECONDS_MAX", -1.0)
    finding = about(await examine(configure(UNSAFE), access), "clock")
    assert finding.level is Level.NOTE and "Only the database's counts" in finding.advice


async def test_doctor_leaves_nothing_behind(configure: Configure, access: DatabaseAccess) -> None:
    async with connected(access.url) as owner:
        before = await owner.fetch("SELECT * FROM schema_settings")
        await examine(configure(UNSAFE), access)
        assert await owner.fetch("SELECT * FROM schema_settings") == before
        locks = "SELECT count(*) FROM pg_locks WHERE mode = 'RowShareLock'"
        assert await owner.fetchval(locks) == 0
