"""The subscription API's statements on PostgreSQL. Writes subscriptions and their secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surehook.store.database import Session
from surehook.store.subscriptions import SubscriptionStore


class PostgresSubscriptionStore(SubscriptionStore):
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
