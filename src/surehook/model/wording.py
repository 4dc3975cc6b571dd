"""Words for numbers, for everything that people read. Pure."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """1 dead letter, 2 dead letters."""
    return f"{count} {one if count == 1 else many or one + 's'}"
