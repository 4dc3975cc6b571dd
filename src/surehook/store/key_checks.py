"""The key checks' statements. Reads api_keys; writes last_used_at."""

from __future__ import annotations

from surehook.store.database import Database


class KeyCheckStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, key_hashes: list[bytes]) -> list[tuple[int, str, str, str | None, bytes]]:
        """id, name, scopes, tenant and hash of those keys that are there and not revoked."""
        rows = await self._database.all("find_keys", key_hashes=key_hashes)
        return [(row[0], row[1], row[2], row[3], bytes(row[4])) for row in rows]

    async def touch(self, key_id: int, every_seconds: float) -> None:
        await self._database.all("touch_key", id=key_id, every_seconds=every_seconds)
