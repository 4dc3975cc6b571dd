"""What the components of one process are made of, each thing once; components.py says how.

Reads   the configuration       Writes  nothing itself
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from surehook.config import Config
from surehook.delivery import Sender
from surehook.delivery.client import HttpsSender, SenderSettings
from surehook.delivery.compose import Composer
from surehook.delivery.pool import PoolLimits
from surehook.delivery.secrets import Sealer, parse_keys
from surehook.observe.metrics import Metrics
from surehook.pipeline.service import Service
from surehook.pipeline.shared_figures import SharedFigures
from surehook.pipeline.slots import most_at_once
from surehook.pipeline.vitals import Vitals
from surehook.process.components import COMPONENTS
from surehook.store import Kind, open_database, store_of
from surehook.store.database import Database
from surehook.store.hints import Hints
from surehook.store.logins import DatabaseAccess
from surehook.store.observer import ObserverStore
from surehook.store.registry import RegistryStore


class Assembly:
    """The parts that components share, and the components made of them."""

    def __init__(
        self,
        config: Config,
        access: DatabaseAccess,
        sender: Callable[[], Sender] | None = None,
        api_socket: socket.socket | None = None,
    ) -> None:
        self.config = config
        self.api_socket = api_socket
        self.sender = sender or self.https_sender
        self.hints = Hints()
        self.metrics = Metrics()
        self.databases: dict[str, Database] = {}
        self.services: list[Service] = []
        self.vitals: Vitals | None = None  # until open()
        self._access = access
        self._opening = asyncio.Lock()

    async def open(self, names: Sequence[str]) -> None:
        """Make these components, each with its own logins."""
        self.vitals = await self._vitals(names)
        for name in names:
            component = COMPONENTS[name]
            database = await self.database(component.login)
            loop = await component.make(self)
            self.services.append(Service(loop, self.hints, database, database.installation))
        first = next(iter(self.databases.values()))
        self.hints.send_outward(first.notify)

    async def _vitals(self, names: Sequence[str]) -> Vitals:
        """Only the API's process may read and show what the whole system does."""
        observer: ObserverStore | None = None
        system: SharedFigures | None = None
        if "api" in names:
            observer = await self.store(ObserverStore)
            system = SharedFigures(observer, self.registry)
        return Vitals(
            await self.database(COMPONENTS["api" if "api" in names else names[0]].login),
            self.databases,
            self.services,
            self.metrics,
            observer,
            system,
            self.config.seconds("api.answer_timeout"),
        )

    async def database(self, login: str) -> Database:
        """The login's connections: one pool per process."""
        async with self._opening:
            if login not in self.databases:
                database = await open_database(self.config, self._access, login)
                self.databases[login] = database
                self.metrics.installation = database.installation
            return self.databases[login]

    async def store(self, contract: Callable[..., Kind], *more: object) -> Kind:
        """The store with its own login, which has the name of the contract's file."""
        login = contract.__module__.rpartition(".")[2]
        return store_of(contract, await self.database(login), *more)

    async def registry(self) -> RegistryStore:
        return await self.store(RegistryStore)

    @property
    def buckets(self) -> list[int]:
        """The first migration fixed how many there are; every login sees the same."""
        return list(range(next(iter(self.databases.values())).buckets))

    @property
    def installation(self) -> str:
        return next(iter(self.databases.values())).installation

    def sealer(self) -> Sealer:
        return Sealer(parse_keys(self._access.encryption_key or ""))

    def composer(self) -> Composer:
        return Composer(
            self.sealer(),
            self.installation,
            self.config.seconds("delivery.request_timeout"),
            self.config.ceilings.request_seconds,
        )

    def https_sender(self) -> HttpsSender:
        config = self.config
        ca_file = config.optional_path("delivery.ca_file")
        slots = most_at_once(
            config.number("worker.concurrency"), config.number("worker.slow_requests")
        )
        return HttpsSender(
            SenderSettings(
                allow_networks=tuple(str(network) for network in config.allow_networks),
                ca_file=str(ca_file) if ca_file else None,
                proxy=config.optional_text("delivery.proxy"),
                # All slots may be busy with one host: closing and reopening its connections
                # would cost ten times as much as the requests.
                pool=PoolLimits(per_origin=slots, total=max(2048, 2 * slots)),
            )
        )

    async def close(self) -> None:
        if self.vitals is not None:
            await self.vitals.close()
        await self.hints.close()
        for database in self.databases.values():
            await database.close()
