"""The keys' statements. Reads and writes api_keys."""

from __future__ import annotations

from surehook.model.records import ApiKey
from surehook.store.database import Database, Row


class KeyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, name: str, key_hash: bytes, scopes: str, tenant: str | None) -> ApiKey:
        row = await self._database.one(
            "create_key", key_name=name, key_hash=key_hash, scopes=scopes, tenant=tenant
        )
        assert row is not None
        return api_key(row)

    async def revoke(self, key_id: int, tenant: str | None) -> ApiKey | None:
        row = await self._database.one("revoke_key", id=key_id, tenant=tenant)
        return None if row is None else api_key(row)

    async def list(self, tenant: str | None) -> list[ApiKey]:
        return [api_key(row) for row in await self._database.all("list_keys", tenant=tenant)]


def api_key(row: Row) -> ApiKey:
    number, name, scopes, tenant, *times = row
    return ApiKey(number, name, tuple(scopes.split(",")), tenant, *times)
