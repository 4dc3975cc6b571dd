"""A process that is given a wrong clock has it, and only that one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from faults import clocks
from faults.processes import Program
from faults.scenarios.clock_off import OFFSETS, ClockOff

needs_library = pytest.mark.skipif(clocks.library() is None, reason=clocks.MISSING)
ASK = "import time; print(time.time(), time.monotonic())"


@needs_library
@pytest.mark.parametrize("offset", OFFSETS, ids=str)
def test_the_wall_clock_of_the_process_is_wrong_and_its_monotonic_clock_is_right(
    offset: timedelta,
) -> None:
    before = time.time(), time.monotonic()
    env = {**os.environ, **clocks.off_by(offset)}
    said = subprocess.check_output([sys.executable, "-c", ASK], env=env, text=True)
    after = time.time(), time.monotonic()
    wall, monotonic = map(float, said.split())
    assert before[0] <= wall - offset.total_seconds() <= after[0]
    assert before[1] <= monotonic <= after[1]


def test_a_machine_without_the_library_is_told_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clocks, "PLACES", ())
    assert "make libfaketime" in (ClockOff().missing() or "")


@pytest.mark.parametrize(("hours", "is_off"), [(1, True), (0, False), (-1, False)])
def test_a_log_shows_whether_its_process_had_the_clock_it_was_given(
    tmp_path: Path, hours: int, is_off: bool
) -> None:
    log = tmp_path / "worker.log"
    shown = datetime.now(UTC) + timedelta(hours=hours)
    log.write_text(json.dumps({"time": shown.isoformat()}) + "\n")
    program = Program("worker-1", ("run", "worker"), {"FAKETIME": "+3600"}, log)
    assert clocks.is_off(program) is is_off
