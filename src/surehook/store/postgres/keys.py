"""The keys' statements on PostgreSQL. Reads and writes api_keys."""

from __future__ import annotations

from surehook.model.records import ApiKey
from surehook.store.keys import KeyStore, api_key


class PostgresKeyStore(KeyStore):
    async def create(self, name: str, key_hash: bytes, scopes: str, tenant: str | None) -> ApiKey:
        row = await self._database.one(
            "create_key", key_name=name, key_hash=key_hash, scopes=scopes, tenant=tenant
        )
        assert row is not None
        return api_key(row)

    async def revoke(self, key_id: int, tenant: str | None) -> ApiKey | None:
        row = await self._database.one("revoke_key", id=key_id, tenant=tenant)
        return None if row is None else api_key(row)
