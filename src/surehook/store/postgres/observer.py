"""The observer's statements on PostgreSQL. Reads everything but secrets; writes nothing."""

from __future__ import annotations

from datetime import datetime

from surehook.store.postgres.database import Database


class ObserverStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def broken(
        self, invariant: str, since: datetime, margin: float, count: int
    ) -> list[tuple[int, int, str]]:
        """What breaks an invariant: two ids and the facts."""
        name = f"check_{invariant}"
        given: dict[str, object] = {"since": since, "margin": margin, "count": count}
        wanted = self._database.parameters(name)
        rows = await self._database.all(name, **{key: given[key] for key in wanted})
        return [(row[0], row[1], row[2]) for row in rows]
