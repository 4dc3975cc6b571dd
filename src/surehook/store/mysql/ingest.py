"""Ingest's statements on MySQL. Reads events; writes INSERT events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from surehook.model.records import EventId, NewEvent
from surehook.store.ingest import IngestStore, Key, key_of
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.mysql.values import Rows

# Of the payloads in one statement: a character is four bytes there at most, a packet 16 MiB.
STATEMENT_CHARACTERS = 3 * 2**20


class MysqlIngestStore(IngestStore):
    _database: MysqlDatabase

    async def insert(
        self, events: Sequence[NewEvent], buckets: Sequence[int]
    ) -> list[tuple[EventId, datetime]]:
        async def work(session: MysqlSession) -> list[tuple[EventId, datetime]]:
            return await _insert(session, list(zip(events, buckets, strict=True)))

        return await self._database.in_transaction(work)

    async def insert_keyed(
        self, events: Sequence[NewEvent], buckets: Sequence[int], patience: float
    ) -> dict[Key, tuple[EventId, datetime]]:
        """Those whose key is free, sorted by it, so that two of these never wait in a circle. A key
        that is taken meanwhile refuses all of them: looked at again, and done again. Nothing waits
        for a key that is held, however much patience there is."""
        given = sorted(
            zip(events, buckets, strict=True), key=lambda one: (one[0].tenant, one[0].external_id)
        )

        async def work(session: MysqlSession) -> dict[Key, tuple[EventId, datetime]]:
            name = "find_keys_mariadb" if session.mariadb else "find_keys_mysql"
            rows = await session.all(name, given=_keys(events, buckets))
            taken = {(row[0], row[1]) for row in rows}
            new = [one for one in given if key_of(one[0]) not in taken]
            if not new:
                return {}
            answers = await _insert(session, new)
            return {key_of(one[0]): answer for one, answer in zip(new, answers, strict=True)}

        return await self._database.in_transaction(work)

    async def find_keyed(
        self, events: Sequence[NewEvent], buckets: Sequence[int]
    ) -> dict[Key, tuple[EventId, datetime, str, str]]:
        rows = await self._database.all("find_keyed_events", given=_keys(events, buckets))
        return {(row[0], row[1]): (row[2], row[3], row[4], row[5]) for row in rows}


def _keys(events: Sequence[NewEvent], buckets: Sequence[int]) -> Rows:
    return Rows((*key_of(event), bucket) for event, bucket in zip(events, buckets, strict=True))


async def _insert(
    session: MysqlSession, given: Sequence[tuple[NewEvent, int]]
) -> list[tuple[EventId, datetime]]:
    stored: list[tuple[EventId, datetime]] = []
    for part in _parts(given):
        written = await session.write(
            "insert_events",
            given=Rows(
                (event.event_type, event.payload, event.tenant, event.external_id, bucket)
                for event, bucket in part
            ),
        )
        row = await session.one("created_at", id=written.first_id, bucket=part[0][1])
        assert row is not None
        stored += [(EventId(number), row[0]) for number in written.ids()]
    return stored


def _parts(given: Sequence[tuple[NewEvent, int]]) -> Iterator[Sequence[tuple[NewEvent, int]]]:
    """As many as fit into one packet, at least one: most often all of them."""
    start = characters = 0
    for number, (event, _) in enumerate(given):
        characters += len(event.payload)
        if characters > STATEMENT_CHARACTERS and number > start:
            yield given[start:number]
            start, characters = number, len(event.payload)
    yield given[start:]
