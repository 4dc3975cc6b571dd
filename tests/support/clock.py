"""The database's clock, shifted: surehook_now() is replaced in the test's own database."""

from __future__ import annotations

from datetime import datetime
from typing import Any


class Clock:
    """`await clock.shift(60)`: for every statement from now on it is a minute later."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._seconds = 0.0
        self._base = "statement_timestamp()"

    async def shift(self, seconds: float) -> None:
        self._seconds += seconds
        await self._owner.execute(
            "CREATE OR REPLACE FUNCTION surehook_now() RETURNS timestamptz "
            "LANGUAGE sql STABLE PARALLEL SAFE AS "
            f"$$SELECT {self._base} + interval '{self._seconds} seconds'$$"
        )

    async def stop(self) -> None:
        """From now on only `shift` moves the time."""
        self._base = f"timestamptz '{await self._owner.fetchval('SELECT statement_timestamp()')}'"
        await self.shift(0)

    async def now(self) -> datetime:
        now: datetime = await self._owner.fetchval("SELECT surehook_now()")
        return now
