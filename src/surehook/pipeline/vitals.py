"""How this process is: ready or not and why, its figures, and who else runs.

Component  observer, in a process that serves the API
Reads   the databases of this process, its loops; as the observer also the figures of the whole
        system and processes
Writes  nothing

The figures of the whole system are counted by one process per interval (shared_figures.py) and
shown where the API runs: a worker's own figures cost the database nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from surehook.errors import SurehookError
from surehook.model.records import KeptFigures, RunningComponent
from surehook.observe.listener import Page, Pages
from surehook.observe.loop_lag import LoopLag
from surehook.observe.metrics import Figures, Metrics
from surehook.pipeline.registry import alive
from surehook.pipeline.service import Service, heard
from surehook.pipeline.shared_figures import SharedFigures
from surehook.store.database import Database
from surehook.store.observer import ObserverStore

PROCESSES_FRESH_SECONDS = 5.0
KEPT_FRESH_SECONDS = 1.0
READY_FRESH_SECONDS = 0.5
# Of what a request has in all: /readyz and /metrics answer in their own words.
DATABASE_SHARE = 2 / 3
# Without these no event is delivered, although the API takes them.
NEEDED = ("router", "orchestrator", "worker")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Answer = TypeVar("Answer")


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"]


class Readiness(msgspec.Struct, frozen=True):
    """Ready: the database answers, its schema fits, and every loop of this process goes round."""

    ready: bool
    checks: dict[str, str]
    warnings: list[str]
    """What keeps events from being delivered although this process is well."""


class Vitals:
    def __init__(
        self,
        observing: Database,
        databases: Mapping[str, Database],
        services: Sequence[Service],
        metrics: Metrics,
        observer: ObserverStore | None,
        system: SharedFigures | None,
        answer_seconds: float,
    ) -> None:
        """`observing` is whose answer counts as the database's; `observer` sees all tables."""
        seconds = answer_seconds * DATABASE_SHARE
        self._databases = databases
        self._services = services
        self._metrics = metrics
        self.loop_lag = LoopLag()
        self._schema = _Question(observing.check_schema, 0.0, seconds)
        self._system = system
        self._kept: _Question[KeptFigures | None] | None = None
        if system is not None:
            self._kept = _Question(system.current, KEPT_FRESH_SECONDS, seconds)
        self._processes: _Question[list[RunningComponent]] | None = None
        if observer is not None:
            self._processes = _Question(observer.processes, PROCESSES_FRESH_SECONDS, seconds)
        self._ready: tuple[float, Readiness] = (0.0, Readiness(False, {}, []))
        self._draining = False

    def drain(self) -> None:
        """From now on not ready: let a load balancer look elsewhere."""
        self._draining = True
        self._ready = (0.0, self._ready[1])

    async def readiness(self) -> Readiness:
        asked_at, known = self._ready
        if time.monotonic() - asked_at < READY_FRESH_SECONDS:
            return known
        checks = {"database": await self.database()}
        for service in self._services:
            checks[service.component.name] = service.trouble() or "ok"
        if self._draining:
            checks["process"] = "It is ending."
        well = all(value == "ok" for value in checks.values())
        ready = Readiness(well, checks, await self._warnings() if well else [])
        self._ready = (time.monotonic(), ready)
        return ready

    async def _warnings(self) -> list[str]:
        known = await self._processes.answer() if self._processes else None
        if known is None:
            return []
        running = self._with_my_own(Counter(one.component for one in alive(known)))
        return [
            f"No {name} has been seen lately: events are stored and wait."
            for name in NEEDED
            if not running[name]
        ]

    def _with_my_own(self, running: Counter[str]) -> Counter[str]:
        """How many of each component run; those of this process may not be registered yet."""
        for service in self._services:
            running[service.component.name] = max(1, running[service.component.name])
        return running

    async def database(self) -> str:
        """ "ok", or what is wrong with it; in two thirds of api.answer_timeout at most."""
        error = await self._schema.failure()
        if error is None:
            return "ok"
        if isinstance(error, TimeoutError):
            return "The database does not answer."
        return str(error) if isinstance(error, SurehookError) else "The schema cannot be read."

    async def figures(self) -> bytes:
        """What /metrics shows; what the database would say is left out while it is away."""
        kept = await self._kept.answer() if self._kept else None
        system = kept.figures if kept else None
        return self._metrics.render(
            Figures(
                backlog=system.backlog if system else (),
                database_bytes=system.database_bytes if system else None,
                connections={name: base.connections() for name, base in self._databases.items()},
                own=[one for service in self._services for one in service.component.figures()],
                loop_lag=self.loop_lag.worst(),
                step_ages={one.component.name: one.step_age() for one in self._services},
                running=self._with_my_own(Counter(system.running)) if system else {},
                system_age=kept.age_seconds if kept else None,
            )
        )

    def pages(self) -> Pages:
        """What a process without an API serves."""

        async def healthz() -> Page:
            return Page(200, msgspec.json.encode(Health("ok")))

        async def readyz() -> Page:
            ready = await self.readiness()
            return Page(200 if ready.ready else 503, msgspec.json.encode(ready))

        async def metrics() -> Page:
            return Page(200, await self.figures(), METRICS_TYPE)

        return {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}

    async def close(self) -> None:
        self.loop_lag.stop()
        for question in (self._schema, self._kept, self._processes):
            if question is not None:
                await question.close()
        if self._system is not None:
            await self._system.close()


class _Question(Generic[Answer]):
    """Asked of the database at most every so often, and never twice at a time: one that hangs must
    not collect questions."""

    def __init__(
        self, ask: Callable[[], Awaitable[Answer]], fresh_seconds: float, seconds: float
    ) -> None:
        self._ask = ask
        self._seconds = seconds
        self._fresh_seconds = fresh_seconds
        self._due = 0.0
        self._asking: asyncio.Future[Answer] | None = None

    async def answer(self) -> Answer | None:
        """None if there is none in time."""
        if await self.failure() is not None or self._asking is None:
            return None
        return self._asking.result()

    async def failure(self) -> BaseException | None:
        """Why there is no answer; None = there is."""
        if self._asking is None or (self._asking.done() and time.monotonic() >= self._due):
            self._due = time.monotonic() + self._fresh_seconds
            self._asking = asyncio.ensure_future(self._ask())
            self._asking.add_done_callback(heard)
        await asyncio.wait([self._asking], timeout=self._seconds)
        return self._asking.exception() if self._asking.done() else TimeoutError()

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
