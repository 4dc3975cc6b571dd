"""The dead letters' statements on PostgreSQL. Reads sagas, events; writes dead_letters, sagas."""

from __future__ import annotations

from collections.abc import Sequence

from surehook.model.records import DeadLetter, Requeued, SagaId
from surehook.store.deadletters import DeadLetterStore


class PostgresDeadLetterStore(DeadLetterStore):
    async def write_dead_letters(self, bucket: int, saga_ids: Sequence[SagaId]) -> list[DeadLetter]:
        rows = await self._database.all(
            "write_dead_letters", bucket=bucket, saga_ids=sorted(saga_ids)
        )
        return [DeadLetter(*row) for row in rows]

    async def requeue(self, bucket: int, ids: Sequence[int]) -> list[Requeued]:
        rows = await self._database.all("requeue", bucket=bucket, dead_letter_ids=sorted(ids))
        created = {row[0] for row in rows}
        rows = await self._database.all("requeued", bucket=bucket, dead_letter_ids=sorted(ids))
        return [Requeued(row[0], row[1], row[2], row[2] in created, row[3]) for row in rows]
