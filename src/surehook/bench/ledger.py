"""What was owed, what arrived, and what follows from the two. Pure.

It knows nothing of the database: a delivery is owed from the moment when the publisher was told
that its event is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Arrived:
    """What the receiver knows of one webhook-id."""

    posts: int
    accepted: int  # posts that were answered with 2xx
    first_at: float  # monotonic, one clock for all processes of a machine


@dataclass(frozen=True, slots=True)
class Verdict:
    owed: int
    posts: int
    lost: int
    phantom: int
    doubled: int

    @property
    def holds(self) -> bool:
        return not (self.lost or self.phantom or self.doubled)


@dataclass
class Ledger:
    owed: dict[str, float] = field(default_factory=dict)  # webhook-id → when it was handed in

    def owe(self, ids: Iterable[str], at: float) -> None:
        self.owed.update(dict.fromkeys(ids, at))

    def verdict(self, arrived: Mapping[str, Arrived]) -> Verdict:
        return Verdict(
            owed=len(self.owed),
            posts=sum(one.posts for one in arrived.values()),
            lost=sum(1 for key in self.owed if key not in arrived or not arrived[key].accepted),
            phantom=sum(1 for key in arrived if key not in self.owed),
            doubled=sum(one.accepted > 1 for one in arrived.values()),
        )

    def milliseconds(self, ids: Iterable[str], arrived: Mapping[str, Arrived]) -> list[float]:
        """From handing it in to its first arrival, of each of these that arrived."""
        return [1000 * (arrived[key].first_at - self.owed[key]) for key in ids if key in arrived]


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The middle one and the one that 99 of 100 do not exceed."""
    ordered = sorted(values)
    if not ordered:
        return {"p50": 0.0, "p99": 0.0}
    last = len(ordered) - 1
    return {
        "p50": round(ordered[last // 2], 2),
        "p99": round(ordered[min(last, -(-99 * last // 100))], 2),
    }
