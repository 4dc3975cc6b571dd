"""What a delivery costs, stage by stage: the whole pipeline in one process, on a server of its own.

Reads   the source trees that it is given
Writes  only in a temporary directory; figures to standard output; traffic goes to loopback only

    python bench/pipeline.py                                  this tree
    python bench/pipeline.py --against ../before --rounds 3   this tree and another one, in turns
    python bench/pipeline.py --senders null --batches 500 --statements

A measurement is a process of its own: a fresh durable PostgreSQL; N events stored through Ingest;
then router, orchestrator, worker, cleaner and dead letters until every saga has ended, and a check
that each delivery arrived once. `null` answers each request at once, unsent; `tls` POSTs to
surehook.bench.receiver, a TLS endpoint in a process of its own.

Figures, per delivery, in µs of CPU: of PostgreSQL (all its processes, vacuum and checkpoints
included, from /proc), of this process, of the receiver, of PostgreSQL's sessions by component.
`--statements` adds each statement's calls and time by pg_stat_statements, where the server has it.
Deliveries per second are of the whole machine: on a busy one compare the CPU, and compare two trees
within one run. `--against` uses the other tree's own copy of this file where it has one.
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
from collections import defaultdict
from pathlib import Path
from typing import Any

import uvloop

from surehook.actions.ingest import Ingest
from surehook.bench import machine
from surehook.config import load
from surehook.delivery import Outcome, Request
from surehook.delivery.secrets import Sealer, parse_keys
from surehook.delivery.signature import new_shared_secret
from surehook.embedded.server import EmbeddedServer
from surehook.model.records import SIGNING_CONTEXT, NewEvent
from surehook.process.serve import Process
from surehook.receiver import certificates
from surehook.store import open_database, store_of
from surehook.store.hints import Channel, Hints
from surehook.store.ingest import IngestStore
from surehook.store.logins import DatabaseAccess, Login
from surehook.store.postgres.database import connect
from surehook.store.postgres.migrate import migrate

HERE = Path(__file__).resolve()
COMPONENTS = ("router", "orchestrator", "worker", "cleaner", "deadletters")
PAYLOAD = '{"order": "A-1001", "note": "' + "x" * 960 + '"}'
DONE_SECONDS_MAX = 300.0
# Shown beside every result: the same work costs twice as much on a core that others slow down.
LIMITS = ("sha256_megabytes_per_s", "fsyncs_per_s")
Connection = Any  # asyncpg ships no types
Figures = dict[str, float]


class NullSender:
    """Every request succeeds without leaving the process: what is left is the pipeline."""

    opened = 0
    reused = 0

    def __init__(self) -> None:
        self.sent = 0

    async def start(self) -> None:
        pass

    async def send(self, request: Request) -> Outcome:
        self.sent += 1
        return Outcome(200, None)

    async def close(self) -> None:
        pass


# --- One measurement, in a process of its own ----------------------------------------------------


class Measurement:
    def __init__(self, options: argparse.Namespace, server: EmbeddedServer, directory: Path):
        self._options = options
        self._server = server
        self._access = DatabaseAccess(server.url, server.role_secret, server.encryption_key)
        self._files = certificates.kept(directory / "certificates")
        self._null = NullSender()
        self._receiver: subprocess.Popen[str] | None = None
        self._ingest_database: Any = None  # stays open: a session's CPU is lost when it ends
        environment = {
            "SUREHOOK_DATABASE_URL": server.url,
            "SUREHOOK_ROLE_SECRET": server.role_secret or "",
            "SUREHOOK_ENCRYPTION_KEY": server.encryption_key or "",
            "SUREHOOK_CA_FILE": str(self._files.ca_file),
            "SUREHOOK_ALLOW_NETWORKS": "127.0.0.0/8",
            "SUREHOOK_ORCHESTRATOR_BATCH": str(options.batch),
            "SUREHOOK_WORKER_CONCURRENCY": str(options.concurrency or options.batch),
        }
        self._config = load(Path(os.devnull), environment)

    async def run(self) -> Figures:
        owner = await connect(Login("bench", self._access.url), 5)
        try:
            await migrate(owner, role_secret=self._access.role_secret)
            url = self._start_receiver() if self._options.sender == "tls" else "https://null.test"
            await self._subscribe(owner, url)
            figures = await self._deliver(owner)
            await self._prove(owner)
            return figures
        finally:
            await owner.close()
            if self._receiver is not None and self._receiver.poll() is None:
                self._receiver.terminate()
                self._receiver.communicate()

    def _start_receiver(self) -> str:
        command = [sys.executable, "-m", "surehook.bench.receiver", str(self._files.server_file)]
        self._receiver = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._receiver.stdout is not None
        return f"https://127.0.0.1:{int(self._receiver.stdout.readline())}"

    async def _subscribe(self, owner: Connection, url: str) -> None:
        sealer = Sealer(parse_keys(self._access.encryption_key or ""))
        for number in range(self._options.subscriptions):
            subscription_id = await owner.fetchval(
                "INSERT INTO subscriptions (event_type, callback_url, verified) "
                "VALUES ($1, $2, true) RETURNING id",
                f"bench.{number}",
                f"{url}/{number}",
            )
            await owner.execute(
                "INSERT INTO subscription_secrets (subscription_id, scheme, sealed) "
                "VALUES ($1, 'v1', $2)",
                subscription_id,
                sealer.seal(new_shared_secret().reveal(), SIGNING_CONTEXT),
            )

    async def _deliver(self, owner: Connection) -> Figures:
        null = self._options.sender == "null"
        process = Process(self._config, self._access, (lambda: self._null) if null else None)
        await process.open(COMPONENTS)
        work = asyncio.get_running_loop().create_task(process.run())
        try:
            return await self._measure(owner, process)
        finally:
            process.stop()
            await work
            await self._ingest_database.close()

    async def _measure(self, owner: Connection, process: Process) -> Figures:
        # Connections, plans, TLS handshakes: not what is measured.
        warm = 4 * max(self._options.subscriptions, self._options.batch)
        await self._ingest(warm)
        await self._ended(owner, warm)
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        if self._options.statements:
            await owner.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            await owner.fetchval("SELECT pg_stat_statements_reset()")
        async with owner.transaction():
            # Who holds the cursor keeps the router waiting: all events are there when it begins.
            await owner.fetch("SELECT FROM router_cursor FOR UPDATE")
            figures = await self._timed("ingest", self._ingest(self._options.deliveries))
        before = await self._sessions(owner)
        process.hints.hint(Channel.EVENTS, 0)
        figures |= await self._timed("deliver", self._ended(owner, self._options.deliveries + warm))
        after = await self._sessions(owner)
        for name in COMPONENTS:
            used = after.get(name, 0) - before.get(name, 0)
            figures[f"session {name}"] = used / self._options.deliveries
        if self._options.statements:
            figures |= await self._statements(owner)
        return figures

    async def _ingest(self, count: int) -> None:
        if self._ingest_database is None:
            self._ingest_database = await open_database(self._config, self._access, "ingest")
        ingest = Ingest(store_of(IngestStore, self._ingest_database), Hints())
        for first in range(0, count, 1000):
            await ingest.publish_all(
                [
                    NewEvent(f"bench.{number % self._options.subscriptions}", PAYLOAD)
                    for number in range(first, min(first + 1000, count))
                ]
            )

    async def _ended(self, owner: Connection, count: int) -> None:
        """Until so many sagas have ended; looking costs one index probe."""
        end = time.monotonic() + DONE_SECONDS_MAX
        while True:
            left = await owner.fetchval(
                "SELECT EXISTS (SELECT 1 FROM webhook_delivery_sagas "
                "WHERE status IN ('Pending', 'InProgress', 'PendingRetry'))"
            )
            if not left and count == await owner.fetchval(
                "SELECT count(*) FROM webhook_delivery_sagas"
            ):
                return
            if time.monotonic() > end:
                raise TimeoutError("the deliveries do not end")
            await asyncio.sleep(0.05)

    async def _timed(self, name: str, work: Any) -> Figures:
        before, began = self._cpu(), time.monotonic()
        await work
        seconds = time.monotonic() - began
        count = self._options.deliveries
        after = self._cpu()
        return {
            f"{name} per second": count / seconds,
            **{f"{name} {part}": (after[part] - before[part]) / count for part in after},
        }

    def _cpu(self) -> dict[str, float]:
        postmaster = self._server.pid
        assert postmaster is not None
        receiver = [] if self._receiver is None else [self._receiver.pid]
        return {
            "postgresql": machine.cpu_microseconds(machine.children(postmaster)),
            "python": time.process_time() * 1e6,
            "receiver": machine.cpu_microseconds(receiver),
        }

    async def _sessions(self, owner: Connection) -> dict[str, int]:
        """CPU of the sessions of each component so far."""
        rows = await owner.fetch("SELECT pid, application_name FROM pg_stat_activity")
        used: defaultdict[str, int] = defaultdict(int)
        for pid, name in rows:
            used[(name or "").removeprefix("surehook ")] += machine.cpu_microseconds([pid])
        return used

    async def _statements(self, owner: Connection) -> Figures:
        rows = await owner.fetch(
            "SELECT r.rolname, regexp_replace(left(s.query, 2000), E'\\\\s+', ' ', 'g'), s.calls, "
            "s.total_exec_time * 1000 AS us, s.wal_bytes FROM pg_stat_statements s "
            "JOIN pg_roles r ON r.oid = s.userid ORDER BY us DESC LIMIT 25"
        )
        count = self._options.deliveries
        return {
            f"statement {role}: {query[:60]} [{calls} calls, {int(wal) // count} B]": us / count
            for role, query, calls, us, wal in rows
            if us / count > 0.2
        }

    async def _prove(self, owner: Connection) -> None:
        """Each delivery once: by the database, and by whoever received them."""
        wrong = await owner.fetchval(
            "SELECT count(*) FROM webhook_delivery_sagas "
            "WHERE status <> 'Completed' OR attempt_count <> 1"
        )
        jobs = await owner.fetchval("SELECT count(*) FROM webhook_delivery_jobs")
        posts, distinct = self._null.sent, self._null.sent
        if self._receiver is not None:
            got = json.loads(self._receiver.communicate()[0])
            posts, distinct = got["posts"], got["distinct"]
        if wrong or not jobs == posts == distinct:
            raise SystemExit(f"lost or doubled: {wrong=} {jobs=} {posts=} {distinct=}")


def measure(options: argparse.Namespace) -> None:
    scratch = "/var/tmp" if os.geteuid() == 0 else None
    preload = {"shared_preload_libraries": "pg_stat_statements"} if options.statements else {}
    with tempfile.TemporaryDirectory(prefix="surehook-bench-", dir=scratch) as name:
        directory = Path(name)
        directory.chmod(0o711)  # the database may run as another account
        with EmbeddedServer(directory / "data", settings=preload) as server:
            figures = uvloop.run(Measurement(options, server, directory).run())
            limits = machine.limits(directory)
            print(json.dumps(figures | {f"machine {key}": limits[key] for key in LIMITS}))


# --- All of them, in turns -----------------------------------------------------------------------


def child(tree: Path, options: argparse.Namespace, sender: str, batch: int) -> Figures:
    own = tree / "bench" / HERE.name
    command = [sys.executable, str(own if own.exists() else HERE), "--measure"]
    command += ["--sender", sender, "--batch", str(batch)]
    command += ["--deliveries", str(options.deliveries)]
    command += ["--subscriptions", str(options.subscriptions)]
    command += ["--concurrency", str(options.concurrency)]
    command += ["--statements"] if options.statements else []
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def show(name: str, rounds: list[Figures], *, details: bool) -> None:
    middle = {key: statistics.median(each.get(key, 0.0) for each in rounds) for key in rounds[0]}
    parts = ("postgresql", "python", "receiver")
    both = {part: middle[f"ingest {part}"] + middle[f"deliver {part}"] for part in parts}
    spread = [each["deliver postgresql"] for each in rounds]
    print(
        f"{name:<24} {middle['deliver per second']:7,.0f}/s   "
        f"PostgreSQL {both['postgresql']:5.1f} (ingest {middle['ingest postgresql']:.1f}, "
        f"pipeline {middle['deliver postgresql']:.1f}: {min(spread):.1f}-{max(spread):.1f})   "
        f"Python {both['python']:5.1f} (ingest {middle['ingest python']:.1f}, "
        f"pipeline {middle['deliver python']:.1f})   receiver {both['receiver']:.1f}   machine: "
        + ", ".join(f"{middle.get(f'machine {key}', 0):,.0f} {key}" for key in LIMITS),
        flush=True,
    )
    for key, value in middle.items() if details else ():
        if key.startswith(("session ", "statement ")) and value >= 0.1:
            print(f"    {value:6.1f}  {key}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--against", type=Path, help="another source tree, measured in turns")
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--senders", default="null,tls")
    arguments.add_argument("--batches", default="100,500")
    arguments.add_argument("--deliveries", type=int, default=20_000)
    arguments.add_argument("--subscriptions", type=int, default=50)
    arguments.add_argument("--concurrency", type=int, default=0, help="0 = the batch")
    arguments.add_argument("--statements", action="store_true")
    arguments.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--sender", help=argparse.SUPPRESS)
    arguments.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.measure:
        measure(options)
        return
    trees = [HERE.parents[1], *([options.against.resolve()] if options.against else [])]
    for sender in options.senders.split(","):
        for batch in map(int, options.batches.split(",")):
            found: dict[Path, list[Figures]] = {tree: [] for tree in trees}
            for _ in range(options.rounds):
                for tree in trees:
                    found[tree].append(child(tree, options, sender, batch))
            for tree, rounds in found.items():
                which = "this" if tree == trees[0] else "other"
                show(f"{sender} {batch} {which}", rounds, details=True)


if __name__ == "__main__":
    main()
