"""The router's statements. Reads events and subscriptions; writes sagas and its cursor.

How to read on without missing what commits late is each engine's own way; the promise is the same.
"""

from __future__ import annotations

from surehook.records import RoutedSaga
from surehook.store.database import Database


class RouterStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def route_page(self, bucket: int, count: int) -> tuple[list[RoutedSaga], bool] | None:
        """Route the next page of events; None = another router has this bucket.

        The flag says that more may follow. Sagas and cursor are one commit, the cursor last.
        """
        raise NotImplementedError
