"""Fault injection: real processes on a real database, broken on purpose, judged from outside.

    python -m faults                    every short scenario, on each engine that is here
    python -m faults --long --json out  the full figures

Not part of the product. docs/reliability.md says what the figures mean.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What the tests share (certificates, receiver, programs of the databases) is used here too.
for folder in (ROOT / "tests", ROOT):  # the tools of the repository come before tests/tools
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
