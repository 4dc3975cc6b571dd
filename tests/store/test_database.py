"""A login's connections: settings, retries, coming back, and every way of not getting in."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from asyncmy.errors import OperationalError

from support import Configure, OpenStore, dialects
from support.servers import Server
from support.waiting import PATIENCE
from surehook.errors import Bug, ConfigError, DatabaseUnreachable, Declined
from surehook.model.roles import ROLES
from surehook.store import open_database
from surehook.store.database import Database, Session
from surehook.store.logins import DatabaseAccess, Login, login
from surehook.store.mysql import database as mysql_database
from surehook.store.mysql.connection import session_settings as session_settings_of_mysql
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.postgres.database import (
    HOT_SETTINGS,
    OBSERVER_SETTINGS,
    RETRIES_MAX,
    PostgresDatabase,
    PostgresSession,
    session_settings,
)

LOGINS = [role.login for role in ROLES]
# What a driver raises for work that another transaction undid, and how often it is done then.
UNDONE: dict[str, list[Exception]] = {
    "postgres": [asyncpg.SerializationError("undone"), asyncpg.DeadlockDetectedError("undone")],
    "mysql": [OperationalError(1213, "undone"), OperationalError(1020, "undone")],
}
TRIES_MAX = {"postgres": RETRIES_MAX + 1, "mysql": mysql_database.RETRIES_MAX + 1}
postgres_only = pytest.mark.only_on("postgres", reason="planner settings as start-up parameters")


async def eventually_answers(database: Database) -> None:
    """Each connection of the pool may fail once; then it must be a new one."""
    for _ in range(4):
        try:
            await database.one("next_expiry", bucket=0)
            return
        except DatabaseUnreachable:
            continue
    raise AssertionError("it did not come back")


# ── Sessions ──────────────────────────────────────────────────────────────────────────────────


@postgres_only
@pytest.mark.parametrize("login_name", LOGINS)
async def test_every_session_has_the_user_and_settings_of_its_component(
    login_name: str, configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    """The database's own are another time zone and another isolation."""
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Taipei'")
    await owner.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    config = configure()
    database = PostgresDatabase(config, login(config, access, login_name))
    await database.open()
    try:

        async def look(session: PostgresSession) -> tuple[str, dict[str, str]]:
            connection = session.connection
            user = await connection.fetchval("SELECT session_user::text")
            names = list(session_settings(config, login_name))
            rows = await connection.fetch(
                "SELECT name, current_setting(name) FROM unnest($1::text[]) AS name", names
            )
            return user, dict(map(tuple, rows))

        user, settings = await database.run(look)
    finally:
        await database.close()
    assert user == next(role.name for role in ROLES if role.login == login_name)
    wanted = OBSERVER_SETTINGS if login_name == "observer" else HOT_SETTINGS
    assert wanted.items() <= settings.items()
    assert settings["timezone"] == "UTC"
    assert settings["default_transaction_isolation"] == "read committed"
    assert settings["application_name"] == f"surehook {login_name}"
    assert settings["statement_timeout"] == "30s"
    assert settings["lock_timeout"] == ("1s" if login_name == "ingest" else "0")


@pytest.mark.only_on("mysql", reason="its settings have other names")
@pytest.mark.parametrize("login_name", LOGINS)
async def test_every_session_on_mysql_has_the_user_and_settings_of_its_component(
    login_name: str, configure: Configure, access: DatabaseAccess
) -> None:
    """The test server's own are another time zone, another isolation, a collation that pads."""
    config = configure()
    database = MysqlDatabase(config, login(config, access, login_name))
    await database.open()

    async def look(session: MysqlSession) -> dict[str, object]:
        server = session.connection.server
        own = mysql_database.login_settings(server, config, login_name)
        names = [*session_settings_of_mysql(server, own), "autocommit"]
        row = (await session.connection.fetch("SELECT " + ", ".join(f"@@{n}" for n in names)))[0]
        user = await session.connection.value("SELECT USER()")
        return {**dict(zip(names, row, strict=True)), "user": user.partition("@")[0]}

    try:
        found = await database.run(look)
    finally:
        await database.close()
    assert found["user"] == next(role.name for role in ROLES if role.login == login_name)
    assert found["time_zone"] == "+00:00" and found["autocommit"] == 1
    isolation = found.get("tx_isolation", found.get("transaction_isolation"))
    assert isolation == "READ-COMMITTED"
    assert "STRICT_TRANS_TABLES" in str(found["sql_mode"])
    assert str(found["collation_connection"]) in ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
    assert found["innodb_lock_wait_timeout"] == (1 if login_name == "ingest" else 5)
    limit = found.get("max_statement_time", found.get("max_execution_time"))
    assert float(str(limit)) in (30, 30_000)


