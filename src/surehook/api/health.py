"""Health, readiness, figures, and the API's own description.

Reads   what vitals.py knows of this process       Writes  nothing
"""

from __future__ import annotations

from functools import cache

import msgspec

from surehook import __version__
from surehook.actions.keys import Scope
from surehook.api.problems import FORBIDDEN, UNAVAILABLE, Problem
from surehook.api.routes import Answer, Call, Route
from surehook.pipeline.vitals import METRICS_TYPE, Health, Readiness


class Start(msgspec.Struct, frozen=True):
    """Where things are."""

    name: str = "surehook"
    version: str = __version__
    docs: str = "/docs"
    openapi: str = "/openapi.json"
    api: str = "/v1"
    health: str = "/healthz"
    readiness: str = "/readyz"
    metrics: str = "/metrics"


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
    return Answer(200, text, METRICS_TYPE)


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
