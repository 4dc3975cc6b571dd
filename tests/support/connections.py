"""A test's own connection to a database, whichever engine it is of, as a test calls asyncpg's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from support import mysql_connection


def is_mysql(url: str) -> bool:
    return url.startswith("mysql:")


@asynccontextmanager
async def connected(url: str, **how: Any) -> AsyncIterator[Any]:
    """As the URL says; `how` says otherwise: user=…, password=…"""
    connect = mysql_connection.connect if is_mysql(url) else asyncpg.connect
    connection = await connect(url, **how)
    try:
        yield connection
    finally:
        await connection.close()
