"""What one event costs: POST /v1/events against a plain FastAPI endpoint with one INSERT each.

Reads   nothing
Writes  a database of its own in a temporary directory; figures to standard output

    python bench/ingest.py [--seconds 5] [--rounds 3] [--connections 64] [--json]

Three kinds of processes: PostgreSQL with all its safety on, one server process, one load generator
with keep-alive connections that each have one request under way. Every acknowledged event must be
in the database in the end. Both servers check a key, validate the event and store 1 KB of payload;
the plain one does what a tutorial does: a pydantic model, a pool, INSERT … RETURNING.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import asyncpg
import httptools
import uvloop

from surehook.config import load
from surehook.embedded.server import EmbeddedServer
from surehook.process.serve import Process
from surehook.store.logins import DatabaseAccess
from surehook.store.postgres.migrate import migrate

try:
    import fastapi
    import uvicorn
    from pydantic import BaseModel
except ImportError:
    sys.exit("The comparison needs FastAPI: pip install fastapi uvicorn")

KEY = "bench-key-0123456789abcdef0123456789"
PAYLOAD = {
    "order": 4711,
    "items": [{"sku": f"A-{n}", "quantity": n, "price": "12.50"} for n in range(16)],
    "note": "x" * 180,
}
BODY = json.dumps({"event_type": "order.paid", "payload": PAYLOAD}).encode()
REQUEST = (
    b"POST /v1/events HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    b"authorization: Bearer %s\r\ncontent-length: %d\r\n\r\n" % (KEY.encode(), len(BODY)) + BODY
)


# ── The servers, each in a process of its own ─────────────────────────────────────────────────


def serve_surehook(url: str, role_secret: str, ready: Pipe) -> None:
    async def main() -> None:
        environment = {"SUREHOOK_DATABASE_URL": url, "SUREHOOK_ROLE_SECRET": role_secret}
        flags = {"api.listen": "127.0.0.1:0", "api.admin_key": KEY}
        process = Process(
            load(Path(os.devnull), environment, flags), DatabaseAccess(url, role_secret, "5a" * 32)
        )
        await process.open(["api"])
        assert process.api is not None
        ready.send(process.api.address)
        await process.run()

    uvloop.run(main())


class PlainEvent(BaseModel):
    """At the top of the module: FastAPI looks names of types up there."""

    event_type: str
    payload: Any
    tenant: str = ""
    external_id: str | None = None


def serve_fastapi(url: str, _: str, ready: Pipe) -> None:
    app = fastapi.FastAPI()
    pool: Any = None

    @app.post("/v1/events", status_code=202)
    async def post(event: PlainEvent, authorization: str = fastapi.Header()) -> dict[str, Any]:
        if authorization != f"Bearer {KEY}":
            raise fastapi.HTTPException(401)
        row = await pool.fetchrow(
            "INSERT INTO events (event_type, payload, tenant, external_id) "
            "VALUES ($1, $2, $3, $4) RETURNING id, created_at",
            event.event_type,
            json.dumps(event.payload),
            event.tenant,
            event.external_id,
        )
        return {"id": row["id"], "created_at": row["created_at"], "duplicate": False}

    async def main() -> None:
        nonlocal pool
        pool = await asyncpg.create_pool(url, min_size=16, max_size=16)
        server = uvicorn.Server(
            uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", access_log=False)
        )
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup()
        host, port = server.servers[0].sockets[0].getsockname()
        ready.send(f"{host}:{port}")
        await server.main_loop()

    uvloop.run(main())


# ── The load ──────────────────────────────────────────────────────────────────────────────────


class Load(asyncio.Protocol):
    """One connection with one request under way."""

    def __init__(self, counts: list[int], latencies: list[float]) -> None:
        self._counts = counts
        self._latencies = latencies
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        self._transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._counts[self._parser.get_status_code() != 202] += 1
        self._latencies.append(time.perf_counter() - self._asked)
        self._ask()


def generate_load(address: str, connections: int, seconds: float, result: Pipe) -> None:
    async def main() -> None:
        host, _, port = address.rpartition(":")
        counts, latencies = [0, 0], [0.0]
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            await loop.create_connection(lambda: Load(counts, latencies), host, int(port))
        await asyncio.sleep(0.5)  # warm
        latencies.clear()
        before, started = list(counts), time.perf_counter()
        result.send("begin")
        await asyncio.sleep(seconds)
        passed = time.perf_counter() - started
        result.send((counts[0] - before[0], counts[1], passed, sorted(latencies)))

    uvloop.run(main())


def cpu_seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def postgres_pids(postmaster: int) -> list[int]:
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    return [postmaster, *map(int, children)]


def answer_of(process: Any, pipe: Pipe) -> Any:
    """What a process has to say; one that has died says nothing."""
    while not pipe.poll(0.5):
        if not process.is_alive():
            sys.exit("A server could not start; see above.")
    return pipe.recv()


def measure(
    serve: Callable[..., None], server: EmbeddedServer, arguments: argparse.Namespace
) -> dict[str, float]:
    """One round: start a server, load it, stop it."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(server.url, server.role_secret, there))
    process.start()
    assert process.pid is not None
    try:
        given = (answer_of(process, here), arguments.connections, arguments.seconds, there)
        load_process = context.Process(target=generate_load, args=given)
        load_process.start()
        assert here.recv() == "begin"
        groups = [process.pid], postgres_pids(server.pid)
        before = [cpu_seconds(group) for group in groups]
        stored, wrong, passed, latencies = here.recv()
        after = [cpu_seconds(group) for group in groups]
        load_process.join()
        if not stored:
            sys.exit(f"{serve.__name__} stored nothing; {wrong} requests were refused.")
    finally:
        process.terminate()
        process.join()
    return {
        "events_per_s": stored / passed,
        "cpu_us_server": (after[0] - before[0]) / stored * 1e6,
        "cpu_us_postgres": (after[1] - before[1]) / stored * 1e6,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "wrong": wrong,
        "acknowledged": stored,
    }


