"""Signers: who signs for a subscription now. Part of the worker, under its role.

Reads   subscription_secrets (sealed)
Writes  nothing

Secrets are read again every few seconds, and opened once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from surehook.delivery.compose import Composer, Unsigned
from surehook.delivery.secrets import Sealer
from surehook.delivery.signature import Signer
from surehook.store.worker import WorkerStore

SECRETS_FRESH_SECONDS = 5.0
OPENED_MAX = 10_000

# Until when they are fresh; the signers; why there are none, where a secret cannot be used.
Known = tuple[float, tuple[Signer, ...], str]
_NEVER_READ: Known = (0.0, (), "")


async def refuse_without_key(store: WorkerStore, sealer: Sealer) -> None:
    """Better no worker than one whose every attempt fails: we must have the key of the secret
    that was stored last."""
    for sealed in await store.newest_secret():
        sealer.require_key_of(sealed)


class Signers:
    def __init__(self, store: WorkerStore, composer: Composer) -> None:
        self._store = store
        self._composer = composer
        self._known: dict[int, Known] = {}
        self._opened: dict[str, Signer] = {}

    def of(self, subscription_id: int) -> tuple[Signer, ...]:
        """As they were read last; Unsigned if it has secrets and none can be used."""
        _, signers, problem = self._known.get(subscription_id, _NEVER_READ)
        if problem and not signers:
            raise Unsigned(problem)
        return signers

    async def refresh(self, subscription_ids: Iterable[int]) -> None:
        """Read the secrets of those that were not read for a while."""
        now = time.monotonic()
        stale = [each for each in subscription_ids if self._known.get(each, _NEVER_READ)[0] < now]
        if not stale:
            return
        found: dict[int, list[Signer]] = {subscription_id: [] for subscription_id in stale}
        problems: dict[int, str] = {}
        for subscription_id, sealed in await self._store.live_secrets(stale):
            try:
                found[subscription_id].append(self._open(sealed))
            except Unsigned as problem:  # a key that we do not have, or not a secret
                problems[subscription_id] = str(problem)
        if len(self._known) > OPENED_MAX:
            self._known.clear()
        fresh_until = now + SECRETS_FRESH_SECONDS
        for subscription_id, signers in found.items():
            reason = problems.get(subscription_id, "")
            self._known[subscription_id] = (fresh_until, tuple(signers), reason)

    def _open(self, sealed: str) -> Signer:
        signer = self._opened.get(sealed)
        if signer is None:
            if len(self._opened) > OPENED_MAX:
                self._opened.clear()
            signer = self._opened[sealed] = self._composer.signer(sealed)
        return signer
