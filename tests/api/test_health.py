"""Health, readiness, figures, and the pages that describe the API."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support import Configure, OpenStore
from support.api import ADMIN_KEY, FLAGS, NewKey, OpenApi
from support.http import Client
from support.pipeline import running
from support.rows import a_saga, an_event
from support.waiting import until
from surehook import __version__, observe
from surehook.model.records import Heartbeat, Myself
from surehook.model.states import SagaStatus
from surehook.observe.facts import Level
from surehook.observe.metrics import METRICS, Figures, Metrics
from surehook.process.serve import event_loop
from surehook.store import store_of
from surehook.store.logins import DatabaseAccess
from surehook.store.registry import RegistryStore


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """Every figure by its name and its labels' values."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found[sample.name, *sample.labels.values()] = sample.value
    return found


async def test_the_server_is_tested_on_the_loop_that_it_has_in_production() -> None:
    def loop_of_production() -> type:
        with event_loop() as runner:
            return type(runner.get_loop())

    assert type(asyncio.get_running_loop()) is await asyncio.to_thread(loop_of_production)


async def test_health_needs_no_key_and_no_database(client: Client) -> None:
    stranger = client.with_key(None)
    assert (await stranger.get("/healthz")).json() == {"status": "ok"}
    ready = await stranger.get("/readyz")
    assert (ready.status, ready.json()) == (
        200,
        {
            "ready": True,
            "checks": {"database": "ok", "api": "ok"},
            "warnings": [
                f"No {name} has been seen lately: events are stored and wait."
                for name in ("router", "orchestrator", "worker")
            ],
        },
    )


async def test_readiness_warns_of_what_runs_nowhere(
    open_api: OpenApi, open_store: OpenStore
) -> None:
    registry = store_of(RegistryStore, await open_store("registry"))
    elsewhere = Myself("0123456789abcdef", "elsewhere", 1, "1.2.3", None)
    await registry.enter(elsewhere, 0.0, [Heartbeat("worker", 0.0, None)])
    client = await open_api(None, "router")

    async def warned() -> Any:  # a database that takes its time is asked again
        ready = (await client.get("/readyz")).json()
        return ready["ready"] and ready["warnings"]

    [warning] = await until(warned)
    assert "orchestrator" in warning

    async def counted() -> Any:
        figures = samples((await client.get("/metrics")).body)
        return figures if ("surehook_components_running", "worker") in figures else None

    figures = await until(counted)
    assert figures["surehook_components_running", "worker"] == 1
    assert figures["surehook_components_running", "router"] == 1
    assert ("surehook_components_running", "orchestrator") not in figures


async def test_the_root_says_where_things_are(client: Client) -> None:
    stranger = client.with_key(None)
    reply = await stranger.get("/")
    assert reply.status == 200
    places = reply.json()
    assert (places.pop("name"), places.pop("version")) == ("surehook", __version__)
    assert places.pop("api") == "/v1"
    for path in places.values():
        shown = client if path == places["metrics"] else stranger
        assert (await shown.get(path)).status == 200, path


async def test_a_process_with_loops_is_ready_when_they_go_round(open_api: OpenApi) -> None:
    client = await open_api(None, "router", "cleaner")

    async def ready() -> Any:
        return (await client.get("/readyz")).json()

    checks = (await until(ready))["checks"]
    assert checks == dict.fromkeys(("database", "api", "router", "cleaner"), "ok")


async def test_a_schema_that_is_too_new_is_not_ready(client: Client, owner: Any) -> None:
    await owner.execute(
        "INSERT INTO schema_migrations (version, name, checksum, oldest_program) "
        "VALUES (9999, 'future', 'x', '99.0.0')"
    )
    reply = await until(lambda: _not_ready(client))
    assert reply["checks"]["database"] != "ok"


async def _not_ready(client: Client) -> Any:
    reply = await client.get("/readyz")
    return reply.json() if reply.status == 503 else None


