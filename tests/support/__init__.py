"""What the tests share. The types of what fixtures hand out stand here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from surehook.config import Config
from surehook.store.database import Database

OpenStore = Callable[..., Awaitable[Database]]
Configure = Callable[..., Config]
