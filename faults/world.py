"""World: a database server, the product's processes, a receiver and publishers, for one scenario.

Reads   what the processes log and answer; the database only to see when all has come to rest
Writes  a directory for logs and one for data; events, subscriptions, a key

    await world.open()                                database, schema, key, receiver
    await world.start(api=2, router=2, worker=2)      processes; each is in world.programs
    await world.subscribe("a", "b")                   verified subscriptions
    async with world.load(http=60, outbox=20, events=2000):
        ... break something; await world.offered(500) ...
    await world.settle()                              all that is owed has arrived, or never will
    return {**await world.figures(), "my figure": 1.0}
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.databases import SERVERS, DatabaseServer, free_port
from faults.ledger import Arrival, Ledger
from faults.processes import Program, run_command
from faults.publishers import Answer, HttpPublisher, OutboxPublisher, Publisher, patiently
from support import certificates
from support.connections import connected, is_mysql
from support.http import Client
from support.old_program import Previous
from support.receiver import Answer as Reply
from support.receiver import ReceivedRequest, Receiver
from support.server import ENCRYPTION_KEY, ROLE_SECRET
from support.waiting import until
from surehook.process.components import COMPONENTS

# One deadline for a request; a lease is at least 5 s longer.
REQUEST_SECONDS = 5.0
LEASE_SECONDS = 10.0
WORKER_CONCURRENCY = 16
SETTINGS: Mapping[str, object] = {
    "request_timeout": f"{REQUEST_SECONDS}s",
    "lease_duration": f"{LEASE_SECONDS}s",
    "retry_base_delay": "1s",
    "retry_max_attempts": 8,
    "worker_concurrency": WORKER_CONCURRENCY,
    "worker_slow_requests": WORKER_CONCURRENCY,
}
# What each subscription may have open: enough for every rate here where results are found by
# polling, and while a worker that died holds some of it.
CONCURRENCY_CAP = 128
EVENT_TYPE = "faults.load"
REST_SECONDS = 0.2
LOAD_SECONDS_MAX = 3600.0
SETTLE_SECONDS_MAX = 180.0
UNFINISHED = (
    "SELECT count(*) FROM webhook_delivery_sagas "
    "WHERE status IN ('Pending', 'InProgress', 'PendingRetry')"
)
SHOP, SHOP_PASSWORD = "faults_shop", "sesame"
Behaviour = Callable[[ReceivedRequest], Reply]


@dataclass(frozen=True)
class Subscription:
    name: str
    id: int
    event_type: str


class World:
    def __init__(
        self, engine: str, logs: Path, data: Path, dice: random.Random, *, long: bool = False
    ) -> None:
        self.engine = engine
        self.logs = logs
        self.data = data
        self.dice = dice
        self.long = long
        self.ledger = Ledger()
        self.receiver = Receiver()
        self.programs: list[Program] = []
        self.subscriptions: dict[str, Subscription] = {}
        self.publishers: list[Publisher] = []
        self.key = ""
        self.previous: Previous | None = None  # while set, whose commands and processes run
        self._database: DatabaseServer | None = None
        self._settings: dict[str, object] = dict(SETTINGS)
        self._behaviours: dict[str, Behaviour] = {}
        self._url: str | None = None
        self._shop_url = ""

    @property
    def database(self) -> DatabaseServer:
        assert self._database is not None, "the scenario has not opened the world"
        return self._database

    @property
    def url(self) -> str:
        """Where the processes find the database."""
        return self._url or self.database.url

    # ── Its beginning and its end ─────────────────────────────────────────────────────────────

    async def open(
        self,
        *,
        database: DatabaseServer | None = None,
        url: str | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """A started database with schema and key, and the receiver.

        `database`: another server than the usual one, not started yet. `url`: another way to it
        for the processes, such as a proxy. `settings`: {"lease_duration": "20s"}.
        """
        self._settings |= settings or {}
        self._url = url
        await self.receiver.__aenter__()
        server = database or SERVERS[self.engine](self.data / "database")
        await server.start()
        self._database = server
        await self.command("migrate")
        await self.admit(server.url)

    async def open_embedded(self, server: DatabaseServer, data_dir: Path) -> Program:
        """`surehook serve` with its own server, which `server` only watches."""
        self._settings |= {"data_dir": data_dir}
        await self.receiver.__aenter__()
        serve = self.program("serve")
        serve.launch()
        await serve.started(len(COMPONENTS))
        await server.start()
        await self.admit(server.url)
        self._database = server
        return serve

    def use(self, server: DatabaseServer) -> None:
        """Another server has taken over."""
        self._database = server

    async def admit(self, owner_url: str) -> None:
        """A key, and a login for the application that publishes through the outbox."""
        made = await self.command("key", "create", "--name", "faults", "--scope", "admin", "--json")
        self.key = json.loads(made)["key"]
        self._shop_url = await open_shop(owner_url)

    async def close(self) -> None:
        for publisher in self.publishers:
            publisher.stop()
        for program in self.programs:
            program.send(signal.SIGCONT)
            if program.is_running:
                await program.kill()
        if self.receiver.url:
            await self.receiver.__aexit__()
        if self._database is not None:
            await self._database.close()

    # ── Processes ─────────────────────────────────────────────────────────────────────────────

    def environment(self, **settings: object) -> dict[str, str]:
        """Of every process and command; `settings` win: environment(lease_duration="20s")."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if "SUREHOOK" not in name and name != "DATABASE_URL"
        }
        ours: dict[str, object] = {
            "config": os.devnull,
            "database_url": "" if "data_dir" in self._settings else self.url,
            "role_secret": ROLE_SECRET,
            "encryption_key": ENCRYPTION_KEY,
            "allow_networks": "127.0.0.0/8",
            "ca_file": certificates.ca_file(),
            "verification_trusted": self.receiver.url,
            "log_format": "json",
            **self._settings,
            **settings,
        }
        given = {f"SUREHOOK_{name.upper()}": str(value) for name, value in ours.items() if value}
        made = {**kept, "XDG_STATE_HOME": str(self.logs / "state"), **given}
        return made if self.previous is None else self.previous.environment(made)

    async def command(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """What one of our commands printed; it must end with one of these codes."""
        code, out, err = await run_command(arguments, self.environment())
        if code not in codes:
            raise RuntimeError(f"surehook {' '.join(arguments)}: exit {code}: {out}{err}")
        return out

    def program(self, *arguments: str, **settings: object) -> Program:
        """Not launched yet; the name of a component is enough: program("worker")."""
        words = arguments if len(arguments) > 1 or arguments == ("serve",) else ("run", *arguments)
        if words[-1] in ("api", "serve"):
            settings = {"listen": f"127.0.0.1:{free_port()}", **settings}
        name = f"{words[-1]}-{sum(one.component == words[-1] for one in self.programs) + 1}"
        program = Program(name, words, self.environment(**settings), self.logs / f"{name}.log")
        self.programs.append(program)
        return program

    def successor(self, program: Program) -> Program:
        """Another process of the same component, at the same address; not launched yet."""
        where = {"listen": program.address} if program.address else {}
        return self.program(program.component, **where)

    async def start(self, **counts: int) -> list[Program]:
        """start(api=2, worker=3): so many processes of each, at work."""
        return await self.launch(
            [self.program(component) for component, count in counts.items() for _ in range(count)]
        )

    async def launch(self, programs: list[Program]) -> list[Program]:
        """The same, once all of them are at work."""
        for program in programs:
            program.launch()
            await asyncio.sleep(0)  # the receiver answers meanwhile
        for program in programs:
            await program.started()
        return programs

    async def start_everything(self, several: int = 2) -> list[Program]:
        """Each component in processes of its own."""
        return await self.start(**everything(several))

    def running(self, component: str) -> list[Program]:
        return [one for one in self.programs if one.component == component and one.is_running]

    def addresses(self) -> list[str]:
        """Of every API, whether it runs at the moment or not."""
        return list(dict.fromkeys(one.address for one in self.programs if one.address))

    # ── Subscriptions and what the receiver does ──────────────────────────────────────────────

    async def subscribe(self, *names: str, event_type: str = EVENT_TYPE, **more: object) -> None:
        """Verified subscriptions, one path of the receiver each; `more`: settings of the API."""
        client = Client(self.addresses()[0], self.key)
        for name in names:
            self.receiver.answer_with(f"/{name}", self._capture(name))
            body = {
                "event_type": event_type,
                "callback_url": f"{self.receiver.url}/{name}",
                "concurrency_cap": CONCURRENCY_CAP,
                **more,
            }
            reply = await client.post("/v1/subscriptions", body)
            assert reply.status == 201, reply.body
            made = Subscription(name, reply.json()["id"], event_type)
            self.subscriptions[name] = made
        for name in names:
            await self._until_verified(client, self.subscriptions[name].id)

    async def _until_verified(self, client: Client, subscription_id: int) -> None:
        async def verified() -> bool:
            shown = await client.get(f"/v1/subscriptions/{subscription_id}")
            return shown.status == 200 and bool(shown.json()["verified"])

        await until(verified)

    def behave(self, name: str, behaviour: Behaviour) -> None:
        """How the receiver answers this subscription from now on; 200 at once is the default."""
        self._behaviours[name] = behaviour

    def _capture(self, name: str) -> Behaviour:
        def answer(request: ReceivedRequest) -> Reply:
            behaviour = self._behaviours.get(name)
            reply = behaviour(request) if behaviour is not None else Reply()
            self.ledger.arrive(
                Arrival(
                    json.loads(request.body)["tag"],
                    name,
                    request.headers["webhook-id"],
                    time.monotonic(),
                    0 if reply.hang or reply.close else reply.status,
                    int(request.headers["webhook-timestamp"]),
                )
            )
            return reply

        return answer

    def owed(self, event_type: str = EVENT_TYPE) -> list[str]:
        return [one.name for one in self.subscriptions.values() if one.event_type == event_type]

    # ── Load ──────────────────────────────────────────────────────────────────────────────────

    def http(
        self,
        rate: float,
        events: int | None = None,
        *,
        event_type: str = EVENT_TYPE,
    ) -> HttpPublisher:
        prefix = f"http-{len(self.publishers)}"
        publisher = HttpPublisher(
            *(self.ledger, prefix, rate, events, self.owed(event_type)),
            addresses=self.addresses,
            key=self.key,
            event_type=event_type,
        )
        self.publishers.append(publisher)
        return publisher

    def outbox(self, rate: float, events: int | None = None) -> OutboxPublisher:
        prefix = f"outbox-{len(self.publishers)}"
        publisher = OutboxPublisher(
            *(self.ledger, prefix, rate, events, self.owed()),
            url=self.shop_url,
            event_type=EVENT_TYPE,
        )
        self.publishers.append(publisher)
        return publisher

    def shop_url(self) -> str:
        """Of the application that publishes through the outbox."""
        return self._shop_url

    def move_shop(self, url: str) -> None:
        """Another way to the database for the application."""
        self._shop_url = url

    @asynccontextmanager
    async def load(
        self, *, http: float, outbox: float = 0, events: int | None = None
    ) -> AsyncIterator[None]:
        """Publishers at these rates per second. With `events` the block goes on after its end
        until so many were offered in all; else the load ends with the block."""
        share = outbox / (http + outbox)
        by_outbox = None if events is None else round(events * share)
        by_http = None if events is None or by_outbox is None else events - by_outbox
        publishers: list[Publisher] = [self.http(http, by_http)]
        if outbox:
            publishers.append(self.outbox(outbox, by_outbox))
        async with asyncio.TaskGroup() as group:
            for publisher in publishers:
                group.create_task(publisher.run())
            yield
            if events is None:
                for publisher in publishers:
                    publisher.stop()

    async def offered(self, events: int) -> None:
        """Until so many events were offered in all."""
        await until(lambda: sum(one.offered for one in self.publishers) >= events, LOAD_SECONDS_MAX)

    async def offered_more(self, events: int) -> None:
        """Until so many more than now were offered."""
        await self.offered(sum(one.offered for one in self.publishers) + events)

    def answers(self) -> Iterator[Answer]:
        """Of every request over HTTP so far."""
        for publisher in self.publishers:
            if isinstance(publisher, HttpPublisher):
                yield from publisher.answers

    async def resumed(self, moment: float, seconds: float = SETTLE_SECONDS_MAX) -> float:
        """Seconds from `moment` until an event that was acknowledged after it has arrived: every
        component is at work again."""
        found: list[float] = []
        looked = len(self.ledger.arrivals)

        def arrived() -> bool:
            nonlocal looked
            new = self.ledger.arrivals[looked:]
            looked += len(new)
            found.extend(
                one.at for one in new if self.ledger.acknowledged.get(one.tag, 0.0) > moment
            )
            return bool(found)

        with contextlib.suppress(AssertionError):  # then the figure says so
            await until(arrived, seconds)
        return (min(found) if found else time.monotonic()) - moment

    # ── Judgement ─────────────────────────────────────────────────────────────────────────────

    async def settle(self, seconds: float = SETTLE_SECONDS_MAX) -> None:
        """Until everything owed has arrived and nothing is under way, or until it never will.

        The database is asked only whether anything may still be sent.
        """
        with contextlib.suppress(AssertionError):  # then the figures say so
            await until(lambda: self.ledger.is_settled, seconds)
            await self.at_rest(seconds)

    async def at_rest(self, seconds: float = SETTLE_SECONDS_MAX) -> None:
        """Until nothing is under way, whatever may be missing."""
        await until(lambda: patiently(self._is_at_rest), seconds)

    async def _is_at_rest(self) -> bool:
        await asyncio.sleep(REST_SECONDS)
        async with self.database.connect() as connection:
            return int(await connection.fetchval(UNFINISHED)) == 0

    async def figures(self) -> dict[str, float]:
        """What PROMISES are about, and some more; after `settle`."""
        verdict = self.ledger.verdict()
        (self.logs / "verdict.txt").write_text(f"{verdict}\n")
        checked = json.loads(await self.command("check", "--json", "--margin", "0s", codes=(0, 1)))
        (self.logs / "check.json").write_text(json.dumps(checked, indent=1))
        return {
            "events": verdict.acknowledged,
            "arrivals": verdict.arrivals,
            "lost": len(verdict.lost),
            "phantom": len(verdict.phantom),
            "second ids": len(verdict.second_ids),
            "extra sends": verdict.extra_sends,
            "extra sends, %": round(verdict.extra_percent, 4),
            "latest arrival": round(verdict.latest_seconds, 3),
            "broken invariants": sum(bool(one["broken"]) for one in checked["invariants"]),
            "unexpected exits": sum(one.broke for one in self.programs),
        }


def everything(several: int = 2) -> dict[str, int]:
    """How many processes of each component a whole system has."""
    single = ("verifier", "deadletters")
    return {name: 1 if name in single else several for name in COMPONENTS}


def shop_url_at(owner_url: str) -> str:
    """The application's login, at the server that this URL leads to."""
    scheme, _, rest = owner_url.partition("://")
    login, _, where = rest.rpartition("@")
    assert login
    return f"{scheme}://{SHOP}:{SHOP_PASSWORD}@{where}"


async def open_shop(owner_url: str) -> str:
    """The application's table and login, with the rights of docs/outbox.md and no others."""
    async with connected(owner_url) as owner:
        statements = _shop_on_mysql() if is_mysql(owner_url) else _shop_on_postgresql()
        native: Any = owner.native if is_mysql(owner_url) else owner.execute
        for statement in statements:
            await native(statement)
    return shop_url_at(owner_url)


def _shop_on_postgresql() -> list[str]:
    return [
        "CREATE TABLE shop_orders (tag VARCHAR(100) PRIMARY KEY)",
        f"CREATE ROLE {SHOP} LOGIN PASSWORD '{SHOP_PASSWORD}'",
        f"GRANT outbox_writer TO {SHOP}",
        f"GRANT INSERT, SELECT ON shop_orders TO {SHOP}",
    ]


def _shop_on_mysql() -> list[str]:
    who = f"{SHOP}@'%'"
    columns = "event_type, payload, tenant, external_id, bucket"
    return [
        "CREATE TABLE shop_orders (tag VARCHAR(100) PRIMARY KEY)",
        f"CREATE USER {who} IDENTIFIED BY '{SHOP_PASSWORD}'",
        f"GRANT INSERT ({columns}) ON events TO {who}",
        f"GRANT EXECUTE ON FUNCTION surehook_bucket TO {who}",
        f"GRANT INSERT, SELECT ON shop_orders TO {who}",
    ]
