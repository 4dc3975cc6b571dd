"""The keys' statements. Reads and writes api_keys."""

from __future__ import annotations

from surehook.model.resources.key import Key
from surehook.store.contract import Store, statement


class KeyStore(Store):
    async def create(self, name: str, key_hash: bytes, scopes: str, tenant: str | None) -> Key:
        written = await self._database.write(
            "create_key", key_name=name, key_hash=key_hash, scopes=scopes, tenant=tenant
        )
        made = await self.read_key(written.first_id, None)
        assert made is not None
        return made

    async def revoke(self, key_id: int, tenant: str | None) -> Key | None:
        await self._database.write("revoke_key", id=key_id, tenant=tenant)
        return await self.read_key(key_id, tenant)

    @statement
    async def read_key(self, id: int, tenant: str | None) -> Key | None: ...

    @statement
    async def list_keys(self, tenant: str | None) -> list[Key]: ...
