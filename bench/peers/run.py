"""The same work by what a Python team would use instead, in the same minutes.

Reads   peers.py, the locks     Writes  temporary directories; with --json a file

    python bench/peers/run.py                          all of them, about ten minutes
    python bench/peers/run.py --peer pgqueuer --deliveries 2000 --json results.json

Task: sign this body of 1 KB and POST it over HTTPS, with retries, to one local receiver, the one of
`surehook bench`. PostgreSQL is surehook's embedded one, durable, for every peer that wants one;
Redis syncs every write. For each peer, with its workers running: tasks at 20/s (p50, p99 from
before the enqueuing call to the receiver), then many tasks as fast as it goes (rate until the last
has arrived; CPU of enqueuing, workers and database), then tasks during which all workers are killed
with SIGKILL and started again: what has not arrived after two minutes counts as lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import install  # noqa: E402
from peers import BY_NAME, PEERS, Peer  # noqa: E402

from surehook.bench import machine  # noqa: E402
from surehook.bench.cases import CASES, Plan  # noqa: E402
from surehook.bench.ledger import Arrived, Ledger, percentiles  # noqa: E402
from surehook.bench.measures import measure  # noqa: E402
from surehook.bench.publishing import publishing  # noqa: E402
from surehook.bench.servers import server_for  # noqa: E402
from surehook.bench.system import System  # noqa: E402
from surehook.embedded.server import EmbeddedServer  # noqa: E402
from surehook.receiver import certificates  # noqa: E402

LOW_PER_SECOND = 20
START_SECONDS_MAX = 60.0
LOST_SECONDS_MAX = 120.0
FLOW_SECONDS_MAX = 300.0
# What a dead worker held is given out again after ten seconds (tasks/): none is repeated before.
REPEAT_SECONDS = 15.0
Figures = dict[str, object]


@dataclass
class Amounts:
    deliveries: int = 10_000
    seconds: float = 5.0
    killed: int = 3_000


@dataclass(frozen=True)
class Store:
    """Where a peer keeps its queue."""

    environment: dict[str, str]
    pid: int


# ── The surroundings ──────────────────────────────────────────────────────────────────────────


@contextmanager
def store_for(peer: Peer, directory: Path) -> Iterator[Store]:
    if peer.needs == "redis":
        with redis_server(directory) as store:
            yield store
        return
    with EmbeddedServer(directory / "data") as server:
        password = server.passfile.read_text().strip().rpartition(":")[2]
        url = server.url
        parts = dict(one.split("=", 1) for one in url.partition("?")[2].split("&"))
        environment = {
            "PGHOST": parts["host"].replace("%2F", "/"),
            "PGPORT": parts["port"],
            "PGUSER": "surehook",
            "PGDATABASE": "surehook",
            "PGPASSWORD": password,
        }
        yield Store(environment, server.pid)


@contextmanager
def redis_server(directory: Path) -> Iterator[Store]:
    program = install.redis()
    assert program is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            program,
            "--bind",
            "127.0.0.1",
            "--port",
            str(port),
            "--dir",
            directory,
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--loglevel",
            "warning",
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: answers(port), START_SECONDS_MAX)
        yield Store({"PEER_REDIS": f"redis://127.0.0.1:{port}/0"}, process.pid)
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: object, seconds: float) -> bool:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Receiver:
    """The receiver of `surehook bench`, asked over its pipes."""

    def __init__(self, directory: Path) -> None:
        self.files = certificates.kept(directory / "certificates")
        self._file = directory / "arrived.json"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "surehook.bench.receiver", str(self.files.server_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"https://127.0.0.1:{self._line()}/0"

    def _line(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def _ask(self, question: str) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return self._line()

    def count(self) -> int:
        return self._ask("count")

    def arrived(self) -> dict[str, Arrived]:
        self._ask(f"dump {self._file}")
        found = json.loads(self._file.read_text())
        return {key: Arrived(int(a), int(b), c) for key, (a, b, c) in found.items()}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


# ── One peer ──────────────────────────────────────────────────────────────────────────────────


@dataclass
class Bench:
    """A peer's workers and its queue."""

    peer: Peer
    store: Store
    receiver: Receiver
    directory: Path
    ledger: Ledger = field(default_factory=Ledger)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.store.environment,
            "PEER_URL": self.receiver.url,
            "PEER_CA": str(self.receiver.files.ca_file),
            "PEER_SECRET": "a secret of the peers' measurement",
            "PYTHONPATH": str(HERE / "tasks"),
            "NODE_PATH": str(install.MODULES),
        }

    def command(self, *words: str) -> list[str]:
        program = str(HERE / "tasks" / self.peer.program)
        first = install.python() if self.peer.language == "python" else install.node()
        return [str(first), program, *words]

    def run(self, *words: str) -> None:
        subprocess.run(self.command(*words), env=self.environment, cwd=HERE / "tasks", check=True)

    def start_workers(self) -> None:
        command = self.command("work")
        if self.peer.worker:
            command = [str(install.VENV / "bin" / self.peer.worker[0]), *self.peer.worker[1:]]
        for number in range(self.peer.workers):
            named = command
            if self.peer.name == "celery":
                named = [*command, "-n", f"worker{number}-{secrets.token_hex(4)}@bench"]
            log = (self.directory / f"worker-{number}.log").open("ab")
            self.workers.append(
                subprocess.Popen(
                    named,
                    env=self.environment,
                    cwd=HERE / "tasks",
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def kill_workers(self) -> None:
        """Each with all that it started, at once."""
        for worker in self.workers:
            for pid in machine.children(worker.pid):
                os.kill(pid, signal.SIGKILL)
        for worker in self.workers:
            worker.wait()
        self.workers.clear()

    def enqueue(self, count: int, per_second: float, prefix: str) -> tuple[list[str], float]:
        """The ids, and the CPU that it took in microseconds."""
        file = self.directory / "enqueued.json"
        self.run("enqueue", str(count), str(per_second), prefix, str(file))
        said = json.loads(file.read_text())
        for key, at in said["times"].items():
            self.ledger.owe([key], at)
        return list(said["times"]), float(said["cpu_us"])

    def all_arrived(self, seconds: float) -> bool:
        return wait_until(lambda: self.receiver.count() >= len(self.ledger.owed), seconds)

    def cpu(self) -> int:
        pids = [pid for one in self.workers for pid in machine.children(one.pid)]
        return machine.cpu_microseconds([*pids, *machine.children(self.store.pid)])

    def measure(self, amounts: Amounts) -> Figures:
        if self.peer.needs == "postgresql":
            self.run("prepare")
        self.start_workers()
        self.enqueue(50, 0, "warm-")
        if not self.all_arrived(START_SECONDS_MAX):
            raise RuntimeError(f"{self.peer.name}: its workers do not work: {self.directory}")
        low, _ = self.enqueue(int(LOW_PER_SECOND * amounts.seconds), LOW_PER_SECOND, "low-")
        self.all_arrived(START_SECONDS_MAX)
        began, before = time.monotonic(), self.cpu()
        _, enqueuing = self.enqueue(amounts.deliveries, 0, "flow-")
        complete = self.all_arrived(FLOW_SECONDS_MAX)
        seconds = time.monotonic() - began
        used = self.cpu() - before + enqueuing
        figures: Figures = {
            "deliveries_per_s": round(amounts.deliveries / seconds) if complete else None,
            "cpu_us_per_delivery": round(used / amounts.deliveries, 1),
        }
        figures |= self.killed(amounts)
        delays = self.ledger.milliseconds(low, self.receiver.arrived())
        return {**figures, "latency_low_load_ms": percentiles(delays)}

    def killed(self, amounts: Amounts) -> Figures:
        """Every worker killed when a third has arrived, and started again."""
        before = self.receiver.count()
        self.enqueue(amounts.killed, 0, "kill-")
        wait_until(lambda: self.receiver.count() >= before + amounts.killed // 3, FLOW_SECONDS_MAX)
        self.kill_workers()
        at = time.monotonic()
        self.start_workers()
        if self.all_arrived(LOST_SECONDS_MAX):
            time.sleep(REPEAT_SECONDS)
        return verdict_after_kill(self.ledger, self.receiver.arrived(), at)


def verdict_after_kill(ledger: Ledger, arrived: dict[str, Arrived], at: float) -> Figures:
    verdict = ledger.verdict(arrived)
    last = max(one.first_at for one in arrived.values())
    return {
        "lost_after_kill": verdict.lost,
        "sent_again_after_kill": verdict.doubled,
        "seconds_after_kill": round(max(0.0, last - at), 1),
    }


def measured(peer: Peer, amounts: Amounts) -> Figures:
    directory = new_directory()
    receiver = Receiver(directory)
    try:
        with store_for(peer, directory) as store:
            bench = Bench(peer, store, receiver, directory)
            try:
                return {**bench.measure(amounts), "settings": peer.settings}
            finally:
                bench.kill_workers()
    finally:
        receiver.close()
        shutil.rmtree(directory, ignore_errors=True)


def new_directory() -> Path:
    """Where also a database that runs as another account can reach it."""
    place = "/var/tmp" if os.geteuid() == 0 else None
    made = Path(tempfile.mkdtemp(prefix="surehook-peers-", dir=place))
    made.chmod(0o711)
    return made


# ── surehook itself ───────────────────────────────────────────────────────────────────────────


async def ourselves(amounts: Amounts) -> Figures:
    case = CASES["one-endpoint"]
    plan = Plan(deliveries=amounts.deliveries, seconds=amounts.seconds)
    directory = new_directory()
    (directory / "flow").mkdir(mode=0o711)
    figures = await measure(case, plan, directory / "flow", lambda _: None)
    cpu = figures["cpu_us_per_delivery"]
    assert isinstance(cpu, dict)
    try:
        return {
            "deliveries_per_s": figures["deliveries_per_s"],
            "cpu_us_per_delivery": cpu["all"],
            **await our_kill(amounts, directory),
            "latency_low_load_ms": figures["latency_low_load_ms"],
            "settings": "`surehook bench --case one-endpoint`; its worker killed and restarted",
        }
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def our_kill(amounts: Amounts, directory: Path) -> Figures:
    case, plan = CASES["one-endpoint"], Plan()
    with server_for(case, plan, directory) as server:
        async with System(case, plan, server, directory) as system, publishing(system) as publisher:
            await publisher.publish(200)
            await system.done()
            before = await system.ask_receiver("count")
            publishing_all = asyncio.ensure_future(publisher.publish(amounts.killed))
            while await system.ask_receiver("count") < before + amounts.killed // 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # another process counts
            at = time.monotonic()
            system.restart("worker", signal.SIGKILL)
            await publishing_all
            await system.done()
            return verdict_after_kill(system.ledger, dict(await system.arrived()), at)


# ── The table ─────────────────────────────────────────────────────────────────────────────────

COLUMNS = (
    "",
    "deliveries/s",
    "CPU µs per delivery",
    "p50 / p99 ms at 20/s",
    "not there 2 min after kill -9",
    "sent again",
    "last after s",
)


def table(results: dict[str, Figures]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for name, found in results.items():
        if "not_run" in found:
            lines.append(f"| {name} | {found['not_run']} |" + " |" * (len(COLUMNS) - 2))
            continue
        low = found["latency_low_load_ms"]
        assert isinstance(low, dict)
        cells = (
            name,
            found["deliveries_per_s"],
            found["cpu_us_per_delivery"],
            f"{low['p50']} / {low['p99']}",
            found["lost_after_kill"],
            found["sent_again_after_kill"],
            found["seconds_after_kill"],
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def missing(peer: Peer) -> str | None:
    if peer.language == "node" and install.node() is None:
        return "Node or its packages are not here"
    if peer.language == "python" and install.python() is None:
        return "its packages cannot be installed"
    if peer.needs == "redis" and install.redis() is None:
        return "redis-server is not here"
    return None


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", choices=["surehook", *BY_NAME], action="append")
    parser.add_argument("--deliveries", type=int, default=Amounts.deliveries)
    parser.add_argument("--killed", type=int, default=Amounts.killed, help="tasks of the kill")
    parser.add_argument("--seconds", type=float, default=Amounts.seconds, help="of the latency run")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(given)
    amounts = Amounts(options.deliveries, options.seconds, options.killed)
    names = options.peer or ["surehook", *(peer.name for peer in PEERS)]
    scratch = Path(tempfile.gettempdir())
    results: dict[str, Figures] = {}
    for name in names:
        before = machine.gauge(scratch)
        if name == "surehook":
            found = asyncio.run(ourselves(amounts))
        elif (why := missing(BY_NAME[name])) is not None:
            found = {"not_run": why}
        else:
            found = measured(BY_NAME[name], amounts)
        found["work_us"] = before.between(machine.gauge(scratch)).work_us
        results[name] = found
        print(f"{name}: {json.dumps(found)}", file=sys.stderr, flush=True)
    print(table(results))
    if options.json is not None:
        report = {"machine": machine.limits(scratch), "amounts": vars(amounts), "results": results}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
