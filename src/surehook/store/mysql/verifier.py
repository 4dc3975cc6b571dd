"""The verifier's statements on MySQL. Reads secrets; writes verifications, `verified`."""

from __future__ import annotations

from surehook.model.records import Challenge
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.verifier import VerifierStore


class MysqlVerifierStore(VerifierStore):
    _database: MysqlDatabase

    async def request(
        self,
        subscription_id: int,
        tenant: str | None,
        challenge: str,
        code: str,
        lifetime_seconds: float,
    ) -> int | None:
        async def work(session: MysqlSession) -> int | None:
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
                lifetime_microseconds=round(lifetime_seconds * 1e6),
            )
            return written.first_id

        return await self._database.run(work)

    async def take(self, attempts_max: int, pause_seconds: float) -> Challenge | None:
        which = {
            "attempts_max": attempts_max,
            "pause_microseconds": round(pause_seconds * 1e6),
        }

        async def work(session: MysqlSession) -> Challenge | None:
            row = await session.one("next_verification", **which)
            if row is None:
                return None
            await session.write("take_verification", id=row[0])
            return Challenge(*row)

        waits = await self._database.one("any_verification", **which)
        return await self._database.in_transaction(work) if waits and waits[0] else None

    async def verify(self, verification_id: int, result: str, reason: str | None = None) -> bool:
        async def work(session: MysqlSession) -> bool:
            written = await session.write("verify_subscription", id=verification_id)
            if written.rows:
                await session.write(
                    "mark_verified", id=verification_id, result=result, reason=reason
                )
            return bool(written.rows)

        return await self._database.in_transaction(work)

    async def open_verification(
        self, subscription_id: int, tenant: str | None
    ) -> tuple[int, str, int] | None:
        """Each try with a code is counted, and no two at the same time."""

        async def work(session: MysqlSession) -> tuple[int, str, int] | None:
            row = await session.one(
                "open_verification", subscription_id=subscription_id, tenant=tenant
            )
            if row is None:
                return None
            locked = await session.one("lock_verification", id=row[0])
            assert locked is not None
            await session.write("count_code_try", id=row[0])
            return row[0], row[1], locked[0] + 1

        return await self._database.in_transaction(work)
