"""The API in the test's own process: a real server on a real socket, on the test's database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from support.http import Client
from support.pipeline import running
from support.servers import ENCRYPTION_KEY as ENCRYPTION_KEY
from surehook import observe
from surehook.config import Config
from surehook.store.logins import DatabaseAccess

ADMIN_KEY = "test-admin-key-0123456789abcdef"
FLAGS: dict[str, object] = {
    "api.listen": "127.0.0.1:0",
    "api.admin_key": ADMIN_KEY,
    "api.key_failures": 100_000,
}

OpenApi = Callable[..., Awaitable[Client]]
NewKey = Callable[..., Awaitable[str]]


@asynccontextmanager
async def serving(
    config: Config, access: DatabaseAccess, *components: str
) -> AsyncIterator[Client]:
    """The API, and other components beside it, until the block ends."""
    try:
        async with running(config, access, ("api", *components)) as process:
            assert process.api is not None
            yield Client(process.api.address, ADMIN_KEY)
    finally:
        observe.silence()
