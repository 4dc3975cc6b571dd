"""One way to call both clients, so that a test is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from surehook.client import AsyncClient, Client


class Either:
    """A Client in a thread, or an AsyncClient: what a test calls is awaited in either case."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client

    async def __call__(self, path: str, *arguments: Any, **named: Any) -> Any:
        method: Any = self.client
        for name in path.split("."):
            method = getattr(method, name)
        if isinstance(self.client, AsyncClient):
            result = method(*arguments, **named)
            if hasattr(result, "__aiter__"):
                return [item async for item in result]
            return await result

        def call() -> Any:
            result = method(*arguments, **named)
            return list(result) if isinstance(result, Iterator) else result

        return await asyncio.to_thread(call)

    async def close(self) -> None:
        closed = self.client.close()
        if closed is not None:
            await closed
