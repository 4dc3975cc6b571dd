"""The subscription API's statements. Writes subscriptions and their secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from surehook.model import fields
from surehook.model.records import SubscriptionId
from surehook.model.resources.subscription import Subscription
from surehook.store.contract import Store, statement
from surehook.store.database import Session

# What an owner decides about a subscription and every statement takes as it is.
SETTINGS = [
    name
    for name, one in fields.settings(Subscription).items()
    if one.stored != "sealed" and not one.once
]


class TooMany(Exception):
    """The tenant has as many subscriptions as it may create."""


def every_setting(changes: Mapping[str, object]) -> dict[str, object]:
    """A statement has all parameters; what is not named is not looked at."""
    return {name: changes.get(name) for name in SETTINGS}


class SubscriptionStore(Store):
    async def create(
        self,
        tenant: str,
        settings: Mapping[str, object],
        custom_headers: str | None,
        secrets: dict[str, str],
        idempotency_key: str | None,
        most: int | None = None,
    ) -> tuple[SubscriptionId, bool]:
        """The subscription and its secrets in one commit; False = the key was there already.

        TooMany if the tenant would have more than `most`.
        """
        key = {"tenant": tenant, "idempotency_key": idempotency_key}

        async def work(session: Session) -> tuple[SubscriptionId, bool]:
            if most is not None:
                await session.all("lock_tenant", tenant=tenant)
            there = await session.one("find_by_key", **key) if idempotency_key else None
            if there is None:
                written = await session.write(
                    "create_subscription", **key, custom_headers=custom_headers, **settings
                )
                if not written.rows:  # the key has appeared meanwhile
                    there = await session.one("find_by_key", **key)
            if there is not None:
                return there[0], False
            made = SubscriptionId(written.first_id)
            if most is not None:
                count = await session.one("count_of_tenant", tenant=tenant)
                if count is not None and count[0] > most:
                    raise TooMany
            for scheme, sealed in secrets.items():
                await session.all("add_secret", subscription_id=made, scheme=scheme, sealed=sealed)
            return made, True

        return await self._database.in_transaction(work)

    @statement
    async def read_subscription(self, id: int, tenant: str | None) -> Subscription | None:
        """One subscription, if it belongs to `tenant` (None = any)."""

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

        values = {"id": subscription_id, "tenant": tenant} | every_setting(changes)
        wanted = None if versions is None else ",".join(map(str, versions))

        async def work(session: Session) -> bool:
            written = await session.write(
                "update_subscription", changed=",".join(changes), versions=wanted, **values
            )
            if not written.rows:
                return False
            # Apart: this role may not read headers, and keeping them unchanged would read them.
            if custom_headers is not msgspec.UNSET:
                await session.all(
                    "set_custom_headers", id=subscription_id, custom_headers=custom_headers
                )
            return True

        return await self._database.in_transaction(work)

    async def rotate(
        self, subscription_id: int, scheme: str, sealed: str, overlap_seconds: float
    ) -> datetime | None:
        """A new secret, the old ones expiring; both in one commit. Returns when they expire."""

        async def work(session: Session) -> datetime | None:
            added = await session.write(
                "add_secret", subscription_id=subscription_id, scheme=scheme, sealed=sealed
            )
            row = await session.one("expiry", overlap_seconds=overlap_seconds)
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