@postgres_only
async def test_a_setting_of_the_role_does_not_win_over_ours(
    owner: Any, open_store: OpenStore
) -> None:
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(f"ALTER ROLE lease_cleaner IN DATABASE {name} SET enable_seqscan = on")
    await open_store("cleaner")  # asserts it


@postgres_only
async def test_a_pooler_that_drops_our_settings_is_refused(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = asyncpg.create_pool

    def dropping(*args: Any, server_settings: dict[str, str], **kwargs: Any) -> Any:
        return real(*args, server_settings={"application_name": "x"}, **kwargs)

    monkeypatch.setattr(asyncpg, "create_pool", dropping)
    with pytest.raises(ConfigError, match=r"changed these session settings: .*enable_seqscan"):
        await open_store("cleaner")


@postgres_only
async def test_settings_survive_the_return_of_a_connection_to_the_pool(
    open_store: OpenStore,
) -> None:
    cleaner = await open_store("cleaner", {"database.connections": 2})

    async def planner(session: PostgresSession) -> str:
        setting: str = await session.connection.fetchval("SHOW enable_seqscan")
        return setting

    assert [await cleaner.run(planner) for _ in range(5)] == ["off"] * 5


# ── Statements ────────────────────────────────────────────────────────────────────────────────


async def test_a_statement_of_another_component_is_not_known(open_store: OpenStore) -> None:
    cleaner = await open_store("cleaner")
    with pytest.raises(Bug, match="There is no statement lease_jobs here"):
        await cleaner.all("lease_jobs", bucket=0)


@pytest.mark.parametrize("values", [{}, {"buckets": 0}, {"bucket": 0, "more": 1}])
async def test_a_statement_called_with_other_parameters_is_a_bug(
    open_store: OpenStore, values: dict[str, object]
) -> None:
    cleaner = await open_store("cleaner")
    with pytest.raises(Bug, match="next_expiry takes"):
        await cleaner.one("next_expiry", **values)


async def test_work_that_another_transaction_undid_is_done_again(
    open_store: OpenStore, server: Server
) -> None:
    cleaner = await open_store("cleaner")
    for error in UNDONE[server.engine]:
        tries = 0

        async def work(_: Session, error: Exception = error) -> str:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise error
            return "done"

        assert await cleaner.in_transaction(work) == "done" and tries == 3


async def test_work_that_is_undone_every_time_is_given_up(
    open_store: OpenStore, server: Server
) -> None:
    cleaner = await open_store("cleaner")
    error = UNDONE[server.engine][0]
    tries = 0

    async def work(_: Session) -> None:
        nonlocal tries
        tries += 1
        raise error

    with pytest.raises(type(error)):
        await cleaner.in_transaction(work)
    assert tries == TRIES_MAX[server.engine]


async def test_two_transactions_that_wait_for_each_other_both_succeed(
    owner: Any, open_store: OpenStore
) -> None:
    await owner.execute("INSERT INTO orchestrator_subscriptions (subscription_id) VALUES (1), (2)")
    orchestrator = await open_store("orchestrator")
    first_locks = asyncio.Barrier(2)
    tries = 0

    async def update(session: Any, subscription_id: int) -> None:
        await session.connection.fetch(
            "UPDATE orchestrator_subscriptions SET rate_tokens = rate_tokens + 1 "
            f"WHERE subscription_id = {subscription_id}"
        )

    async def cross(order: tuple[int, int]) -> None:
        met = False

        async def work(session: Any) -> None:
            nonlocal met, tries
            tries += 1
            await update(session, order[0])
            if not met:
                met = True
                await first_locks.wait()  # both hold one row and want the other
            await update(session, order[1])

        await orchestrator.in_transaction(work)

    await asyncio.gather(cross((1, 2)), cross((2, 1)))
    assert tries == 3
    rows = await owner.fetch("SELECT rate_tokens FROM orchestrator_subscriptions")
    assert [row[0] for row in rows] == [3, 3]


async def test_a_statement_that_runs_too_long_is_ended(
    open_store: OpenStore, on_mysql: bool
) -> None:
    cleaner = await open_store("cleaner", {"database.statement_timeout": 1})
    # MySQL wakes a SLEEP() that is too long and goes on, so there it has to count for ages.
    many = ", ".join(f"information_schema.collations {name}" for name in "abcde")
    statement = f"SELECT COUNT(*) FROM {many}" if on_mysql else "SELECT pg_sleep(60)"

    async def sleep(session: Any) -> None:
        await session.connection.fetch(statement)

    with pytest.raises(DatabaseUnreachable, match=r"timeout|max_statement_time|execution time"):
        await asyncio.wait_for(cleaner.run(sleep), PATIENCE)
    await eventually_answers(cleaner)


# ── Coming back ───────────────────────────────────────────────────────────────────────────────


async def test_a_component_comes_back_after_its_sessions_were_ended(
    owner: Any, open_store: OpenStore
) -> None:
    cleaner = await open_store("cleaner")
    assert await dialects.end_sessions(owner, "cleaner") == 1
    await eventually_answers(cleaner)


async def test_a_session_that_ends_in_the_middle_of_work_is_unreachable_not_a_surprise(
    owner: Any, open_store: OpenStore
) -> None:
    cleaner = await open_store("cleaner")

    async def work(session: Session) -> None:
        await dialects.end_sessions(owner, "cleaner")
        await session.one("next_expiry", bucket=0)

    with pytest.raises(DatabaseUnreachable) as lost:
        await cleaner.in_transaction(work)
    assert lost.value.exit_code == 3 and "\n" not in str(lost.value)
    await eventually_answers(cleaner)


@pytest.mark.only_on("postgres", reason="nobody listens through MySQL")
async def test_a_listener_hears_and_learns_when_its_connection_is_lost(
    owner: Any, open_store: OpenStore
) -> None:
    cleaner = await open_store("cleaner")
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with cleaner.listening("surehook_test", heard.put_nowait) as lost:
        await cleaner.notify("surehook_test", "there is work")
        assert await asyncio.wait_for(heard.get(), PATIENCE) == "there is work"
        assert not lost.done()
        await owner.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        await asyncio.wait_for(lost, PATIENCE)


# ── Not getting in ────────────────────────────────────────────────────────────────────────────


async def test_another_role_secret_is_refused_with_advice(
    configure: Configure, access: DatabaseAccess
) -> None:
    with pytest.raises(DatabaseUnreachable) as refused:
        await open_database(configure(), DatabaseAccess(access.url, "some other secret"), "router")
    assert "does not let us in" in refused.value.message
    assert "router_worker" in refused.value.message
    assert "SUREHOOK_ROLE_SECRET" in refused.value.advice


async def test_a_component_may_have_a_login_of_its_own(
    configure: Configure, access: DatabaseAccess
) -> None:
    """The owner's URL stands for it here; with a URL of its own no password is derived."""
    config = configure(environment={"SUREHOOK_DATABASE_URL_ROUTER": access.url})
    assert login(config, access, "router") == Login("router", access.url)
    database = await open_database(config, DatabaseAccess(access.url, "whatever it is"), "router")
    await database.close()


async def test_with_roles_off_every_component_uses_the_main_login(
    configure: Configure, access: DatabaseAccess
) -> None:
    config = configure({"database.roles": False})
    assert login(config, access, "worker") == Login("worker", access.url)


async def test_a_database_without_our_schema_is_refused_and_nothing_stays_open(
    configure: Configure, empty_url: str
) -> None:
    """As the main login: on MySQL a role does not even get into a database that grants nothing."""
    config = configure({"database.roles": False})
    with pytest.raises(Declined, match="lacks migrations: 1 tables"):
        await open_database(config, DatabaseAccess(empty_url, None), "router")


async def test_a_role_that_meets_a_database_without_our_schema_is_told_to_migrate(
    configure: Configure, empty_url: str, access: DatabaseAccess
) -> None:
    with pytest.raises((Declined, DatabaseUnreachable)) as refused:
        await open_database(configure(), DatabaseAccess(empty_url, access.role_secret), "router")
    assert "surehook migrate" in refused.value.advice


async def test_a_database_that_needs_a_newer_program_is_refused(
    owner: Any, open_store: OpenStore
) -> None:
    await owner.execute("UPDATE schema_migrations SET oldest_program = '99.0' WHERE version = 1")
    with pytest.raises(Declined, match=r"needs surehook 99\.0 or newer"):
        await open_store("router")


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_component_learns_the_number_of_buckets(
    open_store: OpenStore, buckets: int
) -> None:
    assert (await open_store("router")).buckets == buckets


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
async def test_a_url_that_cannot_be_read_shows_no_piece_of_the_password(
    configure: Configure, scheme: str
) -> None:
    url = f"{scheme}://user:ses/ame@127.0.0.1/d"
    config = configure({"database.roles": False})
    with pytest.raises(ConfigError, match="percent-encoded") as refused:
        await open_database(config, DatabaseAccess(url, None), "router")
    assert "ses" not in str(refused.value).replace("used", "")


def test_a_login_and_a_place_show_no_password() -> None:
    shown = repr(Login("router", "postgresql://u:sesame@h/d", "router_worker", "sesame"))
    shown += repr(DatabaseAccess("postgresql://u:sesame@h/d", "sesame", "sesame"))
    assert "sesame" not in shown and "router_worker" in shown
