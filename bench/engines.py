"""The same pipeline on PostgreSQL and on MariaDB, in turns within one run.

Reads   nothing but its options
Writes  only in a temporary directory; figures to standard output; no traffic at all

    python bench/engines.py
    python bench/engines.py --rounds 3 --deliveries 20000 --batch 500

Each measurement is a process of its own with a fresh durable server on disk (MariaDB by the tests'
own keeper, tests/support/) and every component under its own login. Events are stored
through Ingest, then all components run in this process until each saga has ended; the sender
answers at once without a network. Figures: deliveries per second, µs of CPU per delivery of server
and Python; then, one event at a time, the milliseconds from storing it to sending it; then how much
of a core the idle process takes (and the server beside it).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

HERE = Path(__file__).resolve()
# The tools of the repository come before tests/tools.
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "tests")]

from support.connections import connected  # noqa: E402
from support.mysql_server import MariadbServer  # noqa: E402
from surehook.actions.ingest import Ingest  # noqa: E402
from surehook.bench import machine  # noqa: E402
from surehook.config import load  # noqa: E402
from surehook.delivery import Outcome, Request  # noqa: E402
from surehook.delivery.secrets import Sealer, parse_keys  # noqa: E402
from surehook.delivery.signature import new_shared_secret  # noqa: E402
from surehook.embedded.server import EmbeddedServer  # noqa: E402
from surehook.model.records import SIGNING_CONTEXT, NewEvent  # noqa: E402
from surehook.process.serve import Process  # noqa: E402
from surehook.store import engine_of, open_database, store_of  # noqa: E402
from surehook.store.hints import Channel, Hints  # noqa: E402
from surehook.store.ingest import IngestStore  # noqa: E402
from surehook.store.logins import DatabaseAccess, Login  # noqa: E402

ENGINES = ("postgresql", "mariadb")
COMPONENTS = ("router", "orchestrator", "worker", "cleaner", "deadletters")
PAYLOAD = '{"order": "A-1001", "note": "' + "x" * 960 + '"}'
ROLE_SECRET = "a role secret for benchmarks only"
ENCRYPTION_KEY = "5e" * 32
UNFINISHED = (
    "SELECT count(*) FROM webhook_delivery_sagas "
    "WHERE status IN ('Pending', 'InProgress', 'PendingRetry')"
)
Figures = dict[str, float]


class NullSender:
    """Every request succeeds without leaving the process."""

    opened = 0
    reused = 0

    def __init__(self) -> None:
        self.sent = 0
        self.waited_for: asyncio.Future[float] | None = None

    async def start(self) -> None:
        pass

    async def send(self, request: Request) -> Outcome:
        self.sent += 1
        if self.waited_for is not None and not self.waited_for.done():
            self.waited_for.set_result(time.perf_counter())
        return Outcome(200, None)

    async def close(self) -> None:
        pass


@contextmanager
def server(engine: str, directory: Path) -> Iterator[tuple[str, int]]:
    """A durable server; its URL and the process whose CPU, with all below it, counts."""
    if engine == "postgresql":
        with EmbeddedServer(directory / "data") as embedded:
            assert embedded.pid is not None
            yield embedded.url, embedded.pid
        return
    with MariadbServer(directory / "mariadb", "--innodb-flush-method=fsync") as private:
        assert private._keeper is not None
        yield private.url, private._keeper.pid


class Measurement:
    def __init__(self, options: argparse.Namespace, url: str, pid: int) -> None:
        self._options = options
        self._pid = pid
        self._sender = NullSender()
        self._access = DatabaseAccess(url, ROLE_SECRET, ENCRYPTION_KEY)
        self._config = load(
            Path(os.devnull),
            {
                "SUREHOOK_DATABASE_URL": url,
                "SUREHOOK_ROLE_SECRET": ROLE_SECRET,
                "SUREHOOK_ENCRYPTION_KEY": ENCRYPTION_KEY,
                "SUREHOOK_ORCHESTRATOR_BATCH": str(options.batch),
                "SUREHOOK_WORKER_CONCURRENCY": str(options.batch),
            },
        )

    async def run(self) -> Figures:
        await self._migrate()
        async with connected(self._access.url) as owner:
            await self._subscribe(owner)
            process = Process(self._config, self._access, lambda: self._sender)
            await process.open(COMPONENTS)
            work = asyncio.get_running_loop().create_task(process.run())
            ingest_database = await open_database(self._config, self._access, "ingest")
            ingest = Ingest(store_of(IngestStore, ingest_database), process.hints)
            try:
                figures = await self._throughput(owner, ingest, process.hints)
                figures |= await self._latency(ingest)
                figures |= await self._idle()
                await self._prove(owner)
                return figures
            finally:
                process.stop()
                await work
                await ingest_database.close()

    async def _migrate(self) -> None:
        engine = engine_of(self._access.url)
        connection = await engine.connect(Login("bench", self._access.url), 5)
        await engine.migrate(connection, role_secret=ROLE_SECRET)
        await connection.close()

    async def _subscribe(self, owner: Any) -> None:
        sealer = Sealer(parse_keys(ENCRYPTION_KEY))
        for number in range(self._options.subscriptions):
            subscription_id = await owner.fetchval(
                "INSERT INTO subscriptions (event_type, callback_url, verified) "
                "VALUES ($1, 'https://null.test', true) RETURNING id",
                f"bench.{number}",
            )
            await owner.execute(
                "INSERT INTO subscription_secrets (subscription_id, scheme, sealed) "
                "VALUES ($1, 'v1', $2)",
                subscription_id,
                sealer.seal(new_shared_secret().reveal(), SIGNING_CONTEXT),
            )

    async def _throughput(self, owner: Any, ingest: Ingest, hints: Hints) -> Figures:
        await self._publish(ingest, 4 * self._options.batch)  # connections, plans
        await self._ended(owner)
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        count = self._options.deliveries
        before, began = self._cpu(), time.monotonic()
        await self._publish(ingest, count)
        hints.hint(Channel.EVENTS, 0)
        await self._ended(owner)
        seconds, after = time.monotonic() - began, self._cpu()
        return {
            "deliveries_per_s": count / seconds,
            **{f"{part}_us": (after[part] - before[part]) / count for part in after},
        }

    async def _publish(self, ingest: Ingest, count: int) -> None:
        kinds = self._options.subscriptions
        for first in range(0, count, 1000):
            numbers = range(first, min(first + 1000, count))
            await ingest.publish_all([NewEvent(f"bench.{n % kinds}", PAYLOAD) for n in numbers])

    async def _ended(self, owner: Any) -> None:
        async with asyncio.timeout(300):
            while True:
                events = await owner.fetchval("SELECT count(*) FROM events")
                sagas = await owner.fetchval("SELECT count(*) FROM webhook_delivery_sagas")
                if events == sagas and not await owner.fetchval(UNFINISHED):
                    return
                await asyncio.sleep(0.05)

    def _cpu(self) -> dict[str, float]:
        return {
            "server": float(machine.cpu_microseconds(machine.children(self._pid))),
            "python": time.process_time() * 1e6,
        }

    async def _latency(self, ingest: Ingest) -> Figures:
        """One event at a time, each after the last one's delivery was written down."""
        milliseconds = []
        for _ in range(self._options.probes):
            self._sender.waited_for = asyncio.get_running_loop().create_future()
            began = time.perf_counter()
            await ingest.publish(NewEvent("bench.0", PAYLOAD))
            async with asyncio.timeout(10):
                milliseconds.append((await self._sender.waited_for - began) * 1000)
            await asyncio.sleep(0.05)
        milliseconds.sort()
        return {
            "latency_p50_ms": statistics.median(milliseconds),
            "latency_p99_ms": milliseconds[int(len(milliseconds) * 0.99) - 1],
        }

    async def _idle(self) -> Figures:
        await asyncio.sleep(5)  # looks grow rarer
        before = self._cpu()
        await asyncio.sleep(self._options.idle)
        after = self._cpu()
        return {
            f"idle_{part}_percent": (after[part] - before[part]) / self._options.idle / 1e4
            for part in after
        }

    async def _prove(self, owner: Any) -> None:
        wrong = await owner.fetchval(
            "SELECT count(*) FROM webhook_delivery_sagas "
            "WHERE status <> 'Completed' OR attempt_count <> 1"
        )
        jobs = await owner.fetchval("SELECT count(*) FROM webhook_delivery_jobs")
        events = await owner.fetchval("SELECT count(*) FROM events")
        if wrong or not jobs == events == self._sender.sent:
            raise SystemExit(f"lost or doubled: {wrong=} {jobs=} {events=} {self._sender.sent=}")


