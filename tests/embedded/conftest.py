"""Fixtures of the embedded server's tests. Writes only in a temporary directory per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_harness import private_place, system_binaries, wheel_binaries


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
