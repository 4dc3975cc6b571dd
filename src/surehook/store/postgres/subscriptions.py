"""The subscription API's statements on PostgreSQL. Writes subscriptions and their secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from surehook.model.records import SubscriptionId
from surehook.store.database import Session
from surehook.store.subscriptions import SubscriptionStore, TooMany, every_setting


class PostgresSubscriptionStore(SubscriptionStore):
    async def create(
        self,
        tenant: str,
        settings: Mapping[str, object],
        custom_headers: str | None,
        secrets: dict[str, str],
        idempotency_key: str | None,
        most: int | None = None,
    ) -> tuple[SubscriptionId, bool]:
        async def work(session: Session) -> tuple[SubscriptionId, bool]:
            if most is not None:
                await session.all("lock_tenant", tenant=tenant)
            row = await session.one(
                "create_subscription",
                tenant=tenant,
                custom_headers=custom_headers,
                idempotency_key=idempotency_key,
                **settings,
            )
            if row is None:
                found = await session.one(
                    "find_by_key", tenant=tenant, idempotency_key=idempotency_key
                )
                assert found is not None
                return found[0], False
            if most is not None:
                count = await session.one("count_of_tenant", tenant=tenant)
                if count is not None and count[0] > most:
                    raise TooMany
            for scheme, sealed in secrets.items():
                await session.one(
                    "add_secret", subscription_id=row[0], scheme=scheme, sealed=sealed
                )
            return row[0], True

        return await self._database.in_transaction(work)

    async def _change(
        self,
        session: Session,
        subscription_id: int,
        changes: Mapping[str, object],
        tenant: str | None,
        versions: Sequence[int] | None,
    ) -> bool:
        row = await session.one(
            "update_subscription",
            id=subscription_id,
            tenant=tenant,
            versions=None if versions is None else list(versions),
            changed=list(changes),
            **every_setting(changes),
        )
        return row is not None

    async def rotate(
        self, subscription_id: int, scheme: str, sealed: str, overlap_seconds: float
    ) -> datetime | None:
        async def work(session: Session) -> datetime | None:
            added = await session.one(
                "add_secret", subscription_id=subscription_id, scheme=scheme, sealed=sealed
            )
            assert added is not None
            expired = await session.one(
                "expire_secrets",
                subscription_id=subscription_id,
                scheme=scheme,
                before_id=added[0],
                overlap_seconds=overlap_seconds,
            )
            return None if expired is None else expired[0]

        return await self._database.in_transaction(work)
