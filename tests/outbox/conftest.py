"""An application's login as docs/outbox.md makes it, and a router that sees what it publishes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.applications import Login
from support.dialects import speaks_mysql
from support.outbox import Routed
from support.rows import a_subscription
from surehook import observe
from surehook.config import Config
from surehook.process.serve import Process
from surehook.store.logins import DatabaseAccess


@pytest.fixture
async def login(database_url: str, owner: Any) -> AsyncIterator[Login]:
    """An application's own login, with a table of its own."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    making, unmaking = _on_mysql(name) if speaks_mysql(owner) else _on_postgres(name)
    for statement in making:
        await owner.execute(statement)
    yield Login.of(database_url, name, "shop")
    for statement in unmaking:
        await owner.execute(statement)


def _on_postgres(name: str) -> tuple[list[str], list[str]]:
    making = [
        f"CREATE ROLE {name} LOGIN PASSWORD 'shop'",
        f"GRANT outbox_writer TO {name}",
        "CREATE TABLE orders (id integer)",
        f"GRANT INSERT ON orders TO {name}",
    ]
    return making, [f"DROP OWNED BY {name}", f"DROP ROLE {name}"]


def _on_mysql(name: str) -> tuple[list[str], list[str]]:
    """From this machine and from others: a given server may be reached either way."""
    making, unmaking = ["CREATE TABLE orders (id integer)"], ["DROP TABLE orders"]
    for account in (f"{name}@localhost", f"{name}@'%'"):
        making += [
            f"CREATE USER {account} IDENTIFIED BY 'shop'",
            "GRANT INSERT (event_type, payload, tenant, external_id, bucket) ON events "
            f"TO {account}",
            f"GRANT EXECUTE ON FUNCTION surehook_bucket TO {account}",
            f"GRANT INSERT ON orders TO {account}",
        ]
        unmaking.append(f"DROP USER {account}")
    return making, unmaking


@pytest.fixture
async def routed(config: Config, access: DatabaseAccess, owner: Any) -> AsyncIterator[Routed]:
    """A router at work and a subscription to order.paid."""
    await a_subscription(owner)
    routed = Routed(owner)
    observe.listen(routed.heard)
    process = Process(config, access)
    await process.open(["router"])
    running = asyncio.create_task(process.run())
    yield routed
    process.stop()
    await running
    observe.silence()


@pytest.fixture(autouse=True)
def django_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django refuses to block a running loop; here that is wanted."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
