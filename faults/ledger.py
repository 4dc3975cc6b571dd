"""Ledger: what was acknowledged, what arrived, and what follows from the two. Pure.

It knows nothing of the database. An event is owed from the moment when a publisher was told that
it is stored: a 2xx of the API, or the commit of the application's own transaction. One that nobody
was told about, but that may have been stored (no answer, 503), may arrive and need not. One that
was rolled back, or that nobody ever offered, must not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

Pair = tuple[str, str]  # tag of the event, name of the subscription


@dataclass(frozen=True, slots=True)
class Arrival:
    """One POST at the receiver."""

    tag: str
    subscription: str
    webhook_id: str
    at: float
    answer: int = 200  # the status that the receiver chose; 0 = it did not answer
    webhook_timestamp: int = 0

    @property
    def accepted(self) -> bool:
        return 200 <= self.answer < 300


@dataclass(frozen=True)
class Verdict:
    acknowledged: int
    arrivals: int
    lost: tuple[Pair, ...]
    phantom: tuple[Pair, ...]
    second_ids: tuple[Pair, ...]
    extra_sends: int
    latest_seconds: float  # the longest from an acknowledgement to the first arrival

    @property
    def extra_percent(self) -> float:
        return 100 * self.extra_sends / max(1, self.arrivals - self.extra_sends)


@dataclass
class Ledger:
    """Times are those of one monotonic clock."""

    owed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of every event that was offered: the subscriptions that get it."""
    acknowledged: dict[str, float] = field(default_factory=dict)
    withdrawn: set[str] = field(default_factory=set)
    arrivals: list[Arrival] = field(default_factory=list)
    _missing: set[Pair] = field(default_factory=set)
    _accepted: set[Pair] = field(default_factory=set)

    def offer(self, tag: str, subscriptions: Iterable[str]) -> None:
        """From now on it may be stored."""
        assert tag not in self.owed, f"{tag} was offered already"
        self.owed[tag] = tuple(subscriptions)

    def acknowledge(self, tag: str, at: float) -> None:
        """The publisher was told that it is stored."""
        if tag in self.acknowledged:
            return
        self.acknowledged[tag] = at
        self._missing |= {(tag, name) for name in self.owed[tag]} - self._accepted

    def withdraw(self, tag: str) -> None:
        """It is certain that it was not stored."""
        assert tag in self.owed and tag not in self.acknowledged
        self.withdrawn.add(tag)

    def arrive(self, arrival: Arrival) -> None:
        self.arrivals.append(arrival)
        if arrival.accepted:
            pair = (arrival.tag, arrival.subscription)
            self._accepted.add(pair)
            self._missing.discard(pair)

    @property
    def missing(self) -> frozenset[Pair]:
        """What is owed and has not arrived yet."""
        return frozenset(self._missing)

    @property
    def is_settled(self) -> bool:
        return not self._missing

    def first_arrivals(self) -> dict[Pair, Arrival]:
        """The first that the receiver accepted, of each pair."""
        first: dict[Pair, Arrival] = {}
        for arrival in self.arrivals:
            if arrival.accepted:
                first.setdefault((arrival.tag, arrival.subscription), arrival)
        return first

    def delays(self) -> dict[Pair, float]:
        """Seconds from the acknowledgement to the first arrival, of what was acknowledged."""
        return {
            pair: arrival.at - self.acknowledged[pair[0]]
            for pair, arrival in self.first_arrivals().items()
            if pair[0] in self.acknowledged
        }

    def extra_sends(self) -> Counter[Pair]:
        """How often each pair was sent again after the receiver had accepted it."""
        extra: Counter[Pair] = Counter()
        accepted: set[Pair] = set()
        for arrival in self.arrivals:
            pair = (arrival.tag, arrival.subscription)
            if pair in accepted:
                extra[pair] += 1
            elif arrival.accepted:
                accepted.add(pair)
        return extra

    def verdict(self) -> Verdict:
        ids: dict[Pair, set[str]] = {}
        for arrival in self.arrivals:
            ids.setdefault((arrival.tag, arrival.subscription), set()).add(arrival.webhook_id)
        return Verdict(
            acknowledged=len(self.acknowledged),
            arrivals=len(self.arrivals),
            lost=tuple(sorted(self._missing)),
            phantom=tuple(sorted(pair for pair in ids if not self._may_arrive(*pair))),
            second_ids=tuple(sorted(pair for pair, seen in ids.items() if len(seen) > 1)),
            extra_sends=sum(self.extra_sends().values()),
            latest_seconds=max(self.delays().values(), default=0.0),
        )

    def _may_arrive(self, tag: str, subscription: str) -> bool:
        return tag not in self.withdrawn and subscription in self.owed.get(tag, ())
