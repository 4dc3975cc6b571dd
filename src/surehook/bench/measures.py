"""The figures of one case: how each is taken.

Reads   the case's system       Writes  events, through ingest
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from surehook.bench import machine
from surehook.bench.cases import Case, Figure, Plan
from surehook.bench.ledger import percentiles
from surehook.bench.publishing import BATCH, Publisher, publish_over_http, publishing
from surehook.bench.servers import server_for
from surehook.bench.system import System
from surehook.errors import Declined

Now = Callable[[str], None]
Figures = dict[str, object]

WARM_UP_EVENTS = 400
# After its start a system looks for what it may have missed: not what idle means.
CALM_SECONDS = 5.0


async def measure(case: Case, plan: Plan, directory: Path, now: Now) -> Figures:
    """Everything about one case; `now` gets what is being done."""
    now("starting a database")
    with server_for(case, plan, directory) as server:
        before = machine.gauge(directory)
        system = System(case, plan, server, directory)
        async with system:
            figures: Figures = {"what": case.what}
            if Figure.THROUGHPUT in case.figures:
                figures |= await _deliveries(system, now)
            if Figure.INGEST in case.figures:
                figures |= await _ingest(system, now)
            if Figure.IDLE in case.figures:
                figures |= await _idle(system, now)
            figures["memory_megabytes"] = system.memory()
        gauge = before.between(machine.gauge(directory))
    figures["machine"] = {**asdict(gauge), **_popped(figures, "receiver_us_per_delivery")}
    figures["normalised"] = normalised(figures, gauge)
    return figures


def _popped(figures: Figures, name: str) -> Figures:
    return {name: figures.pop(name)} if name in figures else {}


def normalised(figures: Figures, gauge: machine.Gauge) -> dict[str, float]:
    """Figures in units of this machine at this time: CPU by the piece of work, rates likewise, the
    time of a lone delivery by that of a synced write and a piece of work."""
    found: dict[str, float] = {}
    cpu, rate = figures.get("cpu_us_per_delivery"), figures.get("deliveries_per_s")
    if isinstance(cpu, dict):
        found["cpu_per_delivery"] = round(cpu["all"] / gauge.work_us, 3)
    if isinstance(rate, int):
        found["deliveries"] = round(rate * gauge.work_us / 1e6, 3)
    low = figures.get("latency_low_load_ms")
    if isinstance(low, dict):
        found["latency_low_load"] = round(1000 * low["p50"] / (gauge.fsync_us + gauge.work_us), 2)
    return found


# ── Deliveries ────────────────────────────────────────────────────────────────────────────────


async def _deliveries(system: System, now: Now) -> Figures:
    figures: Figures = {}
    async with publishing(system) as publisher:
        now("warming up")  # processes started, connections open, plans made
        await publisher.publish(max(WARM_UP_EVENTS // system.case.fan_out, 1))
        await system.done()
        low: list[str] = []
        half: list[str] = []
        if Figure.LATENCY in system.case.figures:
            now(f"latency at {system.plan.low_per_second} events/s")
            low = await _steadily(system, publisher, system.plan.low_per_second)
        now(f"{system.plan.deliveries} deliveries")
        figures |= await _throughput(system, publisher)
        if Figure.LATENCY in system.case.figures:
            rate = max(int(str(figures["deliveries_per_s"])) // 2 // system.case.fan_out, 1)
            now(f"latency at {rate} events/s")
            half = await _steadily(system, publisher, rate)
    now("comparing what was owed with what arrived")
    arrived = await system.arrived()
    verdict = system.ledger.verdict(arrived)
    figures["ledger"] = asdict(verdict)
    if low:
        delays = system.ledger.milliseconds
        figures["latency_low_load_ms"] = percentiles(delays(low, arrived))
        figures["latency_half_load_ms"] = percentiles(delays(half, arrived))
    return figures


async def _steadily(system: System, publisher: Publisher, per_second: int) -> list[str]:
    owed = await publisher.publish(max(int(per_second * system.plan.seconds), 1), per_second)
    await system.done()
    return owed


async def _throughput(system: System, publisher: Publisher) -> Figures:
    """Store everything, and time it until the last result is written; CPU of all per delivery."""
    events = max(system.plan.deliveries // system.case.fan_out, 1)
    deliveries = events * system.case.fan_out
    began = time.monotonic()
    before, own_before, other_before = system.cpu(), _own_cpu(), system.receiver_cpu()
    await publisher.publish(events)
    stored = time.monotonic()
    await system.done()
    seconds = time.monotonic() - began
    used = {name: after - before[name] for name, after in system.cpu().items()}
    if not system.case.run.over_http:  # this process did what the API would do
        used["rest"] += _own_cpu() - own_before
    per = {name: round(value / deliveries, 1) for name, value in used.items()}
    return {
        "deliveries_per_s": round(deliveries / seconds),
        "ingest_events_per_s": round(events / (stored - began)),
        "cpu_us_per_delivery": {**per, "all": round(sum(used.values()) / deliveries, 1)},
        "receiver_us_per_delivery": round((system.receiver_cpu() - other_before) / deliveries, 1),
    }


def _own_cpu() -> int:
    return machine.cpu_microseconds([os.getpid()])


# ── Ingest ────────────────────────────────────────────────────────────────────────────────────


async def _ingest(system: System, now: Now) -> Figures:
    """Events over HTTP, one per request and in batches; nobody gets them."""
    address = await system.api_address()
    await publish_over_http(address, 0.5, 1)  # connections open, plans made
    figures: Figures = {}
    stored = await system.rows.count_events()
    acknowledged = stored
    for name, batch in (("single", 1), ("batch", BATCH)):
        now(f"publishing over HTTP: {name}")
        before = system.cpu()
        count, seconds = await publish_over_http(address, system.plan.seconds, batch)
        used = {key: after - before[key] for key, after in system.cpu().items()}
        acknowledged += count
        figures[f"{name}_events_per_s"] = round(count / seconds)
        figures[f"{name}_cpu_us_per_event"] = {
            key: round(value / max(count, 1), 1) for key, value in used.items()
        }
    stored = await system.rows.count_events()
    if stored != acknowledged:
        raise Declined(f"{acknowledged} events were acknowledged and {stored} are stored.")
    return figures


# ── Idle ──────────────────────────────────────────────────────────────────────────────────────


async def _idle(system: System, now: Now) -> Figures:
    await system.api_address()
    now("nothing")
    await asyncio.sleep(CALM_SECONDS)
    began, before = time.monotonic(), system.cpu()
    asked = await system.rows.transactions()
    await asyncio.sleep(2 * system.plan.seconds)
    seconds = time.monotonic() - began
    used = {name: after - before[name] for name, after in system.cpu().items()}
    percent = {name: round(value / seconds / 1e4, 2) for name, value in used.items()}
    return {
        "cpu_percent_of_a_core": {**percent, "all": round(sum(percent.values()), 2)},
        "queries_per_s": round((await system.rows.transactions() - asked - 1) / seconds, 1),
    }
