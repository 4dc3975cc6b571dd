"""The API as its clients see it: a real server on a real socket, on this test's own database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop

from support import Configure
from support.api import FLAGS, NewKey, OpenApi, serving
from support.http import Client
from surehook.store.logins import DatabaseAccess


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The server's loop is the one that it has in production."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def open_api(configure: Configure, access: DatabaseAccess) -> AsyncIterator[OpenApi]:
    """await open_api({"api.payload_max": 2048}): a client with the admin key."""
    async with AsyncExitStack() as opened:

        async def opening(flags: dict[str, object] | None = None, *components: str) -> Client:
            config = configure({**FLAGS, **(flags or {})})
            return await opened.enter_async_context(serving(config, access, *components))

        yield opening


@pytest.fixture
async def client(open_api: OpenApi) -> Client:
    return await open_api()


@pytest.fixture
def new_key(client: Client) -> NewKey:
    """await new_key("ingest", tenant="acme"): the text of a new key."""

    async def making(*scopes: str, tenant: str | None = None) -> str:
        body: dict[str, Any] = {"name": "test", "scopes": scopes, "tenant": tenant}
        reply = await client.post("/v1/keys", body)
        assert reply.status == 201, reply.body
        key: str = reply.json()["key"]
        return key

    return making
