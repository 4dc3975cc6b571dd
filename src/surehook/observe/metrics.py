"""Figures: facts become counters and histograms in Prometheus' form.

Reads   facts, and what it is given about backlog and connections       Writes  nothing

Counting a fact is one addition; Prometheus' own objects are made when someone asks. Labels come
from closed lists (facts, error codes, states, components), so that their number is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from surehook import observe
from surehook.observe import Level

LATENCY_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0),
)

# name: (kind, labels, meaning); docs/reference/metrics.md is written from this.
METRICS: dict[str, tuple[str, tuple[str, ...], str]] = {
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
    "surehook_attempt_seconds": (
        "histogram",
        (),
        "From the lease of a job to the end of its attempt.",
    ),
    "surehook_delivery_latency_seconds": (
        "histogram",
        (),
        "From an event's being stored to its delivery by this process' worker, retries included.",
    ),
    "surehook_backlog": (
        "gauge",
        ("stage", "state"),
        "What waits, in the whole system; counted up to 50,000 per state.",
    ),
    "surehook_backlog_oldest_seconds": (
        "gauge",
        ("stage", "state"),
        "For how long the oldest of them has been due.",
    ),
    "surehook_database_connections": (
        "gauge",
        ("component", "state"),
        "Connections of this process: `used`, `idle`.",
    ),
    "surehook_requests_bytes": (
        "gauge",
        (),
        "Bytes of request bodies that this process holds.",
    ),
}

Backlog = Iterable[tuple[str, str, int, float]]


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

    def render(
        self, backlog: Backlog, connections: dict[str, tuple[int, int]], held_bytes: int
    ) -> bytes:
        """Prometheus' text form."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(self._families(backlog, connections, held_bytes)))
        return generate_latest(registry)

    def _families(
        self, backlog: Backlog, connections: dict[str, tuple[int, int]], held_bytes: int
    ) -> list[Metric]:
        facts = _counter("surehook_facts_total")
        for name in observe.FACTS:
            facts.add_metric([name], self.facts[name])
        attempts = _counter("surehook_attempts_total")
        for result, number in sorted(self.attempts.items()):
            attempts.add_metric([result], number)
        waiting = _gauge("surehook_backlog")
        oldest = _gauge("surehook_backlog_oldest_seconds")
        for stage, state, number, seconds in backlog:
            waiting.add_metric([stage, state], number)
            oldest.add_metric([stage, state], seconds)
        used = _gauge("surehook_database_connections")
        for component, (busy, idle) in sorted(connections.items()):
            used.add_metric([component, "used"], busy)
            used.add_metric([component, "idle"], idle)
        held = _gauge("surehook_requests_bytes")
        held.add_metric([], held_bytes)
        return [
            *(facts, attempts, waiting, oldest, used, held),
            _histogram("surehook_attempt_seconds", self.attempt_seconds),
            _histogram("surehook_delivery_latency_seconds", self.latency_seconds),
        ]


class _Collected:
    """What the registry asks for."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _counter(name: str) -> CounterMetricFamily:
    _, labels, meaning = METRICS[name]
    return CounterMetricFamily(name, meaning, labels=labels)


def _gauge(name: str) -> GaugeMetricFamily:
    _, labels, meaning = METRICS[name]
    return GaugeMetricFamily(name, meaning, labels=labels)


def _histogram(name: str, counted: Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, METRICS[name][2])
    family.add_metric([], counted.buckets(), counted.sum)
    return family


def metrics_page() -> str:
    """docs/reference/metrics.md, but for its first line."""
    rows = "\n".join(
        f"| `{name}` | {kind} | {', '.join(labels) or '—'} | {meaning} |"
        for name, (kind, labels, meaning) in METRICS.items()
    )
    facts = "\n".join(
        f"| `{name}` | {level.name.lower()} |" for name, level in observe.FACTS.items()
    )
    return (
        "# Metrics\n\n"
        "`GET /metrics` of a process that runs the component `api`, in Prometheus' text form, for "
        "a key with the scope read, or for everyone with `api.metrics_open`. Counters are of that "
        "process; the backlog is that of the whole system, read at most every 5 seconds.\n\n"
        "| metric | kind | labels | meaning |\n|---|---|---|---|\n"
        f"{rows}\n\n"
        "## Facts\n\n"
        "The values of the label `fact`, and the level at which the log writes them.\n\n"
        f"| fact | level |\n|---|---|\n{facts}\n"
    )
