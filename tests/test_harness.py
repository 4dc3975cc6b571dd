"""The test run itself: however it ends, its servers end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TEST = """
import asyncio
from pathlib import Path

async def test_waits(postgres, owner):
    Path({said!r}).write_text(postgres.url)
    await asyncio.sleep({seconds})
    assert {outcome}
"""


def eventually(true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def start_run(tmp_path: Path, *, seconds: float, outcome: bool = True) -> subprocess.Popen[bytes]:
    """A test run of its own, with our conftest, on the wheel's PostgreSQL."""
    tests = Path(__file__).parent
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['conftest_of_surehook']\n")
    (tmp_path / "conftest_of_surehook.py").write_text((tests / "conftest.py").read_text())
    test = TEST.format(said=str(tmp_path / "said"), seconds=seconds, outcome=outcome)
    (tmp_path / "test_it.py").write_text(test)
    settings = ["-o", "asyncio_mode=auto", "-o", f"pythonpath={tests} {tmp_path}"]
    settings += ["-p", "xdist", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider", "-n", "2"]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            os.devnull,
            "--rootdir",
            tmp_path,
            *settings,
            tmp_path,
        ],
        env={
            **os.environ,
            "SUREHOOK_TEST_POSTGRES": "wheel",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # what it does not need only takes time
            "PYTHONPATH": f"{tests}:{tmp_path}",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def run_directory(tmp_path: Path) -> Path:
    url = (tmp_path / "said").read_text()
    return Path(url.partition("host=")[2].partition("/wheel")[0])


def running_in(directory: Path) -> bool:
    listed = subprocess.run(
        ["ps", "-Aww", "-o", "stat=,command="], capture_output=True, text=True, check=True
    )
    lines = [line for line in listed.stdout.splitlines() if not line.startswith("Z")]
    return any(str(directory) in line for line in lines)


def test_nothing_is_left_after_a_failure(tmp_path: Path) -> None:
    run = start_run(tmp_path, seconds=0, outcome=False)
    assert run.wait(60) == 1
    directory = run_directory(tmp_path)
    assert directory.name.startswith("surehook-tests-")
    assert not running_in(directory) and not directory.exists()


def test_nothing_is_left_after_ctrl_c(tmp_path: Path) -> None:
    run = start_run(tmp_path, seconds=60)
    eventually(lambda: (tmp_path / "said").exists() and "wheel" in (tmp_path / "said").read_text())
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to the whole group
    run.wait(60)
    directory = run_directory(tmp_path)
    assert not running_in(directory) and not directory.exists()


def test_nothing_goes_on_running_after_a_kill(tmp_path: Path) -> None:
    run = start_run(tmp_path, seconds=60)
    eventually(lambda: (tmp_path / "said").exists() and "wheel" in (tmp_path / "said").read_text())
    directory = run_directory(tmp_path)
    assert running_in(directory)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait(60)
    eventually(lambda: not running_in(directory))