async def test_figures_show_rates_backlog_age_and_connections(
    open_api: OpenApi, owner: Any
) -> None:
    client = await open_api()
    await an_event(owner)
    for status in (SagaStatus.PENDING, SagaStatus.PENDING, SagaStatus.IN_PROGRESS):
        await a_saga(owner, status=status)
    for number in range(3):
        await client.post("/v1/events", {"event_type": "a", "payload": number})

    async def counted() -> Any:  # a database that takes its time is asked again
        reply = await client.get("/metrics")
        return reply if b"surehook_backlog{" in reply.body else None

    reply = await until(counted)
    figures = samples(reply.body)
    assert figures["surehook_facts_total", "event.accepted"] == 3
    assert figures["surehook_backlog", "deliveries", "Pending"] == 2
    assert figures["surehook_backlog", "deliveries", "InProgress"] == 1
    assert figures["surehook_backlog", "attempts", "Pending"] == 1
    assert figures["surehook_backlog_oldest_seconds", "deliveries", "Pending"] > 0
    assert figures["surehook_backlog", "dead_letters", "kept"] == 0
    assert figures["surehook_component_step_age_seconds", "api"] >= 0
    assert figures["surehook_database_connections", "ingest", "idle"] >= 1
    assert figures["surehook_database_bytes",] > 0
    assert figures["surehook_loop_lag_seconds",] >= 0
    families = {family.name for family in text_string_to_metric_families(reply.body.decode())}
    assert families == {name.removesuffix("_total") for name in METRICS}


async def test_requests_are_counted_by_route_and_status_wherever_figures_are_served(
    access: DatabaseAccess, configure: Configure
) -> None:
    flags = {**FLAGS, "observe.listen": "127.0.0.1:0"}
    async with running(configure(flags), access, ("api",)) as process:
        assert process.api is not None and process.listener is not None
        client = Client(process.api.address, ADMIN_KEY)
        for path in ("/v1/events/1", "/v1/events/2", "/v1/nothing", "/v1/events?x=1"):
            await client.get(path)
        await client.post("/v1/events", {"event_type": "a", "payload": 1})
        await client.with_key(None).post("/v1/events", {"event_type": "a", "payload": 1})
        figures = samples((await Client(process.listener.address).get("/metrics")).body)
    counted = {key[1:]: n for key, n in figures.items() if key[0] == "surehook_api_requests_total"}
    assert counted == {
        ("GET /v1/events/{id}", "404"): 2,
        ("GET /v1/events", "422"): 1,
        ("other", "404"): 1,
        ("POST /v1/events", "202"): 1,
        ("POST /v1/events", "401"): 1,
    }
    assert figures["surehook_requests_bytes",] == 0


async def test_figures_need_a_key_unless_they_are_open(
    client: Client, open_api: OpenApi, new_key: NewKey
) -> None:
    assert (await client.with_key(None).get("/metrics")).status == 401
    assert (await client.with_key(await new_key("read")).get("/metrics")).status == 200
    opened = await open_api({"api.metrics_open": True})
    assert (await opened.with_key(None).get("/metrics")).status == 200


def test_an_attempt_is_counted_by_its_result_and_its_time() -> None:
    metrics = Metrics()
    common: dict[str, object] = {"milliseconds": 20.0, "event_age_seconds": 3.0}
    metrics("delivery.attempted", Level.INFO, {**common, "delivered": True, "error_code": None})
    metrics("delivery.attempted", Level.INFO, {**common, "delivered": False, "error_code": "GONE"})
    figures = samples(metrics.render(Figures()))
    assert figures["surehook_attempts_total", "delivered"] == 1
    assert figures["surehook_attempts_total", "GONE"] == 1
    assert figures["surehook_attempt_seconds_bucket", "0.025"] == 2
    assert figures["surehook_attempt_seconds_bucket", "0.01"] == 0
    assert figures["surehook_delivery_latency_seconds_count",] == 1
    assert figures["surehook_delivery_latency_seconds_sum",] == 3


def test_figures_hear_what_a_quiet_log_does_not() -> None:
    quiet: list[str] = []
    metrics = Metrics()
    observe.listen(lambda name, level, fields: quiet.append(name), Level.ERROR)
    observe.listen(metrics)
    try:
        observe.emit("event.accepted")
        assert (quiet, metrics.facts["event.accepted"]) == ([], 1)
    finally:
        observe.silence()


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
async def test_the_description_needs_nothing_from_elsewhere(client: Client, path: str) -> None:
    reply = await client.with_key(None).get(path)
    assert reply.status == 200
    text = reply.body.decode()
    assert "<script" not in text
    assert not re.findall(r"(?:src|href)=['\"]?https?:", text)
    assert "/v1/dead-letters/{id}/requeue" in text
