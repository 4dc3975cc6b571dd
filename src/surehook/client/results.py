"""What the client's calls return: frozen, typed, times aware. Pure.

Fields that a newer server adds are ignored; those that an older one lacks have a default.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from surehook.client.behaviour import Result
from surehook.client.generated.results import *  # noqa: F403  their public home is here

T = TypeVar("T")


class Page(Result, Generic[T], frozen=True, kw_only=True):
    """Part of a list; iterating over a list fetches one after the other."""

    items: list[T]
    next: str | None = None
