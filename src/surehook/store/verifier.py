"""The verifier's statements. Reads secrets; writes verifications, `verified`."""

from __future__ import annotations

from datetime import datetime

from surehook.model.records import Challenge, TrialTarget
from surehook.model.resources.subscription import Verification
from surehook.store.contract import Store, statement
from surehook.store.database import Session


class VerifierStore(Store):
    async def request(
        self,
        subscription_id: int,
        tenant: str | None,
        challenge: str,
        code: str,
        lifetime_seconds: float,
    ) -> int | None:
        async def work(session: Session) -> int | None:
            row = await session.one("to_be_proved", subscription_id=subscription_id, tenant=tenant)
            if row is None:
                return None
            written = await session.write(
                "request_verification",
                subscription_id=subscription_id,
                callback_url=row[0],
                secret_id=row[1],
                challenge=challenge,
                code=code,
                lifetime_seconds=lifetime_seconds,
            )
            return written.first_id

        return await self._database.run(work)

    async def take(self, attempts_max: int, pause_seconds: float) -> Challenge | None:
        """The next challenge to send; two verifiers never take the same."""
        which = {"attempts_max": attempts_max, "pause_seconds": pause_seconds}

        async def work(session: Session) -> Challenge | None:
            row = await session.one("next_verification", **which)
            if row is None:
                return None
            await session.all("take", id=row[0])
            return Challenge(*row)

        # An idle verifier asks without a transaction.
        waits = await self._database.one("any_verification", **which)
        return await self._database.in_transaction(work) if waits and waits[0] else None

    @statement
    async def secret_of(self, secret_id: int) -> tuple[str, datetime]:
        """The sealed secret, and the database's time."""

    @statement
    async def report(self, id: int, result: str, reason: str | None) -> None: ...

    async def verify(self, verification_id: int, result: str, reason: str | None = None) -> bool:
        """Mark the subscription verified, if it is still what was challenged."""

        async def work(session: Session) -> bool:
            written = await session.write("verify_subscription", id=verification_id)
            if written.rows:
                await session.all("mark_verified", id=verification_id, result=result, reason=reason)
            return bool(written.rows)

        return await self._database.in_transaction(work)

    async def open_verification(
        self, subscription_id: int, tenant: str | None
    ) -> tuple[int, str, int] | None:
        """The verification that waits for a code: id, code, how often one was tried. This try is
        counted, and no two at the same time."""
        which = {"subscription_id": subscription_id, "tenant": tenant}

        async def work(session: Session) -> tuple[int, str, int] | None:
            found = await session.one("open_verification", **which)
            if found is None:
                return None
            locked = await session.one("lock_verification", id=found[0])
            assert locked is not None
            await session.all("count_code_try", id=found[0])
            return found[0], locked[0], locked[1] + 1

        return await self._database.in_transaction(work)

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
