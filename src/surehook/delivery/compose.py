"""Composer: the one place where signed requests are made: a delivery, a test, a challenge.

Reads   what it is given; sealed texts are opened with the sealer's keys
Writes  nothing

The body is sent as it is stored, byte for byte. webhook-timestamp is the database's time: this
machine's own clock may be wrong.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime

import msgspec

from surehook.delivery import Outcome, Request
from surehook.delivery.challenge import challenge_body, verification_id
from surehook.delivery.secrets import Sealer, SealingError
from surehook.delivery.signature import (
    SecretRefused,
    Signer,
    message_id,
    parse_secret,
    signed_headers,
)
from surehook.model.error_codes import ErrorCode
from surehook.model.records import (
    HEADERS_CONTEXT,
    SIGNING_CONTEXT,
    Challenge,
    LeasedJob,
    TrialTarget,
)
from surehook.receive import VERIFICATION_TYPE

Headers = tuple[tuple[str, str], ...]


class Unsigned(Exception):
    """It cannot be sent as it must be: no secret, or one that does not open."""

    def outcome(self) -> Outcome:
        """What an attempt comes to that cannot be signed."""
        return Outcome(None, ErrorCode.SECRET_UNAVAILABLE, failure_detail=str(self), sent=False)


class Composer:
    def __init__(
        self, sealer: Sealer, installation: str, request_seconds: float, longest_seconds: float
    ) -> None:
        self._sealer = sealer
        self._installation = installation
        self.request_seconds = request_seconds
        self._longest_seconds = longest_seconds  # whatever a subscription asks for

    def delivery(self, job: LeasedJob, signers: Sequence[Signer]) -> Request:
        return self._signed(
            job.callback_url,
            job.payload.encode(),
            message_id(self._installation, job.event_id, job.subscription_id),
            job.event_type,
            job.leased_at,
            signers,
            self.custom_headers(job.custom_headers),
            job.request_timeout_seconds,
        )

    def test(self, subscription_id: int, target: TrialTarget, payload: str) -> Request:
        return self._signed(
            target.callback_url,
            payload.encode(),
            # Never the id of an event: a receiver that dedupes must not take it for one.
            f"test_{secrets.token_hex(8)}_{subscription_id}",
            target.event_type,
            target.now,
            [self.signer(sealed) for sealed in target.secrets],
            self.custom_headers(target.custom_headers),
            target.request_timeout_seconds,
        )

    def challenge(self, challenge: Challenge, secret: str, now: datetime) -> Request:
        return self._signed(
            challenge.callback_url,
            challenge_body(challenge.challenge, challenge.code),
            verification_id(challenge.subscription_id),
            VERIFICATION_TYPE,
            now,
            [_signer(secret)],
        )

    def _signed(
        self,
        url: str,
        body: bytes,
        webhook_id: str,
        event_type: str,
        at: datetime,
        signers: Sequence[Signer],
        custom: Headers = (),
        wanted_seconds: float | None = None,
    ) -> Request:
        if not signers:
            raise Unsigned("The subscription has no secret.")
        made_at = at.timestamp()
        headers = signed_headers(signers, webhook_id, int(made_at), body, event_type, custom)
        seconds = min(wanted_seconds or self.request_seconds, self._longest_seconds)
        return Request(url, body, headers, seconds, made_at)

    # ── What is sealed ────────────────────────────────────────────────────────────────────────

    def secret(self, sealed: str) -> str:
        return self._open(sealed, SIGNING_CONTEXT)

    def signer(self, sealed: str) -> Signer:
        return _signer(self.secret(sealed))

    def custom_headers(self, sealed: str | None) -> Headers:
        if sealed is None:
            return ()
        try:
            return msgspec.json.decode(self._open(sealed, HEADERS_CONTEXT), type=Headers)
        except msgspec.DecodeError as error:
            raise Unsigned(str(error)) from None

    def _open(self, sealed: str, context: str) -> str:
        try:
            return self._sealer.open(sealed, context)
        except SealingError as error:
            raise Unsigned(str(error)) from None


def _signer(secret: str) -> Signer:
    try:
        return parse_secret(secret)
    except SecretRefused as error:
        raise Unsigned(str(error)) from None
