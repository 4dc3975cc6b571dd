"""Starting, using and stopping an embedded server."""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import subprocess
import threading
from pathlib import Path

import asyncpg
import pytest
from embedded_harness import (
    FAST,
    IS_ROOT,
    end,
    eventually,
    first_line,
    is_running,
    processes_of,
    sql,
    start_program,
)

from support.waiting import PATIENCE
from surehook.embedded.server import EmbeddedServer
from surehook.errors import EmbeddedServerError


def test_data_survives_a_stop_and_a_start(place: Path, binaries: Path) -> None:
    with EmbeddedServer(place / "data", binaries=binaries) as server:
        sql(server, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)")
        old_version = server.version
    assert not processes_of(place)
    with EmbeddedServer(place / "data") as server:
        assert sql(server, "SELECT n FROM kept") == "42"
        assert server.version == old_version


async def test_the_url_works_with_asyncpg_and_holds_no_password(
    each_data: Path, binaries: Path
) -> None:
    with EmbeddedServer(each_data, binaries=binaries, settings=FAST) as server:
        password = server.passfile.read_text().strip().rpartition(":")[2]
        assert len(password) >= 32 and password not in server.url
        connection = await asyncpg.connect(server.url)
        row = await connection.fetchrow("SELECT current_user::text, current_database()::text")
        await connection.close()
        assert tuple(row) == ("surehook", "surehook")


async def test_nobody_gets_in_without_the_password(data: Path) -> None:
    with EmbeddedServer(data, settings=FAST) as server:
        url = server.url.partition("&passfile")[0]
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(url, password="guess")


def test_the_server_listens_on_no_network_unless_asked(data: Path) -> None:
    with EmbeddedServer(data, settings=FAST) as server:
        assert sql(server, "SHOW listen_addresses") == ""


async def test_a_tcp_port_can_be_asked_for(data: Path, unused_tcp_port: int) -> None:
    with EmbeddedServer(data, tcp_port=unused_tcp_port, settings=FAST) as server:
        assert sql(server, "SELECT 1") == "1"
        connection = await asyncpg.connect(
            host="127.0.0.1",
            port=unused_tcp_port,
            user="surehook",
            database="surehook",
            passfile=str(server.passfile),
        )
        await connection.close()


def test_the_settings_are_durable_and_in_utc(each_data: Path, binaries: Path) -> None:
    with EmbeddedServer(each_data, binaries=binaries) as server:
        for name in ("fsync", "synchronous_commit", "full_page_writes", "data_checksums"):
            assert sql(server, f"SHOW {name}") == "on"
        assert sql(server, "SHOW timezone") == "UTC"
        assert sql(server, "SHOW jit") == "off"


def test_the_server_never_runs_as_root(data: Path) -> None:
    with EmbeddedServer(data, settings=FAST) as server:
        for pid in (server.pid, server.supervisor_pid):
            shown = ["ps", "-o", "uid=", "-p", str(pid)]
            uid = int(subprocess.run(shown, capture_output=True, text=True, check=True).stdout)
            assert uid != 0 and (IS_ROOT or uid == os.getuid())


def test_everything_in_the_data_directory_is_private(data: Path) -> None:
    with EmbeddedServer(data, settings=FAST) as server:
        assert stat.S_IMODE(server.data_dir.stat().st_mode) == 0o700
        for path in server.data_dir.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # PostgreSQL is at work meanwhile
                assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0, path


def test_the_secrets_are_made_once_and_stay(data: Path) -> None:
    with EmbeddedServer(data, settings=FAST) as server:
        before = (server.role_secret, server.encryption_key)
        assert len(base64.b64decode(server.encryption_key)) == 32
        assert len(server.role_secret) >= 32
    with EmbeddedServer(data, settings=FAST) as server:
        assert (server.role_secret, server.encryption_key) == before


def test_a_lost_encryption_key_is_not_silently_replaced(data: Path) -> None:
    with EmbeddedServer(data, settings=FAST):
        pass
    (data / "encryption_key").unlink()
    with pytest.raises(EmbeddedServerError, match="encryption_key is gone"):
        EmbeddedServer(data, settings=FAST).start()


def test_stop_may_be_repeated_and_comes_before_start(data: Path) -> None:
    server = EmbeddedServer(data, settings=FAST)
    server.stop()
    server.start()
    pid = server.pid
    server.stop()
    server.stop()
    assert not is_running(pid)
    with pytest.raises(EmbeddedServerError, match="No server was started"):
        _ = server.url


def test_of_three_simultaneous_starts_exactly_one_wins_and_the_others_say_who(place: Path) -> None:
    started = [start_program(place / "data") for _ in range(3)]
    lines = [first_line(program) for program in started]
    winners = [
        program.pid for program, line in zip(started, lines, strict=True) if line[:5] == "ready"
    ]
    refusals = [line for line in lines if line.startswith("refused")]
    for program in started:
        end(program)
    assert len(winners) == 1 and len(refusals) == 2, lines
    for line in refusals:
        assert f"is in use by pid {winners[0]} (" in line and "since 20" in line


def test_a_second_start_names_the_holder(data: Path) -> None:
    second = EmbeddedServer(data, settings=FAST)
    said = f"in use by pid {os.getpid()} .*, since 20"
    with EmbeddedServer(data, settings=FAST), pytest.raises(EmbeddedServerError, match=said):
        second.start()


def test_another_program_can_attach_and_its_stop_leaves_the_server_alone(data: Path) -> None:
    other = EmbeddedServer(data)
    assert not other.attach()
    with EmbeddedServer(data, settings=FAST) as server:
        assert other.attach()
        assert sql(other, "SELECT 1") == "1"
        other.stop()
        assert is_running(server.pid) and sql(server, "SELECT 1") == "1"
        assert other.attach()
    assert not other.attach()


def test_ctrl_c_reaches_the_program_and_not_postgres(each_data: Path, binaries: Path) -> None:
    program = start_program(each_data, binaries)
    word, _, postmaster, _ = first_line(program).split()
    assert word == "ready"
    os.killpg(program.pid, 2)
    output, _ = program.communicate(timeout=PATIENCE)
    assert output == "interrupted\n"
    assert not is_running(int(postmaster))
    logs = "".join(one.read_text() for one in (each_data / "log").glob("postgresql-*.log"))
    assert "received fast shutdown request" in logs and "database system is shut down" in logs


def test_a_long_path_gets_a_short_private_socket(place: Path) -> None:
    deep = place / ("long" * 30) / ("deep" * 30)
    with EmbeddedServer(deep, settings=FAST) as server:
        assert sql(server, "SELECT 1") == "1"
        folder = Path(server.url.partition("host=")[2].partition("&")[0])
        assert len(str(folder)) < 80 and deep not in folder.parents
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.stat().st_uid == deep.stat().st_uid
    folder.rmdir()


def test_the_thread_that_started_the_server_may_end(data: Path) -> None:
    server = EmbeddedServer(data, settings=FAST)
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join()
    pid = server.pid
    # A shutdown that follows the end of the thread would have been asked for by now.
    assert sql(server, "SELECT pg_sleep(0.5)") == "" and sql(server, "SELECT 1") == "1"
    assert server.pid == pid
    server.stop()


def test_no_zombie_is_left_of_a_stopped_server(data: Path, place: Path) -> None:
    with EmbeddedServer(data, settings=FAST) as server:
        supervisor = server.supervisor_pid
    shown = ["ps", "-o", "stat=", "-p", str(supervisor)]
    assert subprocess.run(shown, capture_output=True, text=True).stdout.strip() == ""
    eventually(lambda: not processes_of(place))
