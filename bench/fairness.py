"""What a tenant notices of others whose endpoints hang.

Reads   the source trees that it is given
Writes  only in a temporary directory; figures to standard output; no traffic at all

    python bench/fairness.py
    python bench/fairness.py --engines mariadb --hanging 130,1000 --tenants 100
    python bench/fairness.py --against ../before --hanging 1,130

Each measurement is a process of its own: a fresh durable server, all components in this process.
One tenant publishes `--rate` events per second to an endpoint that answers at once, `--seconds` in
each of four phases:

alone       nobody else has anything to do
answering   `--events` events come at once for so many subscriptions of so many other tenants, whose
            endpoints answer at once too: what the work for the others costs
hanging     the same again, for other subscriptions, whose endpoints never answer
later       they still hang

Figures: milliseconds from storing an event to sending it. What hanging endpoints take from others
is the ratio of `hanging` to `answering` (the same work arrives) and of `later` to `alone` (no work
arrives). What was not sent within `--patience` seconds counts as that. `--cap` is the concurrency
cap that the others ask for. With `--proven` those that hang have answered for a while before.

On a busy machine compare within a line only, and repeat.
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
from surehook.config import load  # noqa: E402
from surehook.delivery import ErrorCode, Outcome, Request  # noqa: E402
from surehook.delivery.secrets import Sealer, parse_keys  # noqa: E402
from surehook.delivery.signature import new_shared_secret  # noqa: E402
from surehook.embedded.server import EmbeddedServer  # noqa: E402
from surehook.model.records import SIGNING_CONTEXT, NewEvent  # noqa: E402
from surehook.process.serve import Process  # noqa: E402
from surehook.store import engine_of, open_database, store_of  # noqa: E402
from surehook.store.ingest import IngestStore  # noqa: E402
from surehook.store.logins import DatabaseAccess, Login  # noqa: E402

ENGINES = ("postgresql", "mariadb")
COMPONENTS = ("router", "orchestrator", "worker", "cleaner", "deadletters")
ROLE_SECRET = "a role secret for benchmarks only"
ENCRYPTION_KEY = "5e" * 32
SETTLE_SECONDS = 2.0
Figures = dict[str, float]


class Endpoints:
    """All answer at once, but for those of hogs once they are told to hang."""

    def __init__(self) -> None:
        self.hang = False
        self.hanging = 0
        self.most = 0
        self.left = 0  # so many of the others' are still to be answered
        self.all_answered = asyncio.Event()
        self.sent: dict[str, asyncio.Future[float]] = {}

    def expect(self, count: int) -> None:
        self.left = count
        self.all_answered.clear()

    async def start(self) -> None:
        pass

    async def send(self, request: Request) -> Outcome:
        if "/measured" in request.url:
            future = self.sent.get(request.body.decode())
            if future is not None and not future.done():
                future.set_result(time.perf_counter())
        elif self.hang and request.url.endswith("/hog"):
            self.hanging += 1
            self.most = max(self.most, self.hanging)
            await asyncio.sleep(request.deadline_seconds)
            self.hanging -= 1
            return Outcome(None, ErrorCode.TIMEOUT)
        else:
            self.left -= 1
            if self.left == 0:
                self.all_answered.set()
        return Outcome(200, None)

    async def close(self) -> None:
        pass


@contextmanager
def server(engine: str, directory: Path) -> Iterator[str]:
    if engine == "postgresql":
        with EmbeddedServer(directory / "data") as embedded:
            yield embedded.url
        return
    with MariadbServer(directory / "mariadb", "--innodb-flush-method=fsync") as private:
        yield private.url


class Measurement:
    def __init__(self, options: argparse.Namespace, url: str) -> None:
        self._options = options
        self._endpoints = Endpoints()
        self._access = DatabaseAccess(url, ROLE_SECRET, ENCRYPTION_KEY)
        self._config = load(
            Path(os.devnull),
            {
                "SUREHOOK_DATABASE_URL": url,
                "SUREHOOK_ROLE_SECRET": ROLE_SECRET,
                "SUREHOOK_ENCRYPTION_KEY": ENCRYPTION_KEY,
            },
        )

    async def run(self) -> Figures:
        engine = engine_of(self._access.url)
        connection = await engine.connect(Login("bench", self._access.url), 5)
        await engine.migrate(connection, role_secret=ROLE_SECRET)
        await connection.close()
        async with connected(self._access.url) as owner:
            await self._subscribe(owner)
        process = Process(self._config, self._access, lambda: self._endpoints)
        await process.open(COMPONENTS)
        work = asyncio.get_running_loop().create_task(process.run())
        database = await open_database(self._config, self._access, "ingest")
        ingest = Ingest(store_of(IngestStore, database), process.hints)
        try:
            return await self._measure(ingest)
        finally:
            self._endpoints.hang = False
            process.stop()
            work.cancel()  # what hangs is not waited for
            await asyncio.gather(work, return_exceptions=True)
            await database.close()

    async def _subscribe(self, owner: Any) -> None:
        sealer = Sealer(parse_keys(ENCRYPTION_KEY))
        options = self._options
        wanted = [("measured", "measured", "https://null.test/measured", None)]
        wanted += [
            (f"{kind}-{n % options.tenants}", f"{kind}.{n}", f"https://null.test/{kind}", cap)
            for kind in ("good", "hog")
            for n in range(options.hanging)
            for cap in (options.cap or None,)
        ]
        for tenant, event_type, url, cap in wanted:
            subscription_id = await owner.fetchval(
                "INSERT INTO subscriptions (tenant, event_type, callback_url, verified, "
                "concurrency_cap) VALUES ($1, $2, $3, true, $4) RETURNING id",
                tenant,
                event_type,
                url,
                cap,
            )
            await owner.execute(
                "INSERT INTO subscription_secrets (subscription_id, scheme, sealed) "
                "VALUES ($1, 'v1', $2)",
                subscription_id,
                sealer.seal(new_shared_secret().reveal(), SIGNING_CONTEXT),
            )

    async def _measure(self, ingest: Ingest) -> Figures:
        options = self._options
        await self._latencies(ingest, 2)  # connections, plans, a proven endpoint
        if options.proven:
            for kind in ("good", "hog"):
                self._endpoints.expect(8 * options.hanging)
                await self._publish(ingest, kind, 8 * options.hanging)
                await self._all_answered()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        phases = {"alone": await self._latencies(ingest, options.seconds)}
        self._endpoints.expect(options.events)
        phases["answering"] = await self._beside(ingest, "good")
        await self._all_answered()
        self._endpoints.hang = True
        phases["hanging"] = await self._beside(ingest, "hog")
        phases["later"] = await self._latencies(ingest, options.seconds)
        figures: Figures = {"hung": self._endpoints.most}
        for name, waits in phases.items():
            figures[f"{name}_p50"] = _percentile(waits, 50)
            figures[f"{name}_p99"] = _percentile(waits, 99)
            figures[f"{name}_max"] = max(waits)
        return figures

    async def _beside(self, ingest: Ingest, kind: str) -> list[float]:
        waits, _ = await asyncio.gather(
            self._latencies(ingest, self._options.seconds),
            self._publish(ingest, kind, self._options.events),
        )
        return waits

    async def _all_answered(self) -> None:
        await self._endpoints.all_answered.wait()
        await asyncio.sleep(SETTLE_SECONDS)

    async def _publish(self, ingest: Ingest, kind: str, count: int) -> None:
        options = self._options
        for first in range(0, count, 500):
            numbers = (n % options.hanging for n in range(first, min(first + 500, count)))
            await ingest.publish_all(
                [NewEvent(f"{kind}.{n}", "{}", f"{kind}-{n % options.tenants}") for n in numbers]
            )

    async def _latencies(self, ingest: Ingest, seconds: float) -> list[float]:
        """In milliseconds, of one event after the other at a steady rate."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        waits = []
        for number in range(int(seconds * self._options.rate)):
            await asyncio.sleep(max(0.0, began + number / self._options.rate - loop.time()))
            waits.append(loop.create_task(self._latency(ingest, f'"{began}-{number}"')))
        return list(await asyncio.gather(*waits))

    async def _latency(self, ingest: Ingest, payload: str) -> float:
        sent = self._endpoints.sent[payload] = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        await ingest.publish(NewEvent("measured", payload, "measured"))
        try:
            async with asyncio.timeout(self._options.patience):
                return (await sent - began) * 1000
        except TimeoutError:
            return self._options.patience * 1000.0


