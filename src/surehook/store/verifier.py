"""The verifier's statements. Reads secrets; writes verifications, `verified`."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime

from surehook.model.records import Challenge, TrialTarget, Verification
from surehook.store.contract import Store, statement


class VerifierStore(Store):
    @abstractmethod
    async def request(
        self,
        subscription_id: int,
        tenant: str | None,
        challenge: str,
        code: str,
        lifetime_seconds: float,
    ) -> int | None: ...

    @abstractmethod
    async def take(self, attempts_max: int, pause_seconds: float) -> Challenge | None: ...

    @statement
    async def secret_of(self, secret_id: int) -> tuple[str, datetime]:
        """The sealed secret, and the database's time."""

    @statement
    async def report(self, id: int, result: str, reason: str | None) -> None: ...

    @abstractmethod
    async def verify(self, verification_id: int, result: str, reason: str | None = None) -> bool:
        """Mark the subscription verified, if it is still what was challenged."""

    @abstractmethod
    async def open_verification(
        self, subscription_id: int, tenant: str | None
    ) -> tuple[int, str, int] | None:
        """The verification that waits for a code: id, code, how often one was tried."""

    @statement
    async def read(self, id: int) -> Verification | None: ...

    async def sealed_headers(self, subscription_ids: list[int]) -> dict[int, str]:
        """The custom headers of those that have some, sealed."""
        rows = await self._database.all("sealed_headers", subscription_ids=subscription_ids)
        return {row[0]: row[1] for row in rows}

    async def trial_target(self, subscription_id: int, tenant: str | None) -> TrialTarget | None:
        row = await self._database.one(
            "trial_target", subscription_id=subscription_id, tenant=tenant
        )
        if row is None:
            return None
        secrets = await self._database.all("trial_secrets", subscription_id=subscription_id)
        url, event_type, seconds, headers, now = row
        sealed = tuple(secret[0] for secret in secrets)
        return TrialTarget(url, event_type, seconds, headers, now, sealed)
