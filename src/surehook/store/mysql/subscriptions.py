"""The subscription API's statements on MySQL. Writes subscriptions and their secrets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from surehook.model.records import SubscriptionId
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.subscriptions import SubscriptionStore


class MysqlSubscriptionStore(SubscriptionStore):
    _database: MysqlDatabase

    async def _insert(
        self, session: MysqlSession, key: dict[str, Any], values: dict[str, Any]
    ) -> tuple[SubscriptionId, bool]:
        """A key that appears meanwhile refuses the INSERT: looked for again, and found."""
        if key["idempotency_key"] is not None:
            there = await session.one("find_by_key", **key)
            if there is not None:
                return there[0], False
        written = await session.write("create_subscription", **key, **values)
        return SubscriptionId(written.first_id), True

    async def _change(
        self,
        session: MysqlSession,
        changed: list[str],
        versions: Sequence[int] | None,
        values: dict[str, Any],
    ) -> bool:
        wanted = None if versions is None else ",".join(map(str, versions))
        written = await session.write(
            "update_subscription", changed=",".join(changed), versions=wanted, **values
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
