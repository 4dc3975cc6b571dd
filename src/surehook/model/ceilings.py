"""What no subscription may exceed: set by the operator in the configuration. Pure.

A larger value is refused when someone asks for it, and cut wherever it is used: a ceiling that is
lowered holds for subscriptions that exist already.
"""

from __future__ import annotations

import msgspec


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    concurrency_cap: int = 256
    rate: int | None = None  # None = no ceiling; else also for subscriptions without a limit
    request_seconds: float = 25.0
    subscriptions: int = 1000  # of one tenant, created with that tenant's own keys

    def largest(self, setting: str) -> float | None:
        """What the operator's setting of this name allows; None = any value."""
        allowed: dict[str, float | None] = {
            "limits.concurrency_cap": self.concurrency_cap,
            "limits.rate": self.rate,
            "limits.request_timeout": self.request_seconds,
        }
        return allowed[setting]
