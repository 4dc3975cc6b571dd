"""The invariants, looked for on a live database. Reads as the observer; writes nothing.

Each is a statement in observer.sql that returns what breaks it. `since` bounds the work on a large
database; `margin` is how long two tables may be apart, because no transaction writes two of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from surehook.store.observer import ObserverStore

# invariant → what must hold, and what its two ids are
INVARIANTS: dict[str, tuple[str, str, str]] = {
    "duplicate_sagas": (
        "one saga per event, subscription and requeue",
        "event",
        "subscription",
    ),
    "missing_sagas": ("every event has its eligible sagas", "event", "subscription"),
    "stray_sagas": (
        "every saga belongs to an event and a subscription of its tenant",
        "saga",
        "event",
    ),
    "two_active_jobs": ("at most one active job per saga", "saga", "job"),
    "attempt_counts": ("attempt_count equals the finished jobs", "saga", "event"),
    "completed_without_delivery": (
        "Completed only with a Completed last job",
        "saga",
        "event",
    ),
    "active_job_of_finished_saga": ("no active job on a finished saga", "saga", "job"),
    "dead_letter_missing": ("every DeadLettered saga has its dead letter", "saga", "event"),
    "dead_letter_of_the_living": (
        "only DeadLettered sagas have dead letters",
        "dead letter",
        "saga",
    ),
    "requeued_twice": ("no dead letter is requeued twice", "dead letter", "saga"),
    "in_progress_without_job": ("nothing is InProgress without its job", "saga", "event"),
}

SHOWN_MAX = 20
MARGIN_SECONDS = 60.0
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Finding:
    """One invariant and what breaks it."""

    invariant: str
    rule: str
    broken: tuple[str, ...]
    seconds: float


async def check(
    store: ObserverStore,
    *,
    since: datetime = BEGINNING,
    margin: float = MARGIN_SECONDS,
    report: Callable[[Finding], None] = lambda _: None,
) -> list[Finding]:
    """Every invariant's finding, in order."""
    findings = []
    for name, (rule, first, second) in INVARIANTS.items():
        began = time.monotonic()
        rows = await store.broken(name, since, margin, SHOWN_MAX)
        broken = tuple(f"{first} {a}, {second} {b}: {facts}" for a, b, facts in rows)
        finding = Finding(name, rule, broken, time.monotonic() - began)
        report(finding)
        findings.append(finding)
    return findings
