"""The keys' statements on MySQL. Reads and writes api_keys."""

from __future__ import annotations

from surehook.model.records import ApiKey
from surehook.store.keys import KeyStore, api_key
from surehook.store.mysql.database import MysqlDatabase, MysqlSession


class MysqlKeyStore(KeyStore):
    _database: MysqlDatabase

    async def create(self, name: str, key_hash: bytes, scopes: str, tenant: str | None) -> ApiKey:
        async def work(session: MysqlSession) -> ApiKey:
            written = await session.write(
                "create_key", key_name=name, key_hash=key_hash, scopes=scopes, tenant=tenant
            )
            row = await session.one("read_key", id=written.first_id, tenant=None)
            assert row is not None
            return api_key(row)

        return await self._database.in_transaction(work)

    async def revoke(self, key_id: int, tenant: str | None) -> ApiKey | None:
        await self._database.write("revoke_key", id=key_id, tenant=tenant)
        row = await self._database.one("read_key", id=key_id, tenant=tenant)
        return None if row is None else api_key(row)
