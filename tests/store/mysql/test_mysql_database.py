"""Connections to MySQL and MariaDB: settings, limits, what breaks and what is repeated."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import trustme

from support import Configure, OpenStore
from support.connections import engine_connection, migrate
from support.mysql_server import OWN_SERVERS, MariadbServer
from support.servers import Server, connected, private_directory
from support.waiting import until
from surehook.actions.ingest import BATCH_CHARACTERS
from surehook.errors import ConfigError, DatabaseUnreachable
from surehook.model.records import NewEvent
from surehook.store import store_of
from surehook.store.database import Duplicate, LockHeld, ValueRejected
from surehook.store.ingest import IngestStore
from surehook.store.logins import DatabaseAccess, Login, derived_password, login
from surehook.store.mysql import pool
from surehook.store.mysql.connection import connect
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.mysql.values import Rows

pytestmark = pytest.mark.only_on("mysql", reason="its driver and its pool are its own")


@pytest.fixture
async def ingest(open_store: OpenStore) -> AsyncIterator[MysqlDatabase]:
    database = await open_store("ingest")
    assert isinstance(database, MysqlDatabase)
    yield database


async def ask(database: MysqlDatabase, text: str) -> Any:
    """The first value of a statement that is in no file."""
    return await database.run(lambda session: session.connection.value(text))


# ── Sessions ──────────────────────────────────────────────────────────────────────────────────


async def test_a_session_has_our_settings_whatever_the_server_has_by_default(
    ingest: MysqlDatabase, owner: Any
) -> None:
    isolation = "tx_isolation" if owner.is_mariadb else "transaction_isolation"
    limit = "max_statement_time" if owner.is_mariadb else "max_execution_time"
    collation = "utf8mb4_nopad_bin" if owner.is_mariadb else "utf8mb4_0900_bin"
    for name, expected in {
        isolation: "READ-COMMITTED",
        "time_zone": "+00:00",
        "character_set_connection": "utf8mb4",
        "collation_connection": collation,
        "innodb_lock_wait_timeout": 1,
        "wait_timeout": 60,
        limit: 30.0 if owner.is_mariadb else 30_000,
    }.items():
        assert await ask(ingest, f"SELECT @@SESSION.{name}") == expected, name
    assert "STRICT_TRANS_TABLES" in await ask(ingest, "SELECT @@SESSION.sql_mode")


async def test_a_setting_that_does_not_take_is_said_and_no_statement_runs(
    database_url: str,
) -> None:
    """As behind a proxy that swallows SET: here the server rounds what it is told."""
    with pytest.raises(ConfigError, match="changed these session settings: net_retry_count"):
        await connect(Login("x", database_url), 5, lambda _: {"net_retry_count": 0})


async def test_what_a_server_does_to_every_new_session_changes_nothing_for_ours() -> None:
    """init_connect is run after the server has told whether it commits by itself."""
    with (
        private_directory() as directory,
        MariadbServer(
            directory / "data",
            "--init-connect=SET autocommit = 0, sql_select_limit = 1, NAMES latin1",
        ) as private,
    ):
        async with connected(private.url) as admin:
            await admin.native("CREATE DATABASE theirs DEFAULT CHARSET utf8mb4")
            await admin.native("CREATE TABLE theirs.texts (said VARCHAR(10))")
            # It spares administrators.
            await admin.native("CREATE USER plain IDENTIFIED BY 'sesame'")
            await admin.native("GRANT ALL ON theirs.* TO plain")
            url = urlsplit(private.url)._replace(path="/theirs").geturl()
            connection = await connect(Login("x", url, "plain", "sesame"), 5)
            for _ in range(2):
                await connection.write("INSERT INTO texts VALUES (%(said)s)", said="é😀")
            assert len(await connection.fetch("SELECT said FROM texts")) == 2
            await connection.close()
            stored = await admin.native("SELECT HEX(said) FROM theirs.texts")
            assert [row[0] for row in stored] == ["é😀".encode().hex().upper()] * 2


async def test_values_come_back_as_they_went_in(owner: Any, open_store: OpenStore) -> None:
    texts = [
        '{"a":  1, "a": 2}',
        r'{"escapes": "\u0000 \ud83d\ude00 \\ \" \/"}',
        json.dumps({"emoji": "😀 é ' ` % %s %(name)s :name \\ \n"}, ensure_ascii=False),
        json.dumps("x" * 2**20),
        "[" * 30 + "]" * 30,
        "1e999",
    ]
    ingest = await open_store("ingest")
    rows = Rows(("t", text, "", None, 0) for text in texts)
    assert isinstance(ingest, MysqlDatabase)
    written = await ingest.write("insert_events", given=rows)
    assert len(written.ids()) == written.rows == len(texts)
    found = await owner.native("SELECT id, payload FROM events ORDER BY id")
    assert [tuple(row) for row in found] == list(zip(written.ids(), texts, strict=True))


async def test_a_batch_of_the_largest_size_is_stored_whatever_its_characters(
    owner: Any, ingest: MysqlDatabase
) -> None:
    """Each of them may be four bytes, or one and a backslash: more than a packet may hold."""
    for character in ("😀", r"\\", "x"):
        payload = f'"{character * (2**18 // len(character))}"'
        events = [NewEvent("t", payload)] * (BATCH_CHARACTERS // len(payload))
        stored = await store_of(IngestStore, ingest).insert(events, [0] * len(events))
        ids = [event_id for event_id, _ in stored]
        assert len(ids) == len(events) and ids == sorted(set(ids))
        for event_id in (ids[0], ids[-1]):
            found = await owner.native(f"SELECT payload FROM events WHERE id = {event_id}")
            assert found[0][0] == payload


# ── Breaking ──────────────────────────────────────────────────────────────────────────────────


async def test_a_cancelled_statement_leaves_no_half_read_connection_behind(
    ingest: MysqlDatabase,
) -> None:
    large = "SELECT REPEAT('x', 3000000) FROM (SELECT 1 UNION SELECT 2) t"
    for text in ("SELECT SLEEP(0.5)", large):
        for delay in (0.0, 0.005, 0.02):
            asking = asyncio.create_task(ask(ingest, text))
            await asyncio.sleep(delay)
            asking.cancel()
            await asyncio.wait([asking])
            answers = await asyncio.gather(*(ask(ingest, f"SELECT {n}") for n in range(8)))
            assert list(answers) == list(range(8))
    used, _ = ingest.connections()
    assert used == 0


async def test_a_cancelled_transaction_is_undone(ingest: MysqlDatabase, owner: Any) -> None:
    inside = asyncio.Event()

    async def work(session: MysqlSession) -> None:
        await session.write("insert_events", given=Rows([("t", "{}", "", None, 0)]))
        inside.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(ingest.in_transaction(work))
    await inside.wait()
    running.cancel()
    await asyncio.wait([running])
    await owner.native("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")  # waits for locks
    assert await owner.fetchval("SELECT COUNT(*) FROM events") == 0


async def test_an_error_in_a_transaction_undoes_it_and_keeps_the_connection(
    ingest: MysqlDatabase, owner: Any
) -> None:
    session_id = await ask(ingest, "SELECT CONNECTION_ID()")

    async def work(session: MysqlSession) -> None:
        await session.write("insert_events", given=Rows([("t", "{}", "", None, 0)]))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await ingest.in_transaction(work)
    assert await owner.fetchval("SELECT COUNT(*) FROM events") == 0
    assert await ask(ingest, "SELECT CONNECTION_ID()") == session_id


async def test_a_connection_that_the_server_ended_is_not_given_out_again(
    ingest: MysqlDatabase, owner: Any
) -> None:
    session_id = await ask(ingest, "SELECT CONNECTION_ID()")
    await owner.native(f"KILL {session_id}")
    (idle, _) = ingest._pool._idle[0]
    await until(lambda: not idle.usable)  # the news is here
    assert await ask(ingest, "SELECT CONNECTION_ID()") != session_id


async def test_a_statement_that_is_killed_or_takes_too_long_counts_as_unreachable(
    configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    config = configure({"database.statement_timeout": 1})
    database = MysqlDatabase(config, login(config, access, "ingest"))
    try:
        with pytest.raises(DatabaseUnreachable, match="does not answer"):
            # MySQL ends SLEEP early without an error: something that works instead.
            many = "information_schema.collations"
            await ask(database, f"SELECT COUNT(*) FROM {many} a, {many} b, {many} c, {many} d")
        assert await ask(database, "SELECT 1") == 1
    finally:
        await database.close()


async def test_a_server_that_says_nothing_is_given_up_in_time(tmp_path: Path) -> None:
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        with pytest.raises(DatabaseUnreachable, match="no answer in time"):
            await connect(Login("x", f"mysql://u@localhost/d?unix_socket={path}"), 0.5)
    with pytest.raises(DatabaseUnreachable, match="Is the server running"):
        await connect(Login("x", f"mysql://u@localhost/d?unix_socket={tmp_path}/none.sock"), 5)


async def test_a_wrong_password_is_said_with_what_to_do(database_url: str) -> None:
    with pytest.raises(DatabaseUnreachable, match="does not let us in") as refused:
        await connect(Login("router", database_url, "router_worker", "wrong"), 5)
    assert "surehook migrate" in refused.value.advice and "wrong" not in str(refused.value)


# ── Repeating ─────────────────────────────────────────────────────────────────────────────────


async def test_a_deadlock_is_repeated_until_both_are_through(
    open_store: OpenStore, owner: Any
) -> None:
    """Two transactions that lock two rows in opposite order, at the same time."""
    keys = await open_store("keys")
    for name in ("a", "b"):
        await owner.native(
            "INSERT INTO api_keys (name, key_hash, scopes, revoked_at) "
            f"VALUES ('{name}', '{name}', 'read', '2026-01-01')"
        )
    tries = 0
    both = asyncio.Barrier(2)

    def swapper(first: int, second: int) -> Any:
        async def work(session: MysqlSession) -> None:
            nonlocal tries
            tries += 1
            is_first = tries <= 2
            later = "UPDATE api_keys SET revoked_at = revoked_at + INTERVAL 1 DAY WHERE id = %(id)s"
            await session.connection.write(later, id=first)
            if is_first:
                await both.wait()
            await session.connection.write(later, id=second)

        return work

    await asyncio.gather(keys.in_transaction(swapper(1, 2)), keys.in_transaction(swapper(2, 1)))
    assert tries >= 3
    days = await owner.native("SELECT DAY(revoked_at) FROM api_keys ORDER BY id")
    assert [row[0] for row in days] == [3, 3]


async def test_ingest_waits_a_second_for_a_key_that_is_held_and_no_longer(
    ingest: MysqlDatabase, database_url: str
) -> None:
    async with connected(database_url) as busy:
        await busy.native("START TRANSACTION")
        await busy.native(
            "INSERT INTO events (event_type, payload, external_id) VALUES ('t', '{}', 'key')"
        )
        assert await ask(ingest, "SELECT @@innodb_lock_wait_timeout") == 1
        with pytest.raises(LockHeld):
            await ingest.write("insert_events", given=Rows([("t", "{}", "", "key", 0)]))
        await busy.native("ROLLBACK")


async def test_what_the_server_refuses_has_our_names(ingest: MysqlDatabase, owner: Any) -> None:
    with pytest.raises(ValueRejected):
        await ingest.write("insert_events", given=Rows([("t" * 101, "{}", "", None, 0)]))
    await owner.native(
        "INSERT INTO events (event_type, payload, external_id) VALUES ('t', '{}', 'key')"
    )
    with pytest.raises(Duplicate):
        async with ingest._pool.connection() as connection:
            session = MysqlSession(connection, ingest)
            await session.write("insert_events", given=Rows([("t", "{}", "", "key", 0)]))


# ── The pool ──────────────────────────────────────────────────────────────────────────────────


async def test_no_more_connections_are_opened_than_are_allowed(
    configure: Configure, access: DatabaseAccess
) -> None:
    config = configure({"database.connections": 3})
    database = MysqlDatabase(config, login(config, access, "ingest"))
    try:
        slow = "SELECT CONNECTION_ID() FROM (SELECT SLEEP(0.02)) t"
        sessions = await asyncio.gather(*(ask(database, slow) for _ in range(12)))
        assert len(set(sessions)) == 3 and database.connections() == (0, 3)
    finally:
        await database.close()
    assert database.connections() == (0, 0)


async def test_an_idle_connection_is_let_go_with_a_good_bye(
    ingest: MysqlDatabase, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server counts who leaves without one: each of ours would be counted, and now and then
    one of another test's is."""
    aborted = "SHOW GLOBAL STATUS LIKE 'Aborted_clients'"
    monkeypatch.setattr(pool, "IDLE_SECONDS_MAX", 0.05)
    uncounted = False
    for _ in range(20):
        session_id = await ask(ingest, "SELECT CONNECTION_ID()")
        ingest._pool._timer = None  # the one that was set when it was opened waits longer
        await ask(ingest, "SELECT 1")
        before = (await owner.native(aborted))[0][1]
        await until(lambda: ingest.connections() == (0, 0) and not ingest._pool._ending)
        uncounted = uncounted or (await owner.native(aborted))[0][1] == before
        assert await ask(ingest, "SELECT CONNECTION_ID()") != session_id
    assert uncounted


