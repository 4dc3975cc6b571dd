"""Schedule: which process is hit when. Pure; the same seed gives the same schedule.

A moment is a number of events that were offered, and some milliseconds after that: so a schedule
does not depend on the machine's speed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

DELAY_SECONDS_MAX = 0.1


@dataclass(frozen=True, slots=True, order=True)
class Hit:
    after_events: int
    delay_seconds: float
    target: str


def dice_for(seed: int, scenario: str, engine: str) -> random.Random:
    """Each scenario has its own, so that running it alone changes nothing."""
    return random.Random(f"{seed} {scenario} {engine}")


def hits(
    dice: random.Random, count: int, events: int, targets: Mapping[str, float]
) -> tuple[Hit, ...]:
    """`count` moments within `events` events; each target by its weight, and each at least once
    where there are enough."""
    names = list(targets)
    chosen = names[:count]
    chosen += dice.choices(names, list(targets.values()), k=count - len(chosen))
    dice.shuffle(chosen)
    moments = sorted(dice.randrange(1, max(2, events)) for _ in chosen)
    return tuple(
        Hit(moment, dice.uniform(0, DELAY_SECONDS_MAX), name)
        for moment, name in zip(moments, chosen, strict=True)
    )
