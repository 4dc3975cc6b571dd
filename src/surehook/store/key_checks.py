"""The key checks' statements. Reads api_keys; writes last_used_at."""

from __future__ import annotations

from surehook.store.database import Database


class KeyCheckStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, key_hash: bytes) -> tuple[int, str, str, str | None, bytes] | None:
        """id, name, scopes, tenant and hash of a key that is not revoked."""
        row = await self._database.one("find_key", key_hash=key_hash)
        return None if row is None else (row[0], row[1], row[2], row[3], bytes(row[4]))

    async def touch(self, key_id: int, every_seconds: float) -> None:
        await self._database.all("touch_key", id=key_id, every_seconds=every_seconds)
