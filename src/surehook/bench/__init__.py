"""`surehook bench`: what a delivery costs on this machine, and a proof that none was lost.

Reads   nothing of yours        Writes  its own database in a temporary directory

It starts an embedded PostgreSQL with durable settings, a receiver, one process with the worker and
one with the rest, stores events, waits until all are delivered, and compares what the database
says with what the receiver got.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surehook.actions.ingest import Ingest
from surehook.bench import machine
from surehook.config import Config, load
from surehook.delivery.secrets import Sealer, parse_keys
from surehook.delivery.signature import new_shared_secret
from surehook.embedded.server import EmbeddedServer
from surehook.errors import AnswerIsNo, Unreachable
from surehook.model.records import SIGNING_CONTEXT, NewEvent
from surehook.process.database import opened
from surehook.receiver import certificates
from surehook.store import store_of
from surehook.store.hints import Hints
from surehook.store.ingest import IngestStore
from surehook.store.logins import DatabaseAccess, Login
from surehook.store.postgres.database import connect
from surehook.store.postgres.migrate import migrate

Connection = Any  # asyncpg ships no types
Report = Callable[[str], None]

PAYLOAD = '{"order": "A-1001", "note": "' + "x" * 960 + '"}'
REST = "router,orchestrator,cleaner,deadletters"
PUBLISHERS = 64
DONE_SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    events: int = 20_000
    subscriptions: int = 20
    latency_seconds: float = 10.0
    low_per_second: int = 20
    old_rows: int = 0
    batch: int = 500
    concurrency: int = 128


def run(plan: Plan, report: Report, now: Report = lambda _: None) -> dict[str, object]:
    """Every figure; raises AnswerIsNo if a delivery was lost or doubled. `report` gets what was
    found out, `now` what is being done."""
    with tempfile.TemporaryDirectory(prefix="surehook-bench-", dir=_reachable()) as name:
        directory = Path(name)
        directory.chmod(0o711)  # the database may run as another account
        facts = machine.limits(directory)
        report(f"machine: {_said(facts)}")
        now("starting a database")
        with EmbeddedServer(directory / "data") as server:
            figures = asyncio.run(_measure(plan, server, directory, report, now))
            return {"machine": facts, **figures}


def _said(facts: Mapping[str, object]) -> str:
    """deliveries per s 900, ingest events per s 4000; CPU apart."""
    flat = {k: v for k, v in facts.items() if not isinstance(v, Mapping)}
    inner = [f"{k} {_said(v)}" for k, v in facts.items() if isinstance(v, Mapping)]
    return ", ".join([*(f"{k} {v}" for k, v in flat.items()), *inner]).replace("_", " ")


def _reachable() -> str | None:
    """As root the database runs as another account, which must reach the directory."""
    return "/var/tmp" if os.geteuid() == 0 else None  # noqa: S108 — a fresh directory inside


async def _measure(
    plan: Plan, server: EmbeddedServer, directory: Path, report: Report, now: Report
) -> dict[str, object]:
    access = DatabaseAccess(server.url, server.role_secret, server.encryption_key)
    owner = await connect(Login("bench", access.url), 5)
    files = certificates.kept(directory / "certificates")
    bench = Bench(plan, access, owner, files, server, report, now)
    try:
        await migrate(owner, role_secret=access.role_secret)
        return await bench.measure()
    finally:
        bench.close()
        await owner.close()


class Bench:
    def __init__(
        self,
        plan: Plan,
        access: DatabaseAccess,
        owner: Connection,
        files: certificates.Certificates,
        server: EmbeddedServer,
        report: Report,
        now: Report,
    ) -> None:
        self._now = now
        self._plan = plan
        self._access = access
        self._owner = owner
        self._files = files
        self._server = server
        self._report = report
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._stored = 0
        self._environment = {
            **{key: value for key, value in os.environ.items() if "SUREHOOK" not in key},
            "XDG_STATE_HOME": str(files.ca_file.parent),  # not for the user's commands to find
            "SUREHOOK_DATABASE_URL": access.url,
            "SUREHOOK_ROLE_SECRET": access.role_secret or "",
            "SUREHOOK_ENCRYPTION_KEY": access.encryption_key or "",
            "SUREHOOK_CA_FILE": str(files.ca_file),
            "SUREHOOK_ALLOW_NETWORKS": "127.0.0.0/8",
            "SUREHOOK_ORCHESTRATOR_BATCH": str(plan.batch),
            "SUREHOOK_WORKER_CONCURRENCY": str(plan.concurrency),
            "SUREHOOK_LOG_LEVEL": "warning",
        }
        self._config: Config = load(Path(os.devnull), self._environment)

    # ── The parts ─────────────────────────────────────────────────────────────────────────────

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes[name] = process
        return process

    def close(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.communicate()

    async def measure(self) -> dict[str, object]:
        receiver = self._start("receiver", "surehook.bench.receiver", str(self._files.server_file))
        assert receiver.stdout is not None
        port = int(receiver.stdout.readline())
        await self._subscribe(f"https://127.0.0.1:{port}")
        self._start("worker", "surehook", "run", "worker")
        self._start("rest", "surehook", "serve", "--components", REST)
        await self._warm_up()
        figures = await self._round("")
        if self._plan.old_rows:
            await self._grow_old()
            figures |= await self._round("_with_old_rows")
        figures["memory_megabytes"] = {
            name: machine.memory_megabytes(process.pid) for name, process in self._processes.items()
        }
        figures["exact"] = await self._compare(receiver)
        return figures

    async def _subscribe(self, url: str) -> None:
        sealer = Sealer(parse_keys(self._access.encryption_key or ""))
        for number in range(self._plan.subscriptions):
            subscription_id = await self._owner.fetchval(
                "INSERT INTO subscriptions (event_type, callback_url, verified, concurrency_cap) "
                "VALUES ($1, $2, true, 1000) RETURNING id",
                f"bench.{number}",
                f"{url}/{number}",
            )
            await self._owner.execute(
                "INSERT INTO subscription_secrets (subscription_id, scheme, sealed) "
                "VALUES ($1, 'v1', $2)",
                subscription_id,
                sealer.seal(new_shared_secret().reveal(), SIGNING_CONTEXT),
            )

    async def _warm_up(self) -> None:
        """Processes started, connections open, plans made: none of it is what is measured."""
        self._now("warming up")
        await self._publish(self._plan.subscriptions * 20, None)
        await self._all_done()

    # ── One round ─────────────────────────────────────────────────────────────────────────────

    async def _round(self, suffix: str) -> dict[str, object]:
        also = suffix.replace("_", " ")
        self._now(f"latency at {self._plan.low_per_second} events/s{also}")
        low = await self._latency(self._plan.low_per_second, self._plan.latency_seconds)
        self._report(f"latency in ms at {self._plan.low_per_second} events/s{also}: {_said(low)}")
        self._now(f"storing and delivering {self._plan.events} events{also}")
        throughput = await self._throughput()
        self._report(f"throughput{also}: {_said(throughput)}")
        half_rate = max(int(float(str(throughput["deliveries_per_s"])) / 2), 1)
        self._now(f"latency at {half_rate} events/s{also}")
        half = await self._latency(half_rate, self._plan.latency_seconds)
        self._report(f"latency in ms at {half_rate} events/s{also}: {_said(half)}")
        figures = {**throughput, "latency_low_load_ms": low, "latency_half_load_ms": half}
        return {f"{name}{suffix}": value for name, value in figures.items()}

    async def _throughput(self) -> dict[str, object]:
        """Store everything, then time its delivery; CPU of both per delivery."""
        began = time.monotonic()
        before = self._cpu()
        await self._publish(self._plan.events, None)
        stored = time.monotonic()
        await self._all_done()
        seconds = time.monotonic() - began
        used = {name: after - before[name] for name, after in self._cpu().items()}
        per = {name: round(value / self._plan.events, 1) for name, value in used.items()}
        return {
            "deliveries_per_s": round(self._plan.events / seconds),
            "ingest_events_per_s": round(self._plan.events / (stored - began)),
            "cpu_us_per_delivery": {**per, "all": round(sum(per.values()), 1)},
        }

    def _cpu(self) -> dict[str, int]:
        """The receiver is not ours: it is left out."""
        postmaster = self._server.pid
        assert postmaster is not None
        return {
            "database": machine.cpu_microseconds(machine.children(postmaster)),
            "worker": machine.cpu_microseconds([self._processes["worker"].pid]),
            "rest": machine.cpu_microseconds([self._processes["rest"].pid, os.getpid()]),
        }

    async def _publish(self, count: int, per_second: float | None) -> None:
        """Through ingest, by 64 publishers at once or at a steady rate."""
        async with opened(self._config, self._access, "ingest") as database:
            hints = Hints()
            hints.send_outward(database.notify)
            ingest = Ingest(store_of(IngestStore, database), hints)
            numbers = iter(range(count))
            began = time.monotonic()

            async def publisher() -> None:
                for number in numbers:
                    if per_second is not None:
                        due = began + number / per_second
                        await asyncio.sleep(max(0.0, due - time.monotonic()))
                    event_type = f"bench.{number % self._plan.subscriptions}"
                    await ingest.publish(NewEvent(event_type, PAYLOAD))

            await asyncio.gather(*(publisher() for _ in range(min(PUBLISHERS, count))))
            self._stored += count
            await hints.close()

    async def _latency(self, per_second: int, seconds: float) -> dict[str, float]:
        """From the event's row to its answered delivery, by the database's clock."""
        newest = await self._owner.fetchval("SELECT COALESCE(max(id), 0) FROM events")
        await self._publish(max(int(per_second * seconds), 1), per_second)
        await self._all_done()
        row = await self._owner.fetchrow(
            "SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY EXTRACT(EPOCH FROM "
            "j.finished_at - e.created_at) * 1000) AS ms FROM events e "
            "JOIN webhook_delivery_jobs j ON j.event_id = e.id WHERE e.id > $1",
            newest,
        )
        return {"p50": round(row["ms"][0], 1), "p99": round(row["ms"][1], 1)}

    async def _all_done(self) -> None:
        """Nothing left to route, to send or to apply."""
        end = time.monotonic() + DONE_SECONDS_MAX
        while True:
            # Looking must not cost what is being measured: count only when nothing is left.
            left = await self._owner.fetchval(
                "SELECT EXISTS (SELECT 1 FROM webhook_delivery_sagas "
                "WHERE status IN ('Pending', 'InProgress', 'PendingRetry'))"
            )
            if not left and self._stored == await self._owner.fetchval(
                "SELECT count(*) FROM webhook_delivery_sagas WHERE subscription_id <> 0"
            ):
                return
            ended = [name for name, one in self._processes.items() if one.poll() is not None]
            if ended or time.monotonic() > end:
                raise Unreachable(f"The deliveries do not end (ended: {ended}).")
            await asyncio.sleep(0.1)

    # ── With a past ───────────────────────────────────────────────────────────────────────────

    async def _grow_old(self) -> None:
        """Finished deliveries of another day, so many that a scan would be felt."""
        self._now(f"inserting {self._plan.old_rows} old rows")
        first = await self._owner.fetchval("SELECT max(id) + 1 FROM events")
        for statement in (
            "INSERT INTO events (id, event_type, created_at, payload) SELECT $1 + g, 'old', "
            "now() - interval '1 day', '{}' FROM generate_series(0, $2::bigint - 1) AS g",
            "INSERT INTO webhook_delivery_sagas (event_id, subscription_id, status, attempt_count, "
            "created_at, updated_at) SELECT $1 + g, 0, 'Completed', 1, now() - interval '1 day', "
            "now() - interval '1 day' FROM generate_series(0, $2::bigint - 1) AS g",
            "INSERT INTO webhook_delivery_jobs (saga_id, event_id, subscription_id, status, "
            "attempt_at, finished_at) SELECT id, event_id, 0, 'Completed', next_attempt_at, "
            "created_at FROM webhook_delivery_sagas WHERE event_id BETWEEN $1 AND $1 + $2 - 1",
        ):
            await self._owner.execute(statement, first, self._plan.old_rows, timeout=1800)
        await self._owner.execute("SELECT setval('events_id_seq', $1)", first + self._plan.old_rows)
        await self._owner.execute("VACUUM ANALYZE", timeout=1800)

    # ── The proof ─────────────────────────────────────────────────────────────────────────────

    async def _compare(self, receiver: subprocess.Popen[str]) -> dict[str, object]:
        """What the receiver got must be what the database says, to the last POST."""
        rows = await self._owner.fetchrow(
            "SELECT count(*) FILTER (WHERE j.response_status IS NOT NULL) AS answered, "
            "count(DISTINCT j.saga_id) AS sagas, count(*) AS attempts FROM webhook_delivery_jobs j "
            "WHERE j.subscription_id <> 0"
        )
        got, _ = receiver.communicate()
        received = json.loads(got)
        exact = {
            "posts_received": received["posts"],
            "attempts_in_database": rows["attempts"],
            "deliveries": rows["sagas"],
            "distinct_received": received["distinct"],
            "connections": received["connections"],
        }
        if received["posts"] != rows["attempts"] or received["distinct"] != rows["sagas"]:
            raise AnswerIsNo(f"Deliveries were lost or doubled: {exact}.")
        return exact
