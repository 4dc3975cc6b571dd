"""The keys' statements on PostgreSQL. Reads and writes api_keys."""

from __future__ import annotations

from surehook.model.resources.key import Key
from surehook.store.keys import KeyStore


class PostgresKeyStore(KeyStore):
    async def create(self, name: str, key_hash: bytes, scopes: str, tenant: str | None) -> Key:
        made: Key = await self._database.record(
            "create_key", key_name=name, key_hash=key_hash, scopes=scopes, tenant=tenant
        )
        return made

    async def revoke(self, key_id: int, tenant: str | None) -> Key | None:
        revoked: Key | None = await self._database.record("revoke_key", id=key_id, tenant=tenant)
        return revoked
