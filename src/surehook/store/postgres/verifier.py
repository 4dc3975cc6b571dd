"""The verifier's statements on PostgreSQL. Reads secrets; writes verifications, `verified`."""

from __future__ import annotations

from surehook.model.records import Challenge
from surehook.store.database import Session
from surehook.store.verifier import VerifierStore


class PostgresVerifierStore(VerifierStore):
    async def request(
        self,
        subscription_id: int,
        tenant: str | None,
        challenge: str,
        code: str,
        lifetime_seconds: float,
    ) -> int | None:
        row = await self._database.one(
            "request_verification",
            subscription_id=subscription_id,
            tenant=tenant,
            challenge=challenge,
            code=code,
            lifetime_seconds=lifetime_seconds,
        )
        return None if row is None else row[0]

    async def take(self, attempts_max: int, pause_seconds: float) -> Challenge | None:
        rows = await self._database.all(
            "take_verification", attempts_max=attempts_max, pause_seconds=pause_seconds
        )
        return Challenge(*rows[0]) if rows else None

    async def verify(self, verification_id: int, result: str, reason: str | None = None) -> bool:
        async def work(session: Session) -> bool:
            row = await session.one("verify_subscription", id=verification_id)
            if row is not None:
                await session.all("mark_verified", id=verification_id, result=result, reason=reason)
            return row is not None

        return await self._database.in_transaction(work)

    async def open_verification(
        self, subscription_id: int, tenant: str | None
    ) -> tuple[int, str, int] | None:
        row = await self._database.one(
            "open_verification", subscription_id=subscription_id, tenant=tenant
        )
        return None if row is None else (row[0], row[1], row[2])
