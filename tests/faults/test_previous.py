"""The program before this one is started with what it knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.scenarios import upgraded
from faults.scenarios.upgraded import Upgraded
from support.old_program import NoHistory, Previous

GIVEN = {
    "PATH": "/usr/bin",
    "SUREHOOK_LEASE_DURATION": "10s",
    "SUREHOOK_TEST_CRASHPOINT": "x",
    "SUREHOOK_OF_THE_FUTURE": "1",
}


@pytest.mark.parametrize("engine", ["postgres", "mysql"])
def test_a_setting_that_the_previous_program_does_not_know_is_left_out(
    engine: str, tmp_path: Path
) -> None:
    try:
        previous = Previous(engine, tmp_path)
    except NoHistory as reason:
        pytest.skip(f"The previous program cannot be had from git: {reason}")
    env = previous.environment(GIVEN)
    assert env == {
        **{name: value for name, value in GIVEN.items() if "FUTURE" not in name},
        "PYTHONPATH": str(tmp_path / "src"),
    }


def test_a_copy_without_its_history_is_told_why_the_upgrade_is_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(engine: str) -> str:
        raise NoHistory("not a git repository")

    monkeypatch.setattr(upgraded, "before_newest_migration", absent)
    assert "not a git repository" in (Upgraded().missing() or "")
