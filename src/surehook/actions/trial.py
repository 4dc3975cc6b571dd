"""Trial: one guarded POST to a subscription's endpoint, for its owner to see what comes back.

Role    subscription_verifier
Reads   subscriptions, subscription_secrets
Writes  nothing
Never   makes an event, a saga or a job; repeats itself
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from surehook.delivery import Outcome, Sender
from surehook.delivery.compose import Composer, Unsigned
from surehook.errors import NotFound
from surehook.store.verifier import VerifierStore

SAMPLE = '{"test":true,"message":"This is a test event of surehook."}'


class Tried(msgspec.Struct, frozen=True):
    """What came of a test."""

    outcome: Outcome
    callback_url: str  # a new URL that is not proved yet, where there is one
    milliseconds: float


class Trial:
    """Sends test events."""

    def __init__(
        self, store: VerifierStore, composer: Composer, sender: Callable[[], Sender]
    ) -> None:
        self._store = store
        self._composer = composer
        self._new_sender = sender
        self._sender: Sender | None = None

    async def send(
        self, subscription_id: int, payload: str = SAMPLE, tenant: str | None = None
    ) -> Tried:
        target = await self._store.trial_target(subscription_id, tenant)
        if target is None:
            raise NotFound(f"There is no subscription {subscription_id}.")
        try:
            request = self._composer.test(subscription_id, target, payload)
        except Unsigned as unsigned:  # as a delivery would end
            return Tried(unsigned.outcome(), target.callback_url, 0.0)
        sender = await self._started_sender()
        started = time.monotonic()
        outcome = await sender.send(request)
        milliseconds = round((time.monotonic() - started) * 1000, 1)
        return Tried(outcome, target.callback_url, milliseconds)

    async def _started_sender(self) -> Sender:
        """Made when the first test is sent: many a process never sends one."""
        if self._sender is None:
            self._sender = self._new_sender()
            await self._sender.start()
        return self._sender

    async def header_names(self, subscription_ids: list[int]) -> dict[int, list[str]]:
        """The names of the custom headers of those that have some, as far as they open: a process
        may be without the key that they are sealed with."""
        names = {}
        for number, sealed in (await self._store.sealed_headers(subscription_ids)).items():
            with suppress(Unsigned):
                names[number] = [name for name, _ in self._composer.custom_headers(sealed)]
        return names

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()
