"""The subscription API's statements on MySQL. Writes subscriptions and their secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.subscriptions import SubscriptionStore


class MysqlSubscriptionStore(SubscriptionStore):
    _database: MysqlDatabase

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
