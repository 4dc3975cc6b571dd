"""The keys' statements. Reads and writes api_keys."""

from __future__ import annotations

from abc import abstractmethod

from surehook.model.resources.key import Key
from surehook.store.contract import Store


class KeyStore(Store):
    @abstractmethod
    async def create(self, name: str, key_hash: bytes, scopes: str, tenant: str | None) -> Key: ...

    @abstractmethod
    async def revoke(self, key_id: int, tenant: str | None) -> Key | None: ...

    async def list(self, tenant: str | None) -> list[Key]:
        return await self._database.records("list_keys", tenant=tenant)
