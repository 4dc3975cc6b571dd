"""Puts components together into one process: databases, hints, loops, signals.

Reads   the configuration       Writes  nothing itself

Any mix of processes on any number of machines works together; they meet in the database.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from surehook import __version__, observe
from surehook.config import Config
from surehook.delivery import Sender
from surehook.delivery.client import HttpsSender, SenderSettings
from surehook.delivery.compose import Composer
from surehook.delivery.pool import PoolLimits
from surehook.delivery.secrets import Sealer, parse_keys
from surehook.delivery.trusted import TrustedOrigins
from surehook.errors import SurehookError
from surehook.model.records import Myself
from surehook.observe import crashpoints
from surehook.observe.listener import Listener
from surehook.observe.metrics import Metrics
from surehook.pipeline.cleaner import Cleaner
from surehook.pipeline.deadletters import DeadLetters
from surehook.pipeline.orchestrator import Orchestrator
from surehook.pipeline.registry import Registry
from surehook.pipeline.router import Router
from surehook.pipeline.service import Group, Loop, Service
from surehook.pipeline.shared_figures import SharedFigures
from surehook.pipeline.signers import refuse_without_key
from surehook.pipeline.slots import most_at_once
from surehook.pipeline.verifier import Verifier
from surehook.pipeline.vitals import Vitals
from surehook.pipeline.worker import Worker, new_worker_id
from surehook.store import open_database, store_of
from surehook.store.cleaner import CleanerStore
from surehook.store.database import Database
from surehook.store.deadletters import DeadLetterStore
from surehook.store.hints import Hints
from surehook.store.logins import DatabaseAccess
from surehook.store.observer import ObserverStore
from surehook.store.orchestrator import FIRST_RAMP, Caps, OrchestratorStore
from surehook.store.registry import RegistryStore
from surehook.store.router import RouterStore
from surehook.store.verifier import VerifierStore
from surehook.store.worker import WorkerStore

if TYPE_CHECKING:
    from surehook.api.server import Server

ANY_PORT = "127.0.0.1:0"
COMPONENTS = ("api", "verifier", "router", "orchestrator", "worker", "cleaner", "deadletters")


class Process:
    """The chosen components of one process, opened, and closed again in the end."""

    def __init__(
        self, config: Config, access: DatabaseAccess, sender: Callable[[], Sender] | None = None
    ) -> None:
        self._config = config
        self._access = access
        self._sender = sender or self._https_sender
        self.hints = Hints()
        self.databases: dict[str, Database] = {}
        self.group = Group([])
        self.api: Server | None = None
        self.listener: Listener | None = None
        self._metrics = Metrics()
        self._vitals: Vitals | None = None
        self._registry: Registry | None = None
        self._registry_opening = asyncio.Lock()

    async def open(self, names: Sequence[str]) -> None:
        self._bind_listener(names)
        await self._watch(names)
        for name in names:
            if name == "api":
                api = await self._api()
                installation = self.databases["observer"].installation
                self.group.services.append(Service(api, self.hints, None, installation))
                continue
            database = await self._database(name)
            component = await self._component(name, database, list(range(database.buckets)))
            self.group.services.append(
                Service(component, self.hints, database, database.installation)
            )
        first = next(iter(self.databases.values()))
        self.hints.send_outward(first.notify)

    def _bind_listener(self, names: Sequence[str]) -> None:
        """Health and figures need an address of their own where no API serves them."""
        wanted = self._config.text("observe.listen")
        if wanted == "off" or (wanted == "auto" and "api" in names):
            return
        address = ANY_PORT if wanted == "auto" else wanted
        self.listener = Listener(address)

    async def _watch(self, names: Sequence[str]) -> None:
        """Count what happens here, if somebody can ask for it."""
        observer: ObserverStore | None = None
        system: SharedFigures | None = None
        if "api" in names:
            observing = await self._database("observer")
            observer = store_of(ObserverStore, observing)
            system = SharedFigures(observer, self._registry_store)
        else:
            observing = await self._database(names[0])
        self._vitals = Vitals(
            observing,
            self.databases,
            self.group.services,
            self._metrics,
            observer,
            system,
            self._config.seconds("api.answer_timeout"),
        )
        if self.listener is not None or "api" in names:
            observe.listen(self._metrics)

    async def _database(self, component: str) -> Database:
        """The component's connections: one pool, whoever in this process asks for it."""
        if component not in self.databases:
            database = await open_database(self._config, self._access, component)
            self.databases[component] = database
            self._metrics.installation = database.installation
        return self.databases[component]

    async def _api(self) -> Loop:
        """The HTTP API with a login for each component that it calls."""
        from surehook.process.assembly import API_COMPONENTS, assemble

        databases = {name: await self._database(name) for name in API_COMPONENTS}
        assert self._vitals is not None
        self.api = assemble(
            self._config,
            self.hints,
            databases,
            observer=store_of(ObserverStore, databases["observer"]),
            vitals=self._vitals,
            sealer=self._sealer(),
            composer=self._composer(databases["verifier"]),
            sender=self._https_sender,
        )
        self.api.bind()
        return self.api

    async def _component(self, name: str, database: Database, buckets: list[int]) -> Loop:
        config = self._config
        match name:
            case "router":
                batch = config.number("orchestrator.batch")
                return Router(store_of(RouterStore, database), self.hints, buckets, batch)
            case "orchestrator":
                return Orchestrator(
                    store_of(OrchestratorStore, database, self._caps()),
                    self.hints,
                    buckets,
                    policy=config.policy,
                    batch=config.number("orchestrator.batch"),
                    open_jobs=config.number("orchestrator.open_jobs"),
                    slots=config.number("worker.concurrency"),
                    slow_slots=config.number("worker.slow_requests"),
                )
            case "worker":
                return await self._worker(database, buckets)
            case "cleaner":
                return Cleaner(store_of(CleanerStore, database), self.hints, buckets)
            case "verifier":
                return Verifier(
                    store_of(VerifierStore, database),
                    self._composer(database),
                    self._https_sender(),
                    TrustedOrigins(config.trusted_origins),
                )
            case "deadletters":
                return DeadLetters(store_of(DeadLetterStore, database), self.hints, buckets)
        raise AssertionError(name)

    def _caps(self) -> Caps:
        ceilings = self._config.ceilings
        return Caps(
            self._config.number("orchestrator.subscription_cap"),
            ceilings.concurrency_cap,
            ceilings.rate,
            FIRST_RAMP,
        )

    async def _worker(self, database: Database, buckets: list[int]) -> Worker:
        worker_id = new_worker_id()
        store = store_of(WorkerStore, database, worker_id)
        lease_seconds = self._config.seconds("worker.lease_duration")
        await refuse_without_key(store, self._sealer())
        return Worker(
            store,
            self.hints,
            buckets,
            sender=self._sender(),
            composer=self._composer(database),
            worker_id=worker_id,
            concurrency=self._config.number("worker.concurrency"),
            slow_requests=self._config.number("worker.slow_requests"),
            memory=self._config.number("worker.memory"),
            lease_seconds=lease_seconds,
        )

    def _sealer(self) -> Sealer:
        return Sealer(parse_keys(self._access.encryption_key or ""))

    def _composer(self, database: Database) -> Composer:
        return Composer(
            self._sealer(),
            database.installation,
            self._config.seconds("delivery.request_timeout"),
            self._config.ceilings.request_seconds,
        )

    def _https_sender(self) -> HttpsSender:
        ca_file = self._config.optional_path("delivery.ca_file")
        slots = most_at_once(
            self._config.number("worker.concurrency"), self._config.number("worker.slow_requests")
        )
        return HttpsSender(
            SenderSettings(
                allow_networks=tuple(str(network) for network in self._config.allow_networks),
                ca_file=str(ca_file) if ca_file else None,
                proxy=self._config.optional_text("delivery.proxy"),
                # All slots may be busy with one host: closing and reopening its connections
                # would cost ten times as much as the requests.
                pool=PoolLimits(per_origin=slots, total=max(2048, 2 * slots)),
            )
        )

    async def run(self) -> None:
        """Until stop(), or until SIGTERM or SIGINT; then drain."""
        try:
            await self._show()
            await self.group.run()
        finally:
            await self.close()

    async def _show(self) -> None:
        """Serve health and figures; let the registry know that this process runs."""
        assert self._vitals is not None
        address = self.api.address if self.api is not None else None
        if self.listener is not None:
            await self.listener.start(self._vitals.pages())
            address = self.listener.address
            observe.emit("observe.listening", listen=address)
        me = Myself(
            process_id=secrets.token_hex(8),
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            version=__version__,
            address=address,
        )
        self._registry = Registry(self._registry_store, me, self.group.services)
        self._registry.start()

    async def _registry_store(self) -> RegistryStore:
        async with self._registry_opening:  # the heartbeat and the figures ask for it
            return store_of(RegistryStore, await self._database("registry"))

    def stop(self) -> None:
        if self._vitals is not None:
            self._vitals.drain()
        self.group.stop()

    async def close(self) -> None:
        registry, self._registry = self._registry, None  # one farewell, however often we are called
        if registry is not None:
            await registry.stop()
        if self.listener is not None:
            await self.listener.close()
        if self._vitals is not None:
            await self._vitals.close()
        observe.forget(self._metrics)
        await self.hints.close()
        for database in self.databases.values():
            await database.close()


async def serve(
    config: Config,
    access: DatabaseAccess,
    names: Sequence[str],
    listening: Callable[[str], None] = lambda _address: None,
) -> None:
    """Run these components in this process until it is told to end; `listening` gets the address
    of the API, if it is among them."""
    crashpoints.arm_from_environment()
    process = Process(config, access)
    try:
        await process.open(names)
    except BaseException:
        await process.close()
        raise
    if process.api is not None:
        listening(process.api.address)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.stop)
    # Objects made so far live as long as the process: the collector need not look at them again,
    # nor so often at the many short-lived ones.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    try:
        await process.run()
    except* SurehookError as several:
        raise several.exceptions[0] from None