async def prepare(server: EmbeddedServer) -> None:
    owner = await asyncpg.connect(server.url)
    await migrate(owner, role_secret=server.role_secret)
    await owner.close()


async def count_events(server: EmbeddedServer) -> int:
    owner = await asyncpg.connect(server.url)
    try:
        number: int = await owner.fetchval("SELECT count(*) FROM events")
        return number
    finally:
        await owner.close()


def run(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    kinds = {"surehook": serve_surehook, "fastapi": serve_fastapi}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory(prefix="surehook-bench-") as directory:
        Path(directory).chmod(0o711)
        with EmbeddedServer(Path(directory) / "data") as server:
            asyncio.run(prepare(server))
            for _ in range(arguments.rounds):
                for name, serve in kinds.items():
                    rounds[name].append(measure(serve, server, arguments))
            acknowledged = sum(one["acknowledged"] for each in rounds.values() for one in each)
            stored = asyncio.run(count_events(server))
    if stored < acknowledged:
        sys.exit(f"{acknowledged} events were acknowledged, but {stored} are stored.")
    return {
        name: {key: statistics.median(one[key] for one in each) for key in each[0]}
        for name, each in rounds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = run(arguments)
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"{arguments.connections} connections, {len(BODY)} bytes, median of {arguments.rounds}")
    for name, one in figures.items():
        print(
            f"{name:<9} {one['events_per_s']:8.0f} events/s   "
            f"server {one['cpu_us_server']:6.0f} µs   postgres {one['cpu_us_postgres']:6.0f} µs   "
            f"p50 {one['p50_ms']:6.1f} ms   p99 {one['p99_ms']:6.1f} ms   wrong {one['wrong']:.0f}"
        )
    ours, plain = figures["surehook"], figures["fastapi"]
    print(
        f"ratio     {ours['events_per_s'] / plain['events_per_s']:.1f} x events/s, "
        f"{plain['cpu_us_server'] / ours['cpu_us_server']:.1f} x less CPU in the server"
    )


if __name__ == "__main__":
    main()
