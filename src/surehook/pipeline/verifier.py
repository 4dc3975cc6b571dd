"""Verifier: proves that an endpoint belongs to the holder of its subscription's secret.

Role    subscription_verifier
Reads   subscriptions, subscription_secrets, subscription_verifications
Writes  UPDATE subscriptions (verified, callback_url, pending_callback_url),
        subscription_verifications
Never   stores or shows what an endpoint answered

A challenge goes through the same guarded client as a delivery. The endpoint answers with a value
computed from challenge and secret, or its owner brings back the one-time code. Where the operator
has said that an origin is his own (`verification.trusted`), a connection that passes the address
guard and TLS is proof enough. Success is written only if URL and secret are still those that were
challenged.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from surehook.delivery import Outcome, Request
from surehook.delivery.challenge import answer_proves
from surehook.delivery.compose import Composer, Unsigned
from surehook.delivery.trusted import TrustedOrigins
from surehook.model.records import Challenge
from surehook.pipeline.service import Loop
from surehook.store.hints import Channel
from surehook.store.verifier import VerifierStore

ATTEMPTS_MAX = 3
PAUSE_SECONDS = 20.0
POLL_SECONDS = 1.0
UNDER_WAY_MAX = 16
NO_ORIGINS = TrustedOrigins()
TRUSTED = "The operator trusts this origin, and its certificate was verified. Nothing was sent."


class Asker(Protocol):
    """The part of the sender that a verifier needs."""

    async def start(self) -> None: ...
    async def ask(self, request: Request) -> tuple[Outcome, bytes]: ...
    async def probe(self, url: str, seconds: float) -> Outcome: ...
    async def close(self) -> None: ...


class Verifier(Loop):
    name = "verifier"
    wakes_on = (Channel.CHALLENGES,)

    def __init__(
        self,
        store: VerifierStore,
        composer: Composer,
        sender: Asker,
        trusted: TrustedOrigins = NO_ORIGINS,
    ) -> None:
        super().__init__()
        self._trusted = trusted
        self._store = store
        self._composer = composer
        self._sender = sender
        self._under_way: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._sender.start()

    async def step(self) -> float:
        while len(self._under_way) < UNDER_WAY_MAX:
            challenge = await self._store.take(ATTEMPTS_MAX, PAUSE_SECONDS)
            if challenge is None:
                break
            prove = self._probe if self._trusted.cover(challenge.callback_url) else self._challenge
            task = asyncio.get_running_loop().create_task(prove(challenge))
            self._under_way.add(task)
            task.add_done_callback(self._ended)
        return POLL_SECONDS

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and task.exception() is None:
            self.wake()

    async def _challenge(self, challenge: Challenge) -> None:
        sealed, now = await self._store.secret_of(challenge.secret_id)
        try:
            secret = self._composer.secret(sealed)
            request = self._composer.challenge(challenge, secret, now)
        except Unsigned:
            await self._store.report(challenge.id, "failed", "The secret cannot be opened.")
            return
        outcome, answer = await self._sender.ask(request)
        await self._settle(challenge, outcome, answer, secret)

    async def _settle(
        self, challenge: Challenge, outcome: Outcome, answer: bytes, secret: str
    ) -> None:
        if not outcome.delivered:
            status = f" {outcome.response_status}" if outcome.response_status else ""
            await self._store.report(
                challenge.id, f"{outcome.error_code}{status}", outcome.failure_detail
            )
        elif not answer_proves(answer, challenge.challenge, [secret]):
            await self._store.report(
                challenge.id,
                "not proved",
                "The answer is not the value computed from challenge and secret. The owner may "
                "confirm with the code that the challenge carried.",
            )
        else:
            await self._verify(challenge, "proved", None)

    async def _probe(self, challenge: Challenge) -> None:
        outcome = await self._sender.probe(challenge.callback_url, self._composer.request_seconds)
        if outcome.delivered:
            await self._verify(challenge, "trusted origin", TRUSTED)
        else:
            await self._store.report(challenge.id, str(outcome.error_code), outcome.failure_detail)

    async def _verify(self, challenge: Challenge, result: str, reason: str | None) -> None:
        if not await self._store.verify(challenge.id, result, reason):
            await self._store.report(
                challenge.id, "changed", "URL or secret changed while the challenge was under way."
            )

    async def drain(self) -> None:
        if self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._sender.close()
