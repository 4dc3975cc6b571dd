"""Puts the API together from the components that it calls, each with its own login.

Reads   the configuration       Writes  nothing itself
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from surehook.actions.ingest import Ingest
from surehook.actions.keys import Keys
from surehook.actions.subscriptions import Subscriptions
from surehook.actions.trial import Trial
from surehook.api.app import Api
from surehook.api.auth import KeyChecks
from surehook.api.server import Server
from surehook.api.subscriptions import SubscriptionServices
from surehook.config import Config
from surehook.delivery.address import AddressGuard
from surehook.delivery.client import HttpsSender
from surehook.delivery.compose import Composer
from surehook.delivery.secrets import Sealer
from surehook.delivery.trusted import TrustedOrigins
from surehook.pipeline.deadletters import Requeue
from surehook.pipeline.verifier import Verifications
from surehook.pipeline.vitals import Vitals
from surehook.store import store_of
from surehook.store.database import Database
from surehook.store.deadletters import DeadLetterStore
from surehook.store.hints import Hints
from surehook.store.ingest import IngestStore
from surehook.store.key_checks import KeyCheckStore
from surehook.store.keys import KeyStore
from surehook.store.observer import ObserverStore
from surehook.store.subscriptions import SubscriptionStore
from surehook.store.verifier import VerifierStore

API_COMPONENTS = (
    "ingest",
    "subscriptions",
    "verifier",
    "deadletters",
    "keys",
    "key_checks",
    "observer",
)


def assemble(
    config: Config,
    hints: Hints,
    databases: Mapping[str, Database],
    *,
    observer: ObserverStore,
    vitals: Vitals,
    sealer: Sealer,
    composer: Composer,
    sender: Callable[[], HttpsSender],
) -> Server:
    """The server, not listening yet."""
    buckets = databases["ingest"].buckets
    api = Api(
        ingest=Ingest(store_of(IngestStore, databases["ingest"]), hints, buckets),
        checks=KeyChecks(
            store_of(KeyCheckStore, databases["key_checks"]),
            config.optional_text("api.admin_key"),
            config.number("api.key_failures"),
            config.seconds("api.answer_timeout"),
        ),
        keys=Keys(store_of(KeyStore, databases["keys"])),
        observer=observer,
        requeue=Requeue(
            store_of(DeadLetterStore, databases["deadletters"]), hints, list(range(buckets))
        ),
        subscriptions=_subscriptions(config, hints, databases, sealer, composer, sender),
        vitals=vitals,
        payload_max=config.number("api.payload_max"),
        batch_max=config.number("api.batch_max"),
        memory=config.number("api.memory"),
        answer_seconds=config.seconds("api.answer_timeout"),
        metrics_open=config.flag("api.metrics_open"),
    )
    return Server(
        api,
        config.text("api.listen"),
        connections=config.number("api.connections"),
        request_seconds=config.seconds("api.request_timeout"),
        idle_seconds=config.seconds("api.idle_timeout"),
    )


def _subscriptions(
    config: Config,
    hints: Hints,
    databases: Mapping[str, Database],
    sealer: Sealer,
    composer: Composer,
    sender: Callable[[], HttpsSender],
) -> SubscriptionServices:
    verifier = store_of(VerifierStore, databases["verifier"])
    return SubscriptionServices(
        Subscriptions(
            store_of(SubscriptionStore, databases["subscriptions"]),
            sealer,
            AddressGuard(tuple(str(network) for network in config.allow_networks)),
            config.ceilings,
            config.seconds("delivery.secret_overlap"),
        ),
        Verifications(verifier, hints, TrustedOrigins(config.trusted_origins)),
        Trial(verifier, composer, sender),
    )
