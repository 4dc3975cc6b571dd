"""The key checks' statements. Reads api_keys; writes last_used_at."""

from __future__ import annotations

from surehook.store.contract import Store, statement


class KeyCheckStore(Store):
    @statement
    async def find(self, key_hashes: list[bytes]) -> list[tuple[int, str, str, str | None, bytes]]:
        """id, name, scopes, tenant and hash of those keys that are there and not revoked."""

    @statement
    async def touch(self, id: int, every_seconds: float) -> None: ...
