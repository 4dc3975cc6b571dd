"""Trial: one guarded POST to a subscription's endpoint, for its owner to see what comes back.

Role    subscription_verifier
Reads   subscriptions, subscription_secrets
Writes  nothing
Never   makes an event, a saga or a job; repeats itself
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from surehook.delivery import ErrorCode, Outcome, Request
from surehook.delivery.secrets import Sealer, SealingError
from surehook.delivery.signature import parse_secret, signed_headers
from surehook.errors import NotFound
from surehook.model.records import HEADERS_PLACE, SIGNING_PLACE
from surehook.store.verifier import TrialTarget, VerifierStore

SAMPLE = '{"test":true,"message":"This is a test event of surehook."}'


class PostsOnce(Protocol):
    """The part of the sender that a trial needs."""

    async def start(self) -> None: ...
    async def send(self, request: Request) -> Outcome: ...
    async def close(self) -> None: ...


class Tried(msgspec.Struct, frozen=True):
    """What came of a test."""

    outcome: Outcome
    callback_url: str  # a new URL that is not proved yet, where there is one
    milliseconds: float


class Trial:
    """Sends test events."""

    def __init__(
        self,
        store: VerifierStore,
        sealer: Sealer,
        sender: Callable[[], PostsOnce],
        request_seconds: float,
        longest_seconds: float,
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._new_sender = sender
        self._sender: PostsOnce | None = None
        self._request_seconds = request_seconds
        self._longest_seconds = longest_seconds

    async def send(
        self, subscription_id: int, payload: str = SAMPLE, tenant: str | None = None
    ) -> Tried:
        target = await self._store.trial_target(subscription_id, tenant)
        if target is None:
            raise NotFound(f"There is no subscription {subscription_id}.")
        try:
            request = self._request(subscription_id, target, payload)
        except SealingError as error:  # as a delivery would end
            outcome = Outcome(None, ErrorCode.SECRET_UNAVAILABLE, detail=str(error), sent=False)
            return Tried(outcome, target.callback_url, 0.0)
        sender = await self._started_sender()
        started = time.monotonic()
        outcome = await sender.send(request)
        milliseconds = round((time.monotonic() - started) * 1000, 1)
        return Tried(outcome, target.callback_url, milliseconds)

    async def _started_sender(self) -> PostsOnce:
        """Made when the first test is sent: many a process never sends one."""
        if self._sender is None:
            self._sender = self._new_sender()
            await self._sender.start()
        return self._sender

    def _request(self, subscription_id: int, target: TrialTarget, payload: str) -> Request:
        signers = [parse_secret(self._sealer.open(text, SIGNING_PLACE)) for text in target.secrets]
        body = payload.encode()
        headers = signed_headers(
            signers,
            # Never the id of an event: a receiver that dedupes must not take it for one.
            f"test_{secrets.token_hex(8)}_{subscription_id}",
            int(target.now.timestamp()),
            body,
            target.event_type,
            opened_headers(self._sealer, target.custom_headers),
        )
        wanted = target.request_timeout_seconds or self._request_seconds
        seconds = min(wanted, self._longest_seconds)
        return Request(target.callback_url, body, headers, seconds, target.now.timestamp())

    async def header_names(self, subscription_ids: list[int]) -> dict[int, list[str]]:
        """The names of the custom headers of those that have some."""
        sealed = await self._store.sealed_headers(subscription_ids)
        return {
            number: [name for name, _ in opened_headers(self._sealer, text)]
            for number, text in sealed.items()
        }

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()


def opened_headers(sealer: Sealer, sealed: str | None) -> tuple[tuple[str, str], ...]:
    if sealed is None:
        return ()
    return msgspec.json.decode(sealer.open(sealed, HEADERS_PLACE), type=tuple[tuple[str, str], ...])
