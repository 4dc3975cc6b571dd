"""The subscription API's statements on PostgreSQL. Writes subscriptions and their secrets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from surehook.model.records import SubscriptionId
from surehook.store.database import Session
from surehook.store.subscriptions import SubscriptionStore


class PostgresSubscriptionStore(SubscriptionStore):
    async def _insert(
        self, session: Session, key: dict[str, Any], values: dict[str, Any]
    ) -> tuple[SubscriptionId, bool]:
        made = await session.one("create_subscription", **key, **values)
        there = made or await session.one("find_by_key", **key)
        assert there is not None
        return there[0], made is not None

    async def _change(
        self,
        session: Session,
        changed: list[str],
        versions: Sequence[int] | None,
        values: dict[str, Any],
    ) -> bool:
        wanted = None if versions is None else list(versions)
        row = await session.one("update_subscription", changed=changed, versions=wanted, **values)
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
