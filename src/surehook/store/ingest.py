"""Ingest's statements. Reads events; writes INSERT events."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime

from surehook.model.records import EventId, NewEvent
from surehook.store.contract import Store

Key = tuple[str, str]  # tenant, external_id


def key_of(event: NewEvent) -> Key:
    assert event.external_id is not None
    return event.tenant, event.external_id


class IngestStore(Store):
    @abstractmethod
    async def insert(
        self, events: Sequence[NewEvent], buckets: Sequence[int]
    ) -> list[tuple[EventId, datetime]]:
        """Store events without a key; ids in order of input. May raise ValueRejected."""

    @abstractmethod
    async def insert_keyed(
        self, events: Sequence[NewEvent], buckets: Sequence[int], patience: float
    ) -> dict[Key, tuple[EventId, datetime]]:
        """Store events with a key; only those whose key was new come back.

        May raise ValueRejected, or LockHeld if a key is not free after so many seconds.
        """

    @abstractmethod
    async def find_keyed(
        self, events: Sequence[NewEvent], buckets: Sequence[int]
    ) -> dict[Key, tuple[EventId, datetime, str, str]]:
        """What stands under these keys: id, created_at, event_type, payload."""
