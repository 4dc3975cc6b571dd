"""Ingest's statements. Reads events; writes INSERT events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from surehook.model.records import EventId, NewEvent
from surehook.store.database import Database

Key = tuple[str, str]  # tenant, external_id


class IngestStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def insert(
        self, events: Sequence[NewEvent], buckets: Sequence[int]
    ) -> list[tuple[EventId, datetime]]:
        """Store events without a key; ids in order of input. May raise Refused."""
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
        """Store events with a key; only those whose key was new come back.

        May raise Refused, or LockHeld if a key is not free after so many seconds.
        """
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
        """What stands under these keys: id, created_at, event_type, payload."""
        rows = await self._database.all(
            "find_keyed_events",
            tenants=[event.tenant for event in events],
            external_ids=[event.external_id for event in events],
            buckets=buckets,
        )
        return {(row[0], row[1]): (row[2], row[3], row[4], row[5]) for row in rows}
