"""Requests: what a worker sends for a job, signed. Part of the worker, under its role.

Reads   subscription_secrets (sealed), the leased jobs
Writes  nothing

The body is the payload's stored bytes. webhook-timestamp is the database's time: the worker's own
clock may be wrong. Secrets are read again every few seconds, opened once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from surehook.delivery import ErrorCode, Outcome, Request
from surehook.delivery.secrets import Sealer, SealingError
from surehook.delivery.signature import (
    SecretRefused,
    Signer,
    message_id,
    parse_secret,
    signed_headers,
)
from surehook.model.records import HEADERS_PLACE, SIGNING_PLACE, LeasedJob
from surehook.store.worker import WorkerStore

SECRETS_FRESH_SECONDS = 5.0
OPENED_MAX = 10_000
HAS_NONE = "The subscription has no secret."

# Until when they are fresh, and why there are none if there are none.
Signers = tuple[float, tuple[Signer, ...], str]
_NO_SIGNERS: Signers = (0.0, (), HAS_NONE)


class Requests:
    """Makes requests of jobs, or says why one cannot be sent."""

    def __init__(
        self,
        store: WorkerStore,
        sealer: Sealer,
        installation: str,
        request_seconds: float,
        longest_seconds: float,
    ) -> None:
        self._store = store
        self._installation = installation
        self._sealer = sealer
        self._request_seconds = request_seconds
        self._longest_seconds = longest_seconds  # whatever a subscription asks for
        self._signers: dict[int, Signers] = {}
        self._opened: dict[str, Signer] = {}

    async def refuse_without_key(self) -> None:
        """Better no worker than one whose every attempt fails: we must have the key of the secret
        that was stored last."""
        for sealed in await self._store.newest_secret():
            self._sealer.require_key_of(sealed)

    async def prepare(self, jobs: Sequence[LeasedJob]) -> list[Request | Outcome]:
        """One request per job, in order; or what became of it, where it is not to be sent."""
        await self._read_secrets({job.subscription_id for job in jobs if job.deliverable})
        return [self._prepare(job) for job in jobs]

    def _prepare(self, job: LeasedJob) -> Request | Outcome:
        if not job.deliverable:
            return Outcome(None, ErrorCode.SUBSCRIPTION_INACTIVE, sent=False)
        _, signers, reason = self._signers.get(job.subscription_id, _NO_SIGNERS)
        if not signers:
            return _unsigned(reason)
        body = job.payload.encode()
        try:
            custom = self._custom_headers(job.custom_headers)
        except (SealingError, msgspec.DecodeError) as error:
            return _unsigned(str(error))
        leased_at = job.leased_at.timestamp()
        headers = signed_headers(
            signers,
            message_id(self._installation, job.event_id, job.subscription_id),
            int(leased_at),
            body,
            job.event_type,
            custom,
        )
        wanted = job.request_timeout_seconds or self._request_seconds
        seconds = min(wanted, self._longest_seconds)
        return Request(job.callback_url, body, headers, seconds, leased_at)

    async def _read_secrets(self, subscription_ids: set[int]) -> None:
        now = time.monotonic()
        stale = [
            subscription_id
            for subscription_id in subscription_ids
            if self._signers.get(subscription_id, _NO_SIGNERS)[0] < now
        ]
        if not stale:
            return
        found: dict[int, list[Signer]] = {subscription_id: [] for subscription_id in stale}
        reasons: dict[int, str] = {}
        for subscription_id, sealed in await self._store.live_secrets(stale):
            try:
                found[subscription_id].append(self._open(sealed))
            except (SealingError, SecretRefused) as error:
                reasons[subscription_id] = str(error)  # wrong key or no secret
        if len(self._signers) > OPENED_MAX:
            self._signers.clear()
        for subscription_id, signers in found.items():
            reason = reasons.get(subscription_id, HAS_NONE)
            self._signers[subscription_id] = (now + SECRETS_FRESH_SECONDS, tuple(signers), reason)

    def _open(self, sealed: str) -> Signer:
        signer = self._opened.get(sealed)
        if signer is None:
            if len(self._opened) > OPENED_MAX:
                self._opened.clear()
            signer = parse_secret(self._sealer.open(sealed, SIGNING_PLACE))
            self._opened[sealed] = signer
        return signer

    def _custom_headers(self, sealed: str | None) -> tuple[tuple[str, str], ...]:
        if sealed is None:
            return ()
        text = self._sealer.open(sealed, HEADERS_PLACE)
        return msgspec.json.decode(text, type=tuple[tuple[str, str], ...])


def _unsigned(reason: str) -> Outcome:
    return Outcome(None, ErrorCode.SECRET_UNAVAILABLE, detail=reason, sent=False)
