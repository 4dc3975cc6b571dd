"""What results can do besides holding their fields. Pure.

The generated result of the same name inherits it: `Delivery` of generated/results.py has the
`done` of `Delivery` here. No repr shows a secret: it would get into a log.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all results."""


class Delivery:
    __slots__ = ()
    status: str

    @property
    def done(self) -> bool:
        return self.status in ("Completed", "DeadLettered")


class EventWithDeliveries:
    __slots__ = ()
    payload: msgspec.Raw

    def json(self) -> Any:
        """The payload, parsed."""
        return msgspec.json.decode(self.payload)


class BatchItem:
    __slots__ = ()
    error: Any

    @property
    def stored(self) -> bool:
        return self.error is None


class Subscription:
    __slots__ = ()
    id: int
    event_type: str
    callback_url: str

    def __repr__(self) -> str:
        return f"Subscription(id={self.id}, {self.event_type!r} → {self.callback_url!r})"


class RotatedSecret:
    __slots__ = ()
    old_secrets_expire_at: datetime | None

    def __repr__(self) -> str:
        return f"RotatedSecret(old_secrets_expire_at={self.old_secrets_expire_at})"


class Key:
    __slots__ = ()
    id: int
    name: str
    scopes: list[str]

    def __repr__(self) -> str:
        return f"Key(id={self.id}, {self.name!r}, scopes={self.scopes})"


class TestResult:
    __slots__ = ()
    __test__ = False  # not a test class, whatever pytest thinks
