"""Fixtures of the embedded server's tests. Writes only in temporary directories.

Most of a test's time would be initdb, so tests to which the making of a data directory does not
matter get a copy of one that the run's first worker has made.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_harness import FAST, private_place, roomy_memory, system_binaries, wheel_binaries

from surehook.embedded.server import EmbeddedServer


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory; the test fails if a process of it is left running."""
    with private_place() as path:
        yield path


@pytest.fixture(params=["system", "wheel"])
def binaries(request: pytest.FixtureRequest) -> Path:
    """PostgreSQL of the system, then of the wheel."""
    if request.param == "wheel":
        return wheel_binaries()
    found = system_binaries()
    if found is None:
        pytest.skip("no PostgreSQL 15 or newer is installed on this system")
    return found


@pytest.fixture(scope="session")
def templates() -> Iterator[Path]:
    """A folder that all workers of this run share; the last one to leave removes it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = roomy_memory() / f"surehook-templates-{run}"
    folder.mkdir(mode=0o711, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as present:
        fcntl.flock(present, fcntl.LOCK_SH)
        yield folder
        try:
            fcntl.flock(present, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(folder)
        folder.with_suffix(".lock").unlink()


@pytest.fixture
def data(place: Path, templates: Path) -> Path:
    """A data directory of the test's own, with a server that ran before and was stopped."""
    return copy_of(templates / "default", None, place)


@pytest.fixture
def each_data(place: Path, templates: Path, binaries: Path) -> Path:
    """The same, made by PostgreSQL of the system, then of the wheel."""
    return copy_of(templates / binaries.parent.name, binaries, place)


def copy_of(template: Path, binaries: Path | None, place: Path) -> Path:
    with template.with_suffix(".lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if not template.exists():
            with EmbeddedServer(template, binaries=binaries, settings=FAST):
                pass
    subprocess.run(["cp", "-a", str(template), str(place / "data")], check=True)
    return place / "data"
