"""Health, readiness, figures, and the API's own description.

Component  observer
Reads   the databases of this process, its loops, the backlog       Writes  nothing
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from surehook.api.problems import FORBIDDEN, UNAVAILABLE, Problem
from surehook.api.routes import Answer, Call, Route
from surehook.api.shapes import Health, Readiness, Start
from surehook.errors import SurehookError
from surehook.observe.metrics import Metrics
from surehook.pipeline.keys import Scope
from surehook.pipeline.service import Service
from surehook.store.database import Database
from surehook.store.observer import ObserverStore

BACKLOG_FRESH_SECONDS = 5.0
READY_FRESH_SECONDS = 0.5
# Less than a route has in all: /readyz and /metrics answer in their own words.
DATABASE_SECONDS = 1.0


class Vitals:
    """How this process is."""

    def __init__(
        self,
        observer: ObserverStore,
        observing: Database,
        databases: Mapping[str, Database],
        services: Sequence[Service],
        metrics: Metrics,
    ) -> None:
        self._observer = observer
        self._observing = observing
        self._databases = databases
        self._services = services
        self._metrics = metrics
        self._backlog: list[tuple[str, str, int, float]] = []
        self._backlog_due = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[list[tuple[str, str, int, float]]] | None = None
        self._ready: tuple[float, Readiness] = (0.0, Readiness(False, {}))
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
        ready = Readiness(all(value == "ok" for value in checks.values()), checks)
        self._ready = (time.monotonic(), ready)
        return ready

    async def database(self) -> str:
        """ "ok", or what is wrong with it; in DATABASE_SECONDS at most."""
        # One question at a time: a database that hangs must not collect them.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._observing.check_schema())
            self._asking.add_done_callback(_heard)
        await asyncio.wait([self._asking], timeout=DATABASE_SECONDS)
        if not self._asking.done():
            return "The database does not answer."
        error = self._asking.exception()
        if error is None:
            return "ok"
        return str(error) if isinstance(error, SurehookError) else "The schema cannot be read."

    async def figures(self, held_bytes: int) -> bytes:
        """What /metrics shows; the backlog is left out while the database is away."""
        if time.monotonic() >= self._backlog_due:
            self._backlog_due = time.monotonic() + BACKLOG_FRESH_SECONDS
            self._backlog = await self._count_backlog()
        connections = {name: base.connections() for name, base in self._databases.items()}
        return self._metrics.render(self._backlog, connections, held_bytes)

    async def _count_backlog(self) -> list[tuple[str, str, int, float]]:
        if self._counting is None or self._counting.done():
            self._counting = asyncio.ensure_future(self._observer.backlog())
            self._counting.add_done_callback(_heard)
        await asyncio.wait([self._counting], timeout=DATABASE_SECONDS)
        if not self._counting.done() or self._counting.exception() is not None:
            return []
        return self._counting.result()

    async def close(self) -> None:
        tasks = [task for task in (self._asking, self._counting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _heard(task: asyncio.Task[Any]) -> None:
    """Whoever still waits has the error; nobody else needs it."""
    if not task.cancelled():
        task.exception()


async def start(call: Call) -> Answer:
    return Answer(200, Start())


async def healthz(call: Call) -> Answer:
    return Answer(200, Health("ok"))


async def readyz(call: Call) -> Answer:
    ready = await call.api.vitals.readiness()
    return Answer(200 if ready.ready else 503, ready)


async def metrics(call: Call) -> Answer:
    if call.key.tenant is not None:
        raise Problem(FORBIDDEN, "The figures are those of all tenants.")
    text = await call.api.vitals.figures(call.api.room.held)
    return Answer(200, text, "text/plain; version=0.0.4; charset=utf-8")


@cache
def _openapi() -> bytes:
    from surehook.api.openapi import document

    return msgspec.json.encode(document())


@cache
def _page() -> bytes:
    from surehook.api.docspage import page

    return page().encode()


async def openapi(call: Call) -> Answer:
    return Answer(200, _openapi())


async def docs(call: Call) -> Answer:
    return Answer(200, _page(), "text/html; charset=utf-8")


ROUTES = (
    Route("GET", "/", start, None, "Where things are", {200: Start}, "docs"),
    Route("GET", "/healthz", healthz, None, "The process answers", {200: Health}, "health"),
    Route(
        "GET",
        "/readyz",
        readyz,
        None,
        "Database, schema and loops are well",
        {200: Readiness, UNAVAILABLE.status: Readiness},
        "health",
    ),
    Route(
        "GET",
        "/metrics",
        metrics,
        Scope.READ,
        "Figures for Prometheus (without a key if api.metrics_open)",
        {200: "text/plain"},
        "health",
    ),
    Route(
        "GET", "/openapi.json", openapi, None, "This description", {200: "application/json"}, "docs"
    ),
    Route("GET", "/docs", docs, None, "This description, to read", {200: "text/html"}, "docs"),
)
