"""The cleaner's statements. Reads and writes jobs."""

from __future__ import annotations

from abc import abstractmethod

from surehook.model.records import ExpiredLease
from surehook.store.contract import Store, statement


class CleanerStore(Store):
    @abstractmethod
    async def reset_expired_leases(
        self, bucket: int, count: int, error_code: str
    ) -> list[ExpiredLease]: ...

    @statement
    async def next_expiry(self, bucket: int) -> float | None:
        """Seconds until the next lease expires."""
