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

    def of_subscription(self) -> dict[str, tuple[float, str]]:
        """The largest value of each setting of a subscription, and the setting that says so."""
        largest: dict[str, tuple[float, str]] = {
            "concurrency_cap": (self.concurrency_cap, "limits.concurrency_cap"),
            "request_timeout_seconds": (self.request_seconds, "limits.request_timeout"),
        }
        if self.rate is not None:
            largest["rate_limit_per_second"] = (self.rate, "limits.rate")
        return largest