def _percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]


def measure(options: argparse.Namespace) -> None:
    scratch = "/var/tmp" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="surehook-bench-", dir=scratch) as name:
        directory = Path(name)
        directory.chmod(0o711)  # the server may run as another account
        with server(options.engine, directory) as url:
            print(json.dumps(uvloop.run(Measurement(options, url).run())))


PHASES = ("alone", "answering", "hanging", "later")
NUMBERS = ("rate", "seconds", "events", "cap", "patience")


def child(
    tree: Path, options: argparse.Namespace, engine: str, hanging: int, tenants: int
) -> Figures:
    command = [sys.executable, str(HERE), "--engine", engine]
    command += ["--hanging", str(hanging), "--tenants", str(tenants)]
    for name in NUMBERS:
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--proven"] if options.proven else []
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--engines", default=",".join(ENGINES))
    arguments.add_argument("--hanging", default="1,10,130,1000", help="subscriptions that hang")
    arguments.add_argument("--tenants", default="1,100", help="of so many tenants")
    arguments.add_argument("--against", type=Path, help="another source tree, measured in turns")
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--rate", type=int, default=50)
    arguments.add_argument("--seconds", type=int, default=10)
    arguments.add_argument("--events", type=int, default=6000)
    arguments.add_argument("--cap", type=int, default=0, help="0 = not set")
    arguments.add_argument("--patience", type=int, default=30)
    arguments.add_argument("--proven", action="store_true")
    arguments.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.engine:
        options.hanging, options.tenants = int(options.hanging), int(options.tenants)
        measure(options)
        return
    trees = [HERE.parents[1], *([options.against.resolve()] if options.against else [])]
    print(f"{'':<36}" + "".join(f"{phase:>22}" for phase in PHASES) + f"{'ratio of p99':>20}")
    print(
        f"{'':<36}" + f"{'p50    p99    max':>22}" * len(PHASES) + f"{'hanging  later':>20}  hung"
    )
    for engine in options.engines.split(","):
        for tenants in map(int, options.tenants.split(",")):
            for hanging in map(int, options.hanging.split(",")):
                for tree in trees:
                    rounds = [
                        child(tree, options, engine, hanging, min(tenants, hanging))
                        for _ in range(options.rounds)
                    ]
                    which = "" if tree == trees[0] else " (other)"
                    name = f"{engine}, {hanging} of {min(tenants, hanging)}{which}"
                    show(name, rounds)


def show(name: str, rounds: list[Figures]) -> None:
    middle = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
    line = f"{name:<36}"
    for phase in PHASES:
        line += "  " + "".join(f"{middle[f'{phase}_{key}']:7.0f}" for key in ("p50", "p99", "max"))
    for phase, other in (("hanging", "answering"), ("later", "alone")):
        ratios = [each[f"{phase}_p99"] / each[f"{other}_p99"] for each in rounds]
        line += f"{statistics.median(ratios):9.2f}"
    print(f"{line}{middle['hung']:8.0f}", flush=True)


if __name__ == "__main__":
    main()
