"""The test run itself: however it ends, its servers end with it; what it left out, it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support import servers
from support.waiting import PATIENCE

TEST = """
import asyncio
from pathlib import Path

async def test_waits(server, owner):
    Path({said!r}).write_text(server.directory)
    await asyncio.sleep({seconds})
    assert {outcome}
"""
KINDS = {"wheel": "postgres", "mariadb": "mysql", "mysql": "mysql"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name not in servers.wanted():
        pytest.skip(f"there is no {name} here")
    return name


def eventually(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def start_run(
    tmp_path: Path, kind: str, *, seconds: float = 0, outcome: bool = True, required: str = ""
) -> subprocess.Popen[bytes]:
    """A test run of its own, with our conftest, on one server."""
    tests = Path(__file__).parent
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['conftest_of_surehook']\n")
    (tmp_path / "conftest_of_surehook.py").write_text((tests / "conftest.py").read_text())
    test = TEST.format(said=str(tmp_path / "said"), seconds=seconds, outcome=outcome)
    (tmp_path / "test_it.py").write_text(test)
    settings = ["-o", "asyncio_mode=auto", "-o", f"pythonpath={tests} {tmp_path}"]
    settings += ["-p", "xdist", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider", "-n", "2"]
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path)]
    with (tmp_path / "output").open("wb") as output:
        return subprocess.Popen(
            [*command, *settings, str(tmp_path)],
            env={
                **os.environ,
                "SUREHOOK_TEST_POSTGRES": "wheel",
                "SUREHOOK_TEST_ENGINES": KINDS[kind],
                "SUREHOOK_TEST_MYSQL": kind if KINDS[kind] == "mysql" else "",
                "SUREHOOK_TEST_REQUIRE_MYSQL": required,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # what it does not need only takes time
                "PYTHONPATH": f"{tests}:{tmp_path}",
            },
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def output_of(tmp_path: Path) -> str:
    return (tmp_path / "output").read_text()


def run_directory(tmp_path: Path) -> Path:
    return Path((tmp_path / "said").read_text())


def has_said(tmp_path: Path) -> bool:
    return (tmp_path / "said").exists() and bool((tmp_path / "said").read_text())


def running_in(directory: Path) -> bool:
    listed = subprocess.run(
        ["ps", "-Aww", "-o", "stat=,command="], capture_output=True, text=True, check=True
    )
    lines = [line for line in listed.stdout.splitlines() if not line.startswith("Z")]
    return any(str(directory) in line for line in lines)


def test_nothing_is_left_after_a_failure(tmp_path: Path, kind: str) -> None:
    run = start_run(tmp_path, kind, outcome=False)
    assert run.wait(PATIENCE) == 1, output_of(tmp_path)
    directory = run_directory(tmp_path)
    assert directory.name.startswith("surehook-tests-")
    assert not running_in(directory) and not directory.exists()


def test_nothing_is_left_after_ctrl_c(tmp_path: Path, kind: str) -> None:
    run = start_run(tmp_path, kind, seconds=PATIENCE)
    eventually(lambda: has_said(tmp_path))
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to the whole group
    run.wait(PATIENCE)
    directory = run_directory(tmp_path)
    assert not running_in(directory) and not directory.exists()


def test_nothing_goes_on_running_after_a_kill(tmp_path: Path, kind: str) -> None:
    run = start_run(tmp_path, kind, seconds=PATIENCE)
    eventually(lambda: has_said(tmp_path))
    directory = run_directory(tmp_path)
    assert running_in(directory)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait(PATIENCE)
    eventually(lambda: not running_in(directory))


def test_a_run_without_mysql_says_so_at_its_end(tmp_path: Path) -> None:
    assert start_run(tmp_path, "wheel").wait(PATIENCE) == 0, output_of(tmp_path)
    *_, said = output_of(tmp_path).partition(" NOT RUN ")
    assert "tests/scenarios on MySQL" in said and "SUREHOOK_TEST_ENGINES leaves MySQL out" in said


def test_a_run_without_mysql_fails_at_once_where_it_is_required(tmp_path: Path) -> None:
    assert start_run(tmp_path, "wheel", required="1").wait(PATIENCE) == pytest.ExitCode.USAGE_ERROR
    assert "SUREHOOK_TEST_REQUIRE_MYSQL is set" in output_of(tmp_path)
    assert not (tmp_path / "said").exists()
