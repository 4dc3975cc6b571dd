"""Ingest's statements on PostgreSQL. Reads events; writes INSERT events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from surehook.model.records import EventId, NewEvent
from surehook.store.ingest import IngestStore, Key


class PostgresIngestStore(IngestStore):
    async def insert(
        self, events: Sequence[NewEvent], buckets: Sequence[int]
    ) -> list[tuple[EventId, datetime]]:
        rows = await self._database.all(
            "insert_events",
            event_types=[event.event_type for event in events],
            payloads=[event.payload for event in events],
            tenants=[event.tenant for event in events],
            buckets=buckets,
        )
        return [(row[0], row[1]) for row in rows]

    async def insert_keyed(
        self, events: Sequence[NewEvent], buckets: Sequence[int], patience: float
    ) -> dict[Key, tuple[EventId, datetime]]:
        rows = await self._database.all(
            "insert_keyed_events",
            event_types=[event.event_type for event in events],
            payloads=[event.payload for event in events],
            tenants=[event.tenant for event in events],
            external_ids=[event.external_id for event in events],
            buckets=buckets,
            patience=f"{patience * 1000:.0f}",
        )
        return {(row[0], row[1]): (row[2], row[3]) for row in rows}

    async def find_keyed(
        self, events: Sequence[NewEvent], buckets: Sequence[int]
    ) -> dict[Key, tuple[EventId, datetime, str, str]]:
        rows = await self._database.all(
            "find_keyed_events",
            tenants=[event.tenant for event in events],
            external_ids=[event.external_id for event in events],
            buckets=buckets,
        )
        return {(row[0], row[1]): (row[2], row[3], row[4], row[5]) for row in rows}
