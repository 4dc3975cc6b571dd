"""Clocks: processes whose wall clock is wrong from their start to their end.

Reads   where Debian's libfaketime is; logs of processes      Writes  nothing

Their monotonic clock stays as it is: no machine's clock that is set wrong changes that one.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

from faults.processes import Program

# The one for programs with threads; Debian has it below the architecture's name.
PLACES = ("lib/*/faketime", "lib/faketime", "lib64/faketime", "local/lib/faketime")
LIBRARY = "libfaketimeMT.so.1"
EXACT_SECONDS = 5.0
MISSING = "libfaketime is not here: `make libfaketime` installs it where apt is"


def library() -> Path | None:
    found = [path for place in PLACES for path in Path("/usr").glob(f"{place}/{LIBRARY}")]
    return found[0] if found else None


def off_by(offset: timedelta) -> dict[str, str]:
    """The environment of a process whose clock is wrong by this much."""
    there = library()
    assert there is not None, MISSING
    return {
        "LD_PRELOAD": str(there),
        "FAKETIME": f"{offset.total_seconds():+.0f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",  # files keep their times
    }


def is_off(program: Program) -> bool:
    """Whether the last line of its log is dated by the wrong clock that it was given."""
    last = program.log.read_text().splitlines()[-1]
    shown = datetime.fromisoformat(json.loads(last)["time"]).timestamp()
    written = program.log.stat().st_mtime
    return abs(shown - written - float(program.env["FAKETIME"])) < EXACT_SECONDS
