"""Retry: how often a delivery is tried and how long it rests in between. Pure; imports nothing.

The formula, the same on every engine and written down in docs/retries.md:

    delay after the n-th failed attempt = min(base_delay × 2^(n − 1), max_delay)
    and never less than the endpoint's Retry-After, itself capped at max_delay
"""

from __future__ import annotations

from dataclasses import dataclass

# 2^40 seconds is far beyond any cap: a larger exponent would only overflow a float.
EXPONENT_MAX = 40


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of one delivery; a subscription may override the first two."""

    max_attempts: int = 5
    base_delay_seconds: float = 30.0
    max_delay_seconds: float = 3600.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("max_attempts must be at least 1")
        if self.base_delay_seconds <= 0 or self.max_delay_seconds <= 0:
            raise ValueError("delays must be positive")


PRESETS = {
    # The original documents' policy: gives up after 7.5 minutes.
    "standard": Policy(max_attempts=5, base_delay_seconds=30, max_delay_seconds=3600),
    # Rides out a long weekend: 22 attempts over 74.5 hours.
    "durable": Policy(max_attempts=22, base_delay_seconds=30, max_delay_seconds=6 * 3600),
}


def delay_seconds(policy: Policy, attempt_count: int, retry_after_seconds: int | None) -> float:
    """How long to rest after the attempt that made attempt_count what it is now (≥ 1)."""
    exponent = min(attempt_count - 1, EXPONENT_MAX)
    backoff = min(policy.base_delay_seconds * 2.0**exponent, policy.max_delay_seconds)
    asked = min(float(retry_after_seconds or 0), policy.max_delay_seconds)
    return max(backoff, asked)
