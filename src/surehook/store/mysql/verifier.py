"""The verifier's statements on MySQL. Reads secrets; writes verifications, `verified`."""

from __future__ import annotations

from surehook.model.records import Challenge
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.verifier import VerifierStore


class MysqlVerifierStore(VerifierStore):
    _database: MysqlDatabase

    async def take(self, attempts_max: int, pause_seconds: float) -> Challenge | None:
        which = {"attempts_max": attempts_max, "pause_seconds": pause_seconds}

        async def work(session: MysqlSession) -> Challenge | None:
            row = await session.one("next_verification", **which)
            if row is None:
                return None
            await session.write("take", id=row[0])
            return Challenge(*row)

        waits = await self._database.one("any_verification", **which)
        return await self._database.in_transaction(work) if waits and waits[0] else None

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
