"""The keys' statements. Reads and writes api_keys."""

from __future__ import annotations

from surehook.model.resources.key import Key
from surehook.store.contract import Store


class KeyStore(Store):
    async def create(self, name: str, key_hash: bytes, scopes: str, tenant: str | None) -> Key:
        written = await self._database.write(
            "create_key", key_name=name, key_hash=key_hash, scopes=scopes, tenant=tenant
        )
        made: Key = await self._database.record("read_key", id=written.first_id, tenant=None)
        return made

    async def revoke(self, key_id: int, tenant: str | None) -> Key | None:
        await self._database.write("revoke_key", id=key_id, tenant=tenant)
        revoked: Key | None = await self._database.record("read_key", id=key_id, tenant=tenant)
        return revoked

    async def list(self, tenant: str | None) -> list[Key]:
        return await self._database.records("list_keys", tenant=tenant)