def measure(options: argparse.Namespace) -> None:
    scratch = "/var/tmp" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="surehook-bench-", dir=scratch) as name:
        directory = Path(name)
        directory.chmod(0o711)  # the server may run as another account
        with server(options.engine, directory) as (url, pid):
            print(json.dumps(uvloop.run(Measurement(options, url, pid).run())))


def child(engine: str, options: argparse.Namespace) -> Figures:
    command = [sys.executable, str(HERE), "--engine", engine]
    for name in ("deliveries", "batch", "subscriptions", "probes", "idle"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--deliveries", type=int, default=20_000)
    arguments.add_argument("--batch", type=int, default=500)
    arguments.add_argument("--subscriptions", type=int, default=50)
    arguments.add_argument("--probes", type=int, default=100)
    arguments.add_argument("--idle", type=int, default=20, help="seconds")
    arguments.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.engine:
        measure(options)
        return
    print(json.dumps(machine.limits(Path(tempfile.gettempdir()))))
    found: dict[str, list[Figures]] = {engine: [] for engine in ENGINES}
    for _ in range(options.rounds):
        for engine in ENGINES:
            found[engine].append(child(engine, options))
    for key in found[ENGINES[0]][0]:
        middles = [statistics.median(each[key] for each in found[engine]) for engine in ENGINES]
        shown = (f"{e:>14} {m:10,.2f}" for e, m in zip(ENGINES, middles, strict=True))
        print(f"{key:<22}{''.join(shown)}")


if __name__ == "__main__":
    main()
