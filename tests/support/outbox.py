"""What became of events that an application published. Reads sagas and events."""

from __future__ import annotations

import asyncio
from typing import Any

from support.waiting import PATIENCE


class Routed:
    """Which events have become sagas; woken by the router's own word."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._news = asyncio.Event()

    def heard(self, name: str, _level: object, _fields: object) -> None:
        if name == "saga.created":
            self._news.set()

    async def now(self) -> list[str]:
        rows = await self._owner.fetch(
            "SELECT e.payload FROM webhook_delivery_sagas s "
            "JOIN events e ON e.id = s.event_id AND e.bucket = s.bucket ORDER BY e.id"
        )
        return [row[0] for row in rows]

    async def until(self, *payloads: str, timeout: float = PATIENCE) -> None:
        async with asyncio.timeout(timeout):
            while not set(payloads) <= set(await self.now()):
                await self._news.wait()
                self._news.clear()
