"""Fixtures of the embedded server's tests. Writes only in a temporary directory per test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_harness import FAST, private_place, system_binaries, wheel_binaries

from surehook.embedded.server import EmbeddedServer


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory; the test fails if a process of it is left running."""
    with private_place() as path:
        yield path


@pytest.fixture(scope="session")
def template() -> Iterator[Path]:
    """A finished data directory, for tests to which its making does not matter."""
    with private_place() as path:
        with EmbeddedServer(path / "data", settings=FAST):
            pass
        yield path / "data"


@pytest.fixture
def data(place: Path, template: Path) -> Path:
    """A data directory of the test's own, with a server that ran before and was stopped."""
    subprocess.run(["cp", "-a", str(template), str(place / "data")], check=True)
    return place / "data"


@pytest.fixture(params=["system", "wheel"])
def binaries(request: pytest.FixtureRequest) -> Path:
    """PostgreSQL of the system, then of the wheel."""
    if request.param == "wheel":
        return wheel_binaries()
    found = system_binaries()
    if found is None:
        pytest.skip("no PostgreSQL 15 or newer is installed on this system")
    return found
