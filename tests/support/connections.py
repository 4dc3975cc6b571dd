"""Connections to a database, whichever engine it is of: a test's own, and the product's.

Reads and writes whatever is done with them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

import asyncpg

from support import mysql_connection
from surehook.store import engine_of
from surehook.store.logins import Login


def is_mysql(url: str) -> bool:
    return url.startswith("mysql:")


@asynccontextmanager
async def connected(url: str, **how: Any) -> AsyncIterator[Any]:
    """As the URL says; `how` says otherwise: user=…, password=… Called like asyncpg's."""
    connect = mysql_connection.connect if is_mysql(url) else asyncpg.connect
    connection = await connect(url, **how)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def engine_connection(url: str) -> AsyncIterator[Any]:
    """The product's own, as the owner: what `migrate` and `doctor` take."""
    connection = await engine_of(url).connect(Login("migrate", url), 30)
    try:
        yield connection
    finally:
        closed = getattr(connection, "ensure_closed", connection.close)()
        if isawaitable(closed):
            await closed


async def migrate(url: str, **how: Any) -> None:
    async with engine_connection(url) as connection:
        await engine_of(url).migrate(connection, **how)
