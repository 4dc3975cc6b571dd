"""The dead letters' statements on MySQL. Reads sagas, events; writes dead_letters, sagas."""

from __future__ import annotations

from collections.abc import Sequence

from surehook.model.records import DeadLetter, Requeued, SagaId
from surehook.store.deadletters import DeadLetterStore
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.mysql.values import Rows

_WRITTEN = ("saga_id", "event_id", "subscription_id", "final_error_code", "failed_at")


class MysqlDeadLetterStore(DeadLetterStore):
    _database: MysqlDatabase

    async def write_dead_letters(self, bucket: int, saga_ids: Sequence[SagaId]) -> list[DeadLetter]:
        """A row that appears meanwhile refuses all of them: looked at again, and done again."""

        async def work(session: MysqlSession) -> list[DeadLetter]:
            rows = await session.all("unwritten", bucket=bucket, saga_ids=sorted(saga_ids))
            if not rows:
                return []
            missing = [row[0] for row in rows]
            await session.write_rows(
                "write_dead_letters",
                [dict(zip(_WRITTEN, row, strict=True)) | {"bucket": bucket} for row in rows],
            )
            written = await session.all("read_written", bucket=bucket, saga_ids=missing)
            rows = await session.all("last_attempts", bucket=bucket, saga_ids=missing)
            last = {row[0]: tuple(row[1:]) for row in rows}
            return [DeadLetter(*row, *last.get(row[1], (None, None, None))) for row in written]

        return await self._database.in_transaction(work)

    async def requeue(self, bucket: int, ids: Sequence[int]) -> list[Requeued]:
        wanted = sorted(ids)

        async def work(session: MysqlSession) -> set[int]:
            rows = await session.all("requeueable", bucket=bucket, dead_letter_ids=wanted)
            if not rows:
                return set()
            written = await session.write("requeue", given=Rows(rows))
            return set(written.ids())

        created = await self._database.in_transaction(work)
        rows = await self._database.all("requeued", bucket=bucket, dead_letter_ids=wanted)
        return [Requeued(row[0], row[1], row[2], row[2] in created, bool(row[3])) for row in rows]