# ── Encryption ────────────────────────────────────────────────────────────────────────────────


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


CIPHER = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"


async def cipher(url: str) -> str:
    async with engine_connection(url) as connection:
        return str((await connection.fetch(CIPHER))[0][1])


async def test_encryption_is_used_checked_and_insisted_on_as_the_url_says() -> None:
    ca, other = trustme.CA(), trustme.CA()
    with private_directory() as directory:
        for name, authority in (("ca", ca), ("other", other)):
            authority.cert_pem.write_to_path(directory / f"{name}.pem")
        ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
            directory / "server.pem"
        )
        for file in directory.iterdir():
            file.chmod(0o644)
        with MariadbServer(
            directory / "data",
            f"--ssl-cert={directory}/server.pem",
            f"--ssl-key={directory}/server.pem",
            f"--ssl-ca={directory}/ca.pem",
        ) as private:
            parts = urlsplit(private.url)

            def url(**options: str) -> str:
                named = {name.replace("_", "-"): value for name, value in options.items()}
                return parts._replace(query=f"{parts.query}&{urlencode(named)}").geturl()

            assert await cipher(private.url) == ""  # on a socket of this machine
            for options in (
                {"ssl_mode": "REQUIRED"},
                {"ssl_mode": "PREFERRED"},
                {"ssl_mode": "VERIFY_CA", "ssl_ca": f"{directory}/ca.pem"},
                {"ssl_ca": f"{directory}/ca.pem"},
            ):
                assert await cipher(url(**options)), options
            with pytest.raises(DatabaseUnreachable, match="certificate verify failed"):
                await cipher(url(ssl_ca=f"{directory}/other.pem"))
        with MariadbServer(directory / "data") as plain:  # the same, without certificates
            assert plain.url == private.url
            assert await cipher(url(ssl_mode="PREFERRED")) == ""
            with pytest.raises(DatabaseUnreachable, match=r"does not offer TLS.*ssl-mode"):
                await cipher(url(ssl_mode="REQUIRED"))


