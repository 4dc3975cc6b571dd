"""The subscription API's statements on MySQL. Writes subscriptions and their secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from surehook.model.records import SubscriptionId
from surehook.store.database import Session
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.subscriptions import SubscriptionStore, TooMany, every_setting


class MysqlSubscriptionStore(SubscriptionStore):
    _database: MysqlDatabase

    async def create(
        self,
        tenant: str,
        settings: Mapping[str, object],
        custom_headers: str | None,
        secrets: dict[str, str],
        idempotency_key: str | None,
        most: int | None = None,
    ) -> tuple[SubscriptionId, bool]:
        """A key that appears meanwhile refuses the INSERT: looked for again, and found."""

        async def work(session: MysqlSession) -> tuple[SubscriptionId, bool]:
            if most is not None:
                await session.all("lock_tenant", tenant=tenant)
            if idempotency_key is not None:
                found = await session.one(
                    "find_by_key", tenant=tenant, idempotency_key=idempotency_key
                )
                if found is not None:
                    return found[0], False
            written = await session.write(
                "create_subscription",
                tenant=tenant,
                custom_headers=custom_headers,
                idempotency_key=idempotency_key,
                **settings,
            )
            if most is not None:
                count = await session.one("count_of_tenant", tenant=tenant)
                if count is not None and count[0] > most:
                    raise TooMany
            made = SubscriptionId(written.first_id)
            for scheme, sealed in secrets.items():
                await session.write(
                    "add_secret", subscription_id=made, scheme=scheme, sealed=sealed
                )
            return made, True

        return await self._database.in_transaction(work)

    async def _change(
        self,
        session: Session,
        subscription_id: int,
        changes: Mapping[str, object],
        tenant: str | None,
        versions: Sequence[int] | None,
    ) -> bool:
        assert isinstance(session, MysqlSession)
        written = await session.write(
            "update_subscription",
            id=subscription_id,
            tenant=tenant,
            versions=None if versions is None else ",".join(map(str, versions)),
            changed=",".join(changes),
            **every_setting(changes),
        )
        return written.rows > 0

    async def rotate(
        self, subscription_id: int, scheme: str, sealed: str, overlap_seconds: float
    ) -> datetime | None:
        async def work(session: MysqlSession) -> datetime | None:
            added = await session.write(
                "add_secret", subscription_id=subscription_id, scheme=scheme, sealed=sealed
            )
            row = await session.one("expiry", overlap_microseconds=round(overlap_seconds * 1e6))
            assert row is not None
            expires_at: datetime = row[0]
            expired = await session.write(
                "expire_secrets",
                subscription_id=subscription_id,
                scheme=scheme,
                before_id=added.first_id,
                expires_at=expires_at,
            )
            return expires_at if expired.rows else None

        return await self._database.in_transaction(work)
