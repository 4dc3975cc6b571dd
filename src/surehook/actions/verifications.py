"""Verifications: what an owner asks for, a challenge or to confirm by code.

Role    subscription_verifier
Reads   subscription_verifications
Writes  INSERT subscription_verifications; `verified`, by way of a code that was brought back
Never   sends anything: the verifier does
"""

from __future__ import annotations

import asyncio
import hmac

from surehook.delivery.challenge import new_challenge, new_code
from surehook.delivery.trusted import TrustedOrigins
from surehook.errors import FieldRefused, NotFound
from surehook.model.resources.subscription import Verification
from surehook.store.hints import Channel, Hints
from surehook.store.verifier import VerifierStore

LIFETIME_SECONDS = 15 * 60.0
CODE_TRIES_MAX = 10
NO_ORIGINS = TrustedOrigins()


class Verifications:
    """What an owner asks for: a challenge, or to confirm by code."""

    def __init__(
        self, store: VerifierStore, hints: Hints, trusted: TrustedOrigins = NO_ORIGINS
    ) -> None:
        self._store = store
        self._hints = hints
        self._trusted = trusted

    async def request(self, subscription_id: int, tenant: str | None = None) -> Verification:
        """Have a challenge sent to the subscription's (staged) URL."""
        made = await self._store.request(
            subscription_id, tenant, new_challenge(), new_code(), LIFETIME_SECONDS
        )
        if made is None:
            raise NotFound(f"There is no subscription {subscription_id}.")
        self._hints.hint(Channel.CHALLENGES, 0)
        return await self.read(made)

    async def request_if_trusted(self, subscription_id: int, url: str) -> bool:
        """Have a URL of the operator's own verified without being asked to. Only the verifier
        decides, by its own configuration; this saves the owner a call."""
        if not self._trusted.cover(url):
            return False
        await self.request(subscription_id)
        return True

    async def read(self, number: int) -> Verification:
        found = await self._store.read(number)
        if found is None:
            raise NotFound(f"There is no verification {number}.")
        return found

    async def tried(self, number: int, seconds: float) -> Verification:
        """The verification once its challenge was answered, or as it is after `seconds`."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = await self.read(number)
            settled = found.verified_at is not None or (
                found.attempts > 0 and found.last_result != "sending"
            )
            if settled or asyncio.get_running_loop().time() >= deadline:
                return found
            await asyncio.sleep(0.05)

    async def confirm(self, subscription_id: int, code: str, tenant: str | None = None) -> None:
        """The code that the challenge carried, brought back by the owner."""
        found = await self._store.open_verification(subscription_id, tenant)
        if found is None:
            raise FieldRefused(
                "code", "No verification waits for a code.", "Request one and use its code."
            )
        number, expected, tries = found
        if tries > CODE_TRIES_MAX:
            raise FieldRefused("code", "Too many codes were tried.", "Request a verification anew.")
        given = code.strip().upper().encode()
        if not hmac.compare_digest(given, expected.encode()):
            raise FieldRefused("code", "The code is wrong.")
        if not await self._store.verify(number, "confirmed by code"):
            raise FieldRefused(
                "code",
                "The subscription's URL or secret has changed since the code was sent.",
                "Request a verification anew.",
            )
