"""Fresh databases on a PostgreSQL server: copies of migrated templates.

Reads and writes only the databases that it makes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.connections import connected
from support.server import Server
from surehook.store.postgres.migrate import migrate

BUCKETS = (1, 4)  # one template each


def template(buckets: int) -> str:
    return f"migrated_{buckets}"


async def create_templates(server: Server) -> None:
    """One migrated database per number of buckets; copies of it are what tests get."""
    async with connected(server.url) as admin:
        for buckets in BUCKETS:
            await admin.execute(f"CREATE DATABASE {template(buckets)}")
            async with connected(server.url_of(template(buckets))) as owner:
                await migrate(owner, buckets=buckets, role_secret=server.role_secret)
            # Nobody may be connected to a database while it is copied.
            await admin.execute(
                f"ALTER DATABASE {template(buckets)} IS_TEMPLATE true ALLOW_CONNECTIONS false"
            )


@asynccontextmanager
async def fresh_database(server: Server, buckets: int | None) -> AsyncIterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    source = f"TEMPLATE {template(buckets)} STRATEGY FILE_COPY" if buckets else ""
    async with connected(server.url) as admin:
        await admin.execute(f"CREATE DATABASE {name} {source}")
    try:
        yield server.url_of(name)
        await _refuse_leaks(server, name)
    finally:
        async with connected(server.url) as admin:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def _refuse_leaks(server: Server, name: str) -> None:
    """A session that was closed takes a moment to go; one that was not stays."""
    async with connected(server.url) as admin:
        for _ in range(100):
            left = await admin.fetch(
                "SELECT application_name, query FROM pg_stat_activity WHERE datname = $1", name
            )
            if not left:
                return
            await asyncio.sleep(0.02)
    raise AssertionError(f"connections left open: {[tuple(row) for row in left]}")


@asynccontextmanager
async def out_of_reach(server: Server, name: str) -> AsyncIterator[None]:
    async with connected(server.url) as admin:
        await admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 0")
        await admin.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = $1 AND application_name LIKE 'surehook%'",
            name,
        )
        try:
            yield
        finally:
            await admin.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1")
