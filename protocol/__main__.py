"""`python -m protocol`: explores every claim and prints what was found. --long: the large ones too.

Exit code 1 if a claim is wrong.
"""

from __future__ import annotations

import sys
import time

from protocol.claims import BREAKS, HOLDS, Claim
from protocol.explore import Explored, explore


def _show(claim: Claim, found: Explored, seconds: float) -> bool:
    """Whether it is as was claimed."""
    right = found.broken == claim.breaks
    size = f"{found.states:,} states, {found.steps:,} steps, {seconds:.1f} s"
    print(f"{'' if right else 'WRONG: '}{claim.name} ({size})", flush=True)
    if found.broken:
        for number, label in enumerate(found.history, 1):
            print(f"  {number:3}. {label}")
        print(f"   →   no longer: {found.broken}\n")
    return right


def main() -> int:
    began = time.monotonic()
    wrong = states = steps = 0
    for title, claims in (("Every promise holds:", HOLDS), ("One thing is missing:", BREAKS)):
        print(f"\n{title}\n")
        for claim in claims:
            if claim.long and "--long" not in sys.argv[1:]:
                continue
            started = time.monotonic()
            found = explore(claim.model)
            states, steps = states + found.states, steps + found.steps
            wrong += not _show(claim, found, time.monotonic() - started)
    print(f"{states:,} states, {steps:,} steps, {time.monotonic() - began:.0f} s, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
