"""`surehook db …` as a person uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from embedded_harness import eventually, is_running, pipe, processes_of

from support.waiting import PATIENCE
from surehook.embedded.directory import DataDirectory
from surehook.embedded.server import EmbeddedServer

DB = [sys.executable, "-m", "surehook", "db"]


def db(data: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SUREHOOK_DATA_DIR": str(data), "PGHOST": "/wrong"} | variables
    return subprocess.run(
        [*DB, *arguments], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize("kind", ["fresh", "used"])
def test_start_stays_up_until_stop(kind: str, place: Path, request: pytest.FixtureRequest) -> None:
    data = place / "data"
    if kind == "used":
        request.getfixturevalue("data")
    started = db(data, "start")
    assert started.returncode == 0 and started.stdout.startswith("postgresql://surehook@/")
    assert db(data, "url").stdout == started.stdout
    status = json.loads(db(data, "status", "--json").stdout)
    assert status["running"] and is_running(status["pid"])
    again = db(data, "start")
    assert again.returncode == 3 and status["holder"] in again.stderr
    assert db(data, "psql", "--", "-Atc", "SELECT 6 * 7").stdout == "42\n"
    assert db(data, "stop").stdout == "stopped\n"
    assert not processes_of(place)
    assert db(data, "stop").stdout == "no server was running\n"


def test_stop_waits_for_a_supervisor_that_is_slow_to_end(
    data: Path, place: Path, tmp_path: Path
) -> None:
    """It gives the lock back before its interpreter is gone; that moment is stretched here."""
    slow = "if 'supervisor' in sys.orig_argv[3]: atexit.register(time.sleep, 1)"
    (tmp_path / "sitecustomize.py").write_text(f"import atexit, sys, time\n{slow}")
    assert db(data, "start", PYTHONPATH=str(tmp_path)).returncode == 0
    assert db(data, "stop").stdout == "stopped\n"
    assert not processes_of(place)


def test_without_a_server_url_and_status_say_so(data: Path) -> None:
    url = db(data, "url")
    assert (url.returncode, url.stdout) == (3, "") and "surehook db start" in url.stderr
    assert db(data, "status").returncode == 1


def test_psql_starts_a_server_for_its_duration_and_passes_the_exit_code_on(
    data: Path, place: Path
) -> None:
    assert db(data, "psql", "--", "-Atc", "SELECT current_user").stdout == "surehook\n"
    assert db(data, "psql", "--", "-c", "nonsense").returncode == 1
    assert not processes_of(place)


def test_psql_refuses_when_another_database_is_configured(tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if "SUREHOOK" not in name}
    other = {"SUREHOOK_DATABASE_URL": "postgresql://shop@db.example/shop", "HOME": str(tmp_path)}
    command = [*DB, "psql", "--", "-c", "SELECT 1"]
    done = subprocess.run(command, capture_output=True, text=True, env=inherited | other)
    assert done.returncode == 2 and "names another database" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_the_foreground_a_signal_stops_it_cleanly(
    number: signal.Signals, data: Path, place: Path
) -> None:
    command = [*DB, "start", "--foreground", "--data-dir", str(data)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert pipe(program.stdout).readline().startswith("postgresql://")
    refused = db(data, "stop")
    assert refused.returncode == 3 and f"belongs to pid {program.pid}" in refused.stderr
    program.send_signal(number)
    program.communicate(timeout=PATIENCE)
    assert program.returncode == 0
    assert not processes_of(place)


def test_stop_leaves_the_server_of_a_program_alone(data: Path) -> None:
    with EmbeddedServer(data) as server:
        refused = db(data, "stop")
        assert refused.returncode == 3 and "Stop that program" in refused.stderr
        assert is_running(server.pid)


def test_no_secret_shows_in_output_process_list_or_log(data: Path, place: Path) -> None:
    said = [db(data, name) for name in ("start", "url", "status")]
    shown = "".join(one.stdout + one.stderr for one in said) + str(processes_of(place))
    said = [db(data, "psql", "--", "-c", "nonsense"), db(data, "stop")]
    shown += "".join(one.stdout + one.stderr for one in said)
    shown += "".join(one.read_text() for one in (data / "log").iterdir())
    directory = DataDirectory(data)
    secrets = [directory.secret("role_secret"), directory.secret("encryption_key")]
    for secret in (*secrets, directory.owner_password()):
        assert len(secret) > 30 and secret not in shown


def test_a_mistake_is_one_line_and_no_traceback(place: Path) -> None:
    (place / "file").touch()
    done = db(place / "file", "start")
    system, mistake = done.stderr.splitlines()
    assert done.returncode == 2 and system.startswith("system: ") and "is a file" in mistake


def test_a_detached_server_outlives_the_program_that_started_it(data: Path) -> None:
    pid = json.loads((db(data, "start"), db(data, "status", "--json"))[1].stdout)["pid"]
    other = EmbeddedServer(data)
    assert other.attach()
    eventually(lambda: other.poll() and is_running(pid))
    assert other.stop_detached()
    assert not is_running(pid)
