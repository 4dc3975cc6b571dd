"""Health, readiness, figures, and the API's own description.

Reads   what vitals.py knows of this process       Writes  nothing
"""

from __future__ import annotations

from functools import cache

import msgspec

from surehook import __version__
from surehook.actions.keys import Scope
from surehook.api.problems import FORBIDDEN, UNAVAILABLE, Problem
from surehook.api.routes import Answer, Call, Routes
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


docs_routes = Routes("docs")
health_routes = Routes("health")


@docs_routes("GET", "/", None, Start)
async def start(call: Call) -> Answer:
    """Where things are."""
    return Answer(200, Start())


@health_routes("GET", "/healthz", None, Health)
async def healthz(call: Call) -> Answer:
    """The process answers."""
    return Answer(200, Health("ok"))


@health_routes("GET", "/readyz", None, {200: Readiness, UNAVAILABLE.status: Readiness})
async def readyz(call: Call) -> Answer:
    """Database, schema and loops are well."""
    ready = await call.api.vitals.readiness()
    return Answer(200 if ready.ready else 503, ready)


@health_routes("GET", "/metrics", Scope.READ, "text/plain")
async def metrics(call: Call) -> Answer:
    """Figures for Prometheus (without a key if api.metrics_open)."""
    if call.key.tenant is not None:
        raise Problem(FORBIDDEN, "The figures are those of all tenants.")
    text = await call.api.vitals.figures()
    return Answer(200, text, METRICS_TYPE)


@cache
def _openapi() -> bytes:
    from surehook.api.openapi import document

    return msgspec.json.encode(document())


@cache
def _page() -> bytes:
    from surehook.api.docspage import page

    return page().encode()


@docs_routes("GET", "/openapi.json", None, "application/json")
async def openapi(call: Call) -> Answer:
    """This description."""
    return Answer(200, _openapi())


@docs_routes("GET", "/docs", None, "text/html")
async def docs(call: Call) -> Answer:
    """This description, to read."""
    return Answer(200, _page(), "text/html; charset=utf-8")
