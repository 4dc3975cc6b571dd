"""What `surehook bench` can measure: one entry per case. Pure.

A case says how many subscriptions there are, what is sent, by which processes, on which database,
and which figures are taken. All else is as in production: HTTPS, signatures, durable commits, each
login's own rights, logs. What one run does with all of them is a Plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

REST = "router,orchestrator,cleaner,deadletters"
# Every endpoint of the default case may have this many attempts open: its subject is the machine.
WIDE = 1000


class Figure(StrEnum):
    LATENCY = "latency"  # from publishing to the endpoint, at a low rate and at half of the highest
    THROUGHPUT = "throughput"
    INGEST = "ingest"  # over HTTP, one event per request and in batches
    IDLE = "idle"


class On(StrEnum):
    EMBEDDED = "embedded PostgreSQL"
    POSTGRESQL = "given PostgreSQL"
    MARIADB = "MariaDB"


class Run(StrEnum):
    """Which processes there are, and so how events get in."""

    SPLIT = "the worker, and router to dead letters; events stored by the bench as the API does it"
    ONE = "serve --processes 1; events over HTTP"
    GROUP = "serve --processes N; events over HTTP"
    WHOLE = "serve, with as many processes as it takes by itself"
    API = "the API alone"

    @property
    def over_http(self) -> bool:
        return self in (Run.ONE, Run.GROUP)


BOTH = (Figure.LATENCY, Figure.THROUGHPUT)
FLOW = (Figure.THROUGHPUT,)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    what: str
    figures: tuple[Figure, ...] = FLOW
    subscriptions: int = 20
    fan_out: int = 1  # subscriptions that get each event
    cap: int | None = None  # attempts that one endpoint may have open; None: the default
    payload_bytes: int = 1024
    failures_percent: int = 0  # first attempts that are answered with 503
    old_rows: bool = False  # as many finished deliveries as the plan says are there before
    run: Run = Run.SPLIT
    on: On = On.EMBEDDED
    by_default: bool = True

    @property
    def event_types(self) -> int:
        return max(1, self.subscriptions // self.fan_out)


def _by_name(*cases: Case) -> dict[str, Case]:
    return {case.name: case for case in cases}


# The first ones say most: a run that is cut short (--within) has them.
CASES = _by_name(
    Case("default", "20 endpoints, 1 KB", BOTH, cap=WIDE),
    Case("one-endpoint", "one endpoint, default settings", BOTH, subscriptions=1),
    Case("ingest", "events over HTTP, nobody subscribed", (Figure.INGEST,), run=Run.API),
    Case("idle", "everything runs, nothing to do", (Figure.IDLE,), run=Run.WHOLE),
    Case("one-process", "over HTTP, `serve --processes 1`", BOTH, cap=WIDE, run=Run.ONE),
    Case("processes", "over HTTP, `serve --processes N`", BOTH, cap=WIDE, run=Run.GROUP),
    Case("fan-out-10", "each event to 10 endpoints", subscriptions=10, fan_out=10),
    Case("fan-out-100", "each event to 100 endpoints", subscriptions=100, fan_out=100),
    Case("payload-20k", "20 endpoints, 20 KB", cap=WIDE, payload_bytes=20 * 1024),
    Case("failures", "one in ten first attempts fails", cap=WIDE, failures_percent=10),
    Case("subscriptions-10000", "10,000 subscriptions, all in use", subscriptions=10_000),
    Case("mariadb", "default, on MariaDB", BOTH, cap=WIDE, on=On.MARIADB),
    Case("postgresql", "default, on a PostgreSQL that is named", BOTH, cap=WIDE, on=On.POSTGRESQL),
    Case(
        "old-rows",
        "default, beside finished deliveries",
        BOTH,
        cap=WIDE,
        old_rows=True,
        by_default=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    deliveries: int = 20_000  # of each case
    seconds: float = 5.0  # of each measurement that lasts for a time
    low_per_second: int = 20
    old_rows: int = 1_000_000
    concurrency: int = 128
    processes: int = 2  # of the case that shares the work among several
    log_level: str = "info"
    within_seconds: float = 900.0  # a case that would begin later is left out
    postgresql_url: str | None = None  # an empty database, as its owner
    mariadb_url: str | None = None  # the same; not given: a private server, if this machine has one
