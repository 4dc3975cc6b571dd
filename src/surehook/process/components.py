"""Every component that a process can run: its name, what it does, and how it is made.

Reads   the configuration       Writes  nothing itself

The one list of them. `surehook serve`, `run` and `status` and the picture in the documentation
follow from it; which tables a component reads and writes follows from its login in roles.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surehook.actions.ingest import Ingest
from surehook.actions.keys import Keys
from surehook.actions.requeue import Requeue
from surehook.actions.subscriptions import Subscriptions
from surehook.actions.trial import Trial
from surehook.actions.verifications import Verifications
from surehook.delivery.address import AddressGuard
from surehook.delivery.trusted import TrustedOrigins
from surehook.pipeline.cleaner import Cleaner
from surehook.pipeline.deadletters import DeadLetters
from surehook.pipeline.orchestrator import Orchestrator
from surehook.pipeline.router import Router
from surehook.pipeline.service import Loop
from surehook.pipeline.signers import refuse_without_key
from surehook.pipeline.verifier import Verifier
from surehook.pipeline.worker import Worker, new_worker_id
from surehook.store.cleaner import CleanerStore
from surehook.store.deadletters import DeadLetterStore
from surehook.store.ingest import IngestStore
from surehook.store.key_checks import KeyCheckStore
from surehook.store.keys import KeyStore
from surehook.store.observer import ObserverStore
from surehook.store.orchestrator import FIRST_RAMP, Caps, OrchestratorStore
from surehook.store.router import RouterStore
from surehook.store.subscriptions import SubscriptionStore
from surehook.store.verifier import VerifierStore
from surehook.store.worker import WorkerStore

if TYPE_CHECKING:
    from surehook.api.server import Server
    from surehook.process.assembly import Assembly


@dataclass(frozen=True, slots=True)
class Component:
    """What runs in a process. Its login has its name."""

    name: str
    does: str
    make: Callable[[Assembly], Awaitable[Loop]]
    own_login: str = ""  # unless it has this one

    @property
    def login(self) -> str:
        return self.own_login or self.name


async def _api(parts: Assembly) -> Server:
    # A process without the API does not load it.
    from surehook.api.app import Api
    from surehook.api.auth import KeyChecks
    from surehook.api.server import Server

    config = parts.config
    assert parts.vitals is not None
    verifier = await parts.store(VerifierStore)
    api = Api(
        ingest=Ingest(await parts.store(IngestStore), parts.hints, len(parts.buckets)),
        checks=KeyChecks(
            await parts.store(KeyCheckStore),
            config.optional_text("api.admin_key"),
            config.number("api.key_failures"),
            config.seconds("api.answer_timeout"),
        ),
        keys=Keys(await parts.store(KeyStore)),
        observer=await parts.store(ObserverStore),
        requeue=Requeue(await parts.store(DeadLetterStore), parts.hints, parts.buckets),
        subscriptions=Subscriptions(
            await parts.store(SubscriptionStore),
            parts.sealer(),
            AddressGuard(tuple(str(network) for network in config.allow_networks)),
            config.ceilings,
            config.seconds("delivery.secret_overlap"),
        ),
        verifications=Verifications(verifier, parts.hints, TrustedOrigins(config.trusted_origins)),
        trial=Trial(verifier, parts.composer(), parts.https_sender),
        vitals=parts.vitals,
        payload_max=config.number("api.payload_max"),
        batch_max=config.number("api.batch_max"),
        memory=config.number("api.memory"),
        answer_seconds=config.seconds("api.answer_timeout"),
        metrics_open=config.flag("api.metrics_open"),
    )
    server = Server(
        api,
        config.text("api.listen"),
        connections=config.number("api.connections"),
        request_seconds=config.seconds("api.request_timeout"),
        idle_seconds=config.seconds("api.idle_timeout"),
    )
    server.bind(parts.api_socket)
    return server


async def _verifier(parts: Assembly) -> Verifier:
    return Verifier(
        await parts.store(VerifierStore),
        parts.composer(),
        parts.https_sender(),
        TrustedOrigins(parts.config.trusted_origins),
    )


async def _router(parts: Assembly) -> Router:
    batch = parts.config.number("orchestrator.batch")
    return Router(await parts.store(RouterStore), parts.hints, parts.buckets, batch)


async def _orchestrator(parts: Assembly) -> Orchestrator:
    config = parts.config
    ceilings = config.ceilings
    caps = Caps(
        config.number("orchestrator.subscription_cap"),
        ceilings.concurrency_cap,
        ceilings.rate,
        FIRST_RAMP,
    )
    return Orchestrator(
        await parts.store(OrchestratorStore, caps),
        parts.hints,
        parts.buckets,
        policy=config.policy,
        batch=config.number("orchestrator.batch"),
        open_jobs=config.number("orchestrator.open_jobs"),
        slots=config.number("worker.concurrency"),
        slow_slots=config.number("worker.slow_requests"),
    )


async def _worker(parts: Assembly) -> Worker:
    config = parts.config
    worker_id = new_worker_id()
    store = await parts.store(WorkerStore, worker_id)
    await refuse_without_key(store, parts.sealer())
    return Worker(
        store,
        parts.hints,
        parts.buckets,
        sender=parts.sender(),
        composer=parts.composer(),
        worker_id=worker_id,
        concurrency=config.number("worker.concurrency"),
        slow_requests=config.number("worker.slow_requests"),
        memory=config.number("worker.memory"),
        lease_seconds=config.seconds("worker.lease_duration"),
    )


async def _cleaner(parts: Assembly) -> Cleaner:
    return Cleaner(await parts.store(CleanerStore), parts.hints, parts.buckets)


async def _deadletters(parts: Assembly) -> DeadLetters:
    return DeadLetters(await parts.store(DeadLetterStore), parts.hints, parts.buckets)


def _by_name(*components: Component) -> dict[str, Component]:
    return {component.name: component for component in components}


# By name, in the order in which a delivery meets them.
COMPONENTS = _by_name(
    Component("api", "serves the HTTP API", _api, own_login="observer"),
    Component("verifier", "challenges endpoints to prove that they hold their secret", _verifier),
    Component("router", "finds for every event the subscriptions that get it", _router),
    Component(
        "orchestrator", "decides what is attempted when, and what is given up", _orchestrator
    ),
    Component("worker", "sends deliveries", _worker),
    Component("cleaner", "takes back what a lost worker held", _cleaner),
    Component("deadletters", "keeps what was given up", _deadletters),
)
