"""Figures: facts become counters and histograms in Prometheus' form.

Reads   facts, what components know of themselves, the system's figures       Writes  nothing

Counting a fact is one addition; Prometheus' own objects are made when someone asks. Labels come
from closed lists (facts, error codes, states, components), which bounds their number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from surehook import __version__
from surehook.observe.facts import FACTS, Level

LATENCY_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0),
)

# name: (kind, labels, meaning); docs/reference/metrics.md is written from this.
METRICS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "surehook_info": (
        "gauge",
        ("installation", "version"),
        "Always 1: which installation this is, a part of every webhook-id, and the program.",
    ),
    "surehook_facts_total": (
        "counter",
        ("fact",),
        "What happened in this process, by the name that the log uses: `event.accepted`, "
        "`saga.created`, `job.created`, `delivery.attempted`, `saga.completed`, … Its rate is "
        "the rate of that stage.",
    ),
    "surehook_attempts_total": (
        "counter",
        ("result",),
        "Attempts of this process' worker: `delivered`, or the error code.",
    ),
    "surehook_attempt_seconds": ("histogram", (), "From the lease of an attempt to its end."),
    "surehook_delivery_latency_seconds": (
        "histogram",
        (),
        "From an event's being stored to its delivery by this process' worker, retries included.",
    ),
    "surehook_backlog": (
        "gauge",
        ("stage", "state"),
        "What waits, in the whole system: `events`, `deliveries`, `attempts`, `dead_letters`; "
        "counted up to 50,000 per state. Of dead letters `open` are those that were not requeued, "
        "among the newest 10,000.",
    ),
    "surehook_backlog_oldest_seconds": (
        "gauge",
        ("stage", "state"),
        "For how long the oldest of them has been due; of `events` it is the router's lag.",
    ),
    "surehook_database_connections": (
        "gauge",
        ("login", "state"),
        "Connections of this process to the database: `used`, `idle`.",
    ),
    "surehook_database_bytes": ("gauge", (), "How large the database is, indexes included."),
    "surehook_api_requests_total": (
        "counter",
        ("route", "status"),
        "Requests that the API of this process answered; `other` is a path that does not exist.",
    ),
    "surehook_requests_bytes": ("gauge", (), "Bytes of request bodies that this process holds."),
    "surehook_worker_requests": (
        "gauge",
        ("state",),
        "Requests of this process' worker: `under_way`, and `most` that it has under way at once.",
    ),
    "surehook_delivery_connections_total": (
        "counter",
        ("how",),
        "With which connection this process' worker sent: `opened` for it, or `reused`.",
    ),
    "surehook_loop_lag_seconds": (
        "gauge",
        (),
        "By how much the event loop of this process was late at worst in the last half minute: "
        "with much more than 0.1 it has too little CPU.",
    ),
    "surehook_component_step_age_seconds": (
        "gauge",
        ("component",),
        "Seconds since a component of this process last began a step; one that grows is stuck.",
    ),
    "surehook_components_running": (
        "gauge",
        ("component",),
        "How many processes run this component, in the whole system.",
    ),
    "surehook_system_age_seconds": (
        "gauge",
        (),
        "How long ago the figures of the whole system were counted.",
    ),
    "surehook_process_info": (
        "gauge",
        ("version",),
        "Always 1; the label is this process' version.",
    ),
}


_KINDS: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
Sample = tuple[str, list[str], float]  # metric, values of its labels, value


@dataclass(frozen=True, slots=True)
class Figures:
    """What is not counted by listening but looked up when a scrape asks."""

    backlog: Iterable[tuple[str, str, int, float]] = ()
    database_bytes: int | None = None
    connections: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    own: Iterable[Sample] = ()
    loop_lag: float = 0.0
    step_ages: Mapping[str, float] = field(default_factory=dict)
    running: Mapping[str, int] = field(default_factory=dict)
    system_age: float | None = None


class Histogram:
    """Counts per bucket, and the sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_SECONDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_SECONDS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        total = 0
        listed = []
        for limit, number in zip([*map(str, LATENCY_SECONDS), "+Inf"], self.counts, strict=True):
            total += number
            listed.append((limit, float(total)))
        return listed


class Metrics:
    """A listener that counts."""

    def __init__(self) -> None:
        self.installation = ""  # known once a database is open
        self.facts: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        self.attempt_seconds = Histogram()
        self.latency_seconds = Histogram()

    def __call__(self, name: str, level: Level, fields: dict[str, object]) -> None:
        self.facts[name] += 1
        if name == "delivery.attempted":
            self._attempted(fields)

    def _attempted(self, fields: dict[str, object]) -> None:
        self.attempts[str(fields.get("error_code") or "delivered")] += 1
        milliseconds = fields.get("milliseconds")
        if isinstance(milliseconds, float):
            self.attempt_seconds.observe(milliseconds / 1000)
        age = fields.get("event_age_seconds")
        if isinstance(age, float) and fields.get("delivered"):
            self.latency_seconds.observe(max(0.0, age))

    def render(self, figures: Figures) -> bytes:
        """Prometheus' text form."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(self._families(figures)))
        return generate_latest(registry)

    def _families(self, figures: Figures) -> list[Metric]:
        made = {
            name: _KINDS[kind](name, meaning, labels=labels)
            for name, (kind, labels, meaning) in METRICS.items()
        }
        for name, labels, value in (*self._counted(), *_looked_up(figures)):
            made[name].add_metric(labels, value)
        for name, histogram in (
            ("surehook_attempt_seconds", self.attempt_seconds),
            ("surehook_delivery_latency_seconds", self.latency_seconds),
        ):
            made[name].add_metric([], histogram.buckets(), histogram.sum)
        return list(made.values())

    def _counted(self) -> Iterator[Sample]:
        yield "surehook_info", [self.installation, __version__], 1
        yield "surehook_process_info", [__version__], 1
        for name in FACTS:
            yield "surehook_facts_total", [name], self.facts[name]
        for result, number in sorted(self.attempts.items()):
            yield "surehook_attempts_total", [result], number


def _looked_up(figures: Figures) -> Iterator[Sample]:
    for stage, state, number, seconds in figures.backlog:
        yield "surehook_backlog", [stage, state], number
        yield "surehook_backlog_oldest_seconds", [stage, state], seconds
    for login, (busy, idle) in sorted(figures.connections.items()):
        yield "surehook_database_connections", [login, "used"], busy
        yield "surehook_database_connections", [login, "idle"], idle
    yield "surehook_loop_lag_seconds", [], figures.loop_lag
    yield from figures.own
    for component, age in sorted(figures.step_ages.items()):
        yield "surehook_component_step_age_seconds", [component], age
    for component, number in sorted(figures.running.items()):
        yield "surehook_components_running", [component], number
    if figures.system_age is not None:
        yield "surehook_system_age_seconds", [], max(0.0, figures.system_age)
    if figures.database_bytes is not None:
        yield "surehook_database_bytes", [], figures.database_bytes


class _Collected:
    """What the registry asks for."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
