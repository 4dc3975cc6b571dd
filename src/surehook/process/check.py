"""The invariants, looked for on a live database. Reads as the observer; writes nothing.

Each is a statement in observer.sql that returns what breaks it. `since` bounds the work on a large
database; `margin` is how long two tables may be apart, because no transaction writes two of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from surehook.store.observer import COUNT_MAX, ObserverStore

# invariant → what its two ids are, and what must hold
INVARIANTS: dict[str, tuple[str, str]] = {
    "duplicate_deliveries": (
        "event, subscription",
        "one delivery per event, subscription and requeue",
    ),
    "missing_deliveries": (
        "event, subscription",
        "every event has a delivery for each subscription that was eligible when it was created "
        "and is now",
    ),
    "unowed_deliveries": (
        "delivery, event",
        "every routed delivery is of an event that was created while its subscription was eligible",
    ),
    "stray_deliveries": (
        "delivery, event",
        "every delivery belongs to an event and a subscription of its tenant",
    ),
    "two_active_attempts": ("delivery, attempt", "at most one active attempt per delivery"),
    "attempt_counts": ("delivery, event", "attempt_count equals the finished attempts"),
    "completed_without_delivery": (
        "delivery, event",
        "Completed only with a Completed last attempt",
    ),
    "active_attempt_of_finished_delivery": (
        "delivery, attempt",
        "no active attempt on a finished delivery",
    ),
    "dead_letter_missing": ("delivery, event", "every DeadLettered delivery has its dead letter"),
    "dead_letter_without_dead_delivery": (
        "dead letter, delivery",
        "only DeadLettered deliveries have dead letters",
    ),
    "requeued_twice": ("dead letter, delivery", "no dead letter is requeued twice"),
    "in_progress_without_attempt": ("delivery, event", "nothing is InProgress without its attempt"),
}

SHOWN_MAX = 20
MARGIN_SECONDS = 60.0
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One invariant and what breaks it."""

    invariant: str
    rule: str
    broken: tuple[str, ...]
    seconds: float
    note: str = ""  # what was not judged, and why


async def check(
    store: ObserverStore,
    *,
    since: datetime = BEGINNING,
    margin: float = MARGIN_SECONDS,
    report: Callable[[Verdict], None] = lambda _: None,
) -> list[Verdict]:
    """The verdict on every invariant, in order."""
    verdicts = []
    for name, (ids, rule) in INVARIANTS.items():
        first, second = ids.split(", ")
        began = time.monotonic()
        rows = await store.broken(name, since, margin, SHOWN_MAX)
        broken = tuple(f"{first} {a}, {second} {b}: {facts}" for a, b, facts in rows)
        note = await _owed_nothing(store) if name == "missing_deliveries" else ""
        verdict = Verdict(name, rule, broken, time.monotonic() - began, note)
        report(verdict)
        verdicts.append(verdict)
    return verdicts


async def _owed_nothing(store: ObserverStore) -> str:
    """How many subscriptions are owed nothing because they are disabled or unverified."""
    subscriptions, held = await store.owed_nothing(COUNT_MAX)
    if not subscriptions:
        return ""
    words = (
        "1 subscription is disabled or unverified now and owed nothing"
        if subscriptions == 1
        else f"{subscriptions:,} subscriptions are disabled or unverified now and owed nothing"
    )
    if held:
        more = " or more" if held == COUNT_MAX else ""
        words += f"; {held:,}{more} deliveries are held until they are enabled again"
    return words
