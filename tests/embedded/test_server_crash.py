"""What survives when processes are killed without warning."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import asyncpg
from embedded_harness import (
    FAST,
    IS_ROOT,
    children_of,
    end,
    eventually,
    first_line,
    is_running,
    processes_of,
    sql,
    start_program,
)

from support.waiting import PATIENCE
from surehook.embedded.directory import DataDirectory
from surehook.embedded.server import EmbeddedServer


def kill_all(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def insert_until_cut_off(url: str, acknowledged: list[int], worker: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        while True:
            number = len(acknowledged) * 10 + worker
            await connection.execute("INSERT INTO acked VALUES ($1, $2)", number, worker)
            acknowledged.append(number)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return


async def test_killing_every_process_loses_nothing_acknowledged(
    each_data: Path, binaries: Path
) -> None:
    program = start_program(each_data, binaries, fsync="on")
    _, supervisor, postmaster, url = first_line(program).split()
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE acked (n bigint, worker int)")
    await connection.close()
    lists: list[list[int]] = [[] for _ in range(3)]
    writers = [
        asyncio.create_task(insert_until_cut_off(url, one, worker))
        for worker, one in enumerate(lists)
    ]
    while min(len(one) for one in lists) < 200:  # noqa: ASYNC110  # progress of other tasks
        await asyncio.sleep(0.01)
    # The children first: none may notice anything and tidy up.
    children = children_of(int(postmaster))
    kill_all(*children, int(postmaster), int(supervisor), program.pid)
    await asyncio.gather(*writers)
    end(program)
    with EmbeddedServer(each_data) as server:
        kept = set(sql(server, "SELECT n FROM acked").split())
        assert {str(number) for one in lists for number in one} <= kept


def test_postgres_stops_cleanly_soon_after_its_program_was_killed(
    each_data: Path, binaries: Path
) -> None:
    program = start_program(each_data, binaries)
    _, supervisor, postmaster, _ = first_line(program).split()
    kill_all(program.pid)
    eventually(lambda: not is_running(int(postmaster)) and not is_running(int(supervisor)), 10)
    end(program)
    assert cluster_state(each_data, binaries) == "shut down"


def test_postgres_stops_cleanly_soon_after_its_supervisor_was_killed(
    each_data: Path, binaries: Path
) -> None:
    server = EmbeddedServer(each_data, binaries=binaries, settings=FAST)
    server.start()
    postmaster = server.pid
    kill_all(server.supervisor_pid)
    if sys.platform == "linux":  # the kernel tells it; elsewhere only stop() does
        eventually(lambda: not is_running(postmaster), 10)
    server.stop()
    assert not is_running(postmaster)
    assert cluster_state(each_data, binaries) == "shut down"


def test_a_start_right_after_the_kill_waits_for_the_predecessor(data: Path) -> None:
    program = start_program(data)
    first_line(program)
    kill_all(program.pid)
    with EmbeddedServer(data, settings=FAST) as server:
        assert sql(server, "SELECT 1") == "1"
    end(program)


def test_a_killed_postmaster_is_started_again(each_data: Path, binaries: Path) -> None:
    with EmbeddedServer(each_data, binaries=binaries) as server:
        sql(server, "CREATE TABLE kept AS SELECT 42 AS n")
        for _ in range(2):
            killed = server.pid
            kill_all(killed)
            eventually(partial(has_another_pid, server, killed))
            assert sql(server, "SELECT n FROM kept") == "42"
            assert server.poll()
        log = (server.data_dir / "log" / "supervisor.log").read_text()
        assert log.count("killed by SIGKILL") == 2


def test_a_killed_supervisor_is_replaced_by_poll(data: Path) -> None:
    with EmbeddedServer(data, settings=FAST) as server:
        before = server.supervisor_pid
        kill_all(before)
        eventually(lambda: not is_running(before))
        eventually(server.poll)
        eventually(lambda: EmbeddedServer(data).attach())
        assert server.supervisor_pid != before
        assert sql(server, "SELECT 1") == "1"


def test_a_recycled_process_id_in_the_pid_file_does_not_prevent_the_start(data: Path) -> None:
    with EmbeddedServer(data, settings=FAST) as server:
        account = server.data_dir.stat()
        lines = (data / "postgres/postmaster.pid").read_text().splitlines()
    # Some other program of the same user now has the id.
    drop = f"--reuid={account.st_uid} --regid={account.st_gid} --clear-groups".split()
    become = ["setpriv", *drop] if IS_ROOT else []
    sleeper = subprocess.Popen([*become, "sleep", "600"], cwd="/")
    try:
        stale = data / "postgres/postmaster.pid"
        stale.write_text("\n".join([str(sleeper.pid), *lines[1:]]) + "\n")
        shutil.chown(stale, account.st_uid, account.st_gid)
        stale.chmod(0o600)
        with EmbeddedServer(data, settings=FAST) as server:
            assert sql(server, "SELECT 1") == "1"
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_half_finished_initdb_is_thrown_away(place: Path, binaries: Path) -> None:
    program = start_program(place / "data", binaries)
    data = place / "data"
    eventually(lambda: any(data.glob("postgres.new-*/base")))
    holder = DataDirectory(data).holder()
    assert holder is not None
    os.killpg(holder.supervisor, signal.SIGKILL)  # initdb and its children are in its session
    kill_all(program.pid)
    end(program)
    assert not (data / "postgres").exists() and list(data.glob("postgres.new-*"))
    with EmbeddedServer(data, binaries=binaries, settings=FAST) as server:
        assert sql(server, "SELECT 1") == "1"
        assert not list(data.glob("postgres.new-*"))


def test_stopping_during_the_start_leaves_nothing_running(place: Path) -> None:
    program = start_program(place / "data")
    eventually(lambda: any((place / "data").glob("postgres.new-*")))
    os.killpg(program.pid, signal.SIGINT)
    assert program.communicate(timeout=PATIENCE)[0] == "interrupted\n"
    assert not processes_of(place)


def has_another_pid(server: EmbeddedServer, pid: int) -> bool:
    return server.pid != pid


def cluster_state(data_dir: Path, binaries: Path) -> str:
    shown = subprocess.run(
        [binaries / "pg_controldata", data_dir / "postgres"],
        capture_output=True,
        text=True,
        check=True,
        env={"LC_ALL": "C"},
    )
    return shown.stdout.partition("Database cluster state:")[2].splitlines()[0].strip()
