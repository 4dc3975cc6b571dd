"""The subscription API's statements. Writes subscriptions and their secrets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from surehook.model.records import Subscription, SubscriptionId
from surehook.store.contract import Store
from surehook.store.database import Session


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an owner decides about a subscription."""

    event_type: str
    callback_url: str
    active: bool = True
    max_attempts: int | None = None
    base_delay_seconds: float | None = None
    request_timeout_seconds: float | None = None
    concurrency_cap: int | None = None
    rate_limit_per_second: float | None = None
    description: str | None = None


class TooMany(Exception):
    """The tenant has as many subscriptions as it may create."""


def every_setting(changes: Mapping[str, object]) -> dict[str, object]:
    """A statement has all parameters; what is not named is not looked at."""
    return {name: changes.get(name) for name in Settings.__struct_fields__}


class SubscriptionStore(Store):
    @abstractmethod
    async def create(
        self,
        tenant: str,
        settings: Settings,
        custom_headers: str | None,
        secrets: dict[str, str],
        idempotency_key: str | None,
        most: int | None = None,
    ) -> tuple[SubscriptionId, bool]:
        """The subscription and its secrets in one commit; False = the key was there already.

        TooMany if the tenant would have more than `most`.
        """

    async def read(self, subscription_id: int, tenant: str | None = None) -> Subscription | None:
        """One subscription, if it belongs to `tenant` (None = any)."""
        row = await self._database.one("read_subscription", id=subscription_id, tenant=tenant)
        return None if row is None else Subscription(*row)

    async def update(
        self,
        subscription_id: int,
        changes: Mapping[str, object],
        custom_headers: str | msgspec.UnsetType | None,
        *,
        tenant: str | None,
        versions: Sequence[int] | None,
    ) -> bool:
        """Write the named settings and headers in one commit, the row locked from the first
        statement on. False: there is none of this tenant, or it has none of these versions."""

        async def work(session: Session) -> bool:
            if not await self._change(session, subscription_id, changes, tenant, versions):
                return False
            # Apart: this role may not read headers, and keeping them unchanged would read them.
            if custom_headers is not msgspec.UNSET:
                await session.all(
                    "set_custom_headers", id=subscription_id, custom_headers=custom_headers
                )
            return True

        return await self._database.in_transaction(work)

    @abstractmethod
    async def _change(
        self,
        session: Session,
        subscription_id: int,
        changes: Mapping[str, object],
        tenant: str | None,
        versions: Sequence[int] | None,
    ) -> bool: ...

    @abstractmethod
    async def rotate(
        self, subscription_id: int, scheme: str, sealed: str, overlap_seconds: float
    ) -> datetime | None:
        """A new secret, the old ones expiring; both in one commit. Returns when they expire."""