async def test_a_component_logs_in_over_a_network_with_and_without_encryption(
    server: Server,
) -> None:
    """MySQL's caching_sha2_password: by the server's RSA key, or the password inside of TLS."""
    ca = trustme.CA()
    with private_directory() as directory:
        pem = directory / "server.pem"
        ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(pem)
        pem.chmod(0o644)
        port = free_port()
        with OWN_SERVERS[server.kind](
            directory / "data",
            "--skip-networking=OFF",
            "--bind-address=127.0.0.1",
            f"--port={port}",
            f"--ssl-cert={pem}",
            f"--ssl-key={pem}",
        ) as private:
            await migrate(private.url, buckets=1, role_secret=server.role_secret)
            name, role = urlsplit(private.url).path, "router_worker"
            async with connected(private.url) as owner:
                for mode in ("DISABLED", "REQUIRED"):
                    await owner.native("FLUSH PRIVILEGES")  # forgets who logged in before
                    url = f"mysql://x@127.0.0.1:{port}{name}?ssl-mode={mode}"
                    password = derived_password(server.role_secret, role)
                    connection = await connect(Login("router", url, role, password), 5)
                    assert bool((await connection.fetch(CIPHER))[0][1]) == (mode == "REQUIRED")
                    await connection.close()


def test_the_driver_is_not_loaded_for_another_engine(tmp_path: Path) -> None:
    """PostgreSQL's users pay nothing for it."""
    import subprocess
    import sys

    code = (
        "import sys; from surehook.store import engine_of; engine_of('postgresql://x/y'); "
        "sys.exit('asyncmy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ}, check=False)
    assert done.returncode == 0
