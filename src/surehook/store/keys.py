"""The keys' statements. Reads and writes api_keys."""

from __future__ import annotations

from abc import abstractmethod

from surehook.model.records import ApiKey
from surehook.store.contract import Store
from surehook.store.database import Row


class KeyStore(Store):
    @abstractmethod
    async def create(
        self, name: str, key_hash: bytes, scopes: str, tenant: str | None
    ) -> ApiKey: ...

    @abstractmethod
    async def revoke(self, key_id: int, tenant: str | None) -> ApiKey | None: ...

    async def list(self, tenant: str | None) -> list[ApiKey]:
        return [api_key(row) for row in await self._database.all("list_keys", tenant=tenant)]


def api_key(row: Row) -> ApiKey:
    number, name, scopes, tenant, *times = row
    return ApiKey(number, name, tuple(scopes.split(",")), tenant, *times)
