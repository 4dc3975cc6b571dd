"""The dead letters' statements. Reads sagas, events; writes dead_letters, sagas."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from surehook.model.records import DeadLetter, DeadLetterId, Requeued, SagaId
from surehook.model.resources.dead_letter import DeadLetterFilter
from surehook.store.contract import Store, statement
from surehook.store.database import Duplicate, Session

DeathKey = tuple[datetime, int]
BEGINNING: DeathKey = (datetime(1970, 1, 1, tzinfo=UTC), 0)
# What a requeue of many asks for.
FILTERS = DeadLetterFilter.__struct_fields__


class DeadLetterStore(Store):
    async def read_cursor(
        self, bucket: int, rewalk_seconds: float
    ) -> tuple[datetime, bool, datetime]:
        """Deaths before the first time are written down; whether to look at all of them again;
        and the time now."""

        async def work(session: Session) -> tuple[datetime, bool, datetime]:
            row = await session.one("read_cursor", bucket=bucket, rewalk_seconds=rewalk_seconds)
            if row is None:
                with suppress(Duplicate):  # another process was faster
                    await session.write("create_cursor", bucket=bucket)
                row = await session.one("read_cursor", bucket=bucket, rewalk_seconds=rewalk_seconds)
                assert row is not None
            return row[0], bool(row[1]), row[2]

        return await self._database.run(work)

    @statement
    async def save_cursor(self, bucket: int, swept_until: datetime, rewalked: bool) -> None: ...

    async def dead_sagas(
        self, bucket: int, after: DeathKey, count: int
    ) -> tuple[list[SagaId], DeathKey | None, bool]:
        """A page of deaths: sagas not written down yet, the page's last key, and if it was full."""
        rows = await self._database.all(
            "dead_sagas", bucket=bucket, after=after[0], after_id=after[1], count=count
        )
        missing = [SagaId(row[1]) for row in rows if not row[2]]
        last = (rows[-1][0], rows[-1][1]) if rows else None
        return missing, last, len(rows) == count

    @abstractmethod
    async def write_dead_letters(
        self, bucket: int, saga_ids: Sequence[SagaId]
    ) -> list[DeadLetter]: ...

    async def find(
        self, bucket: int, wanted: DeadLetterFilter, after_id: int, count: int
    ) -> tuple[list[DeadLetterId], int | None]:
        """Of the next `count` dead letters those that fit the filter and were not requeued yet,
        and the last id that was looked at; None = there are no more."""
        rows = await self._database.all(
            "find_dead_letters",
            bucket=bucket,
            after_id=after_id,
            count=count,
            **{name: getattr(wanted, name) for name in FILTERS},
        )
        return [row[1] for row in rows if row[1] is not None], rows[0][0]

    @abstractmethod
    async def requeue(self, bucket: int, ids: Sequence[int]) -> list[Requeued]:
        """Requeue these; the answer includes those requeued before or not deliverable."""
