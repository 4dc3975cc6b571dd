"""An application with a login of its own: one transaction, by each driver the outbox knows.

    async with DRIVERS["postgres"]["psycopg"](login) as transaction:
        await transaction.execute("INSERT INTO orders VALUES (1)")
        await transaction.publish("order.paid", {"order": 1})

Leaving the block commits, an exception rolls back: each driver's own idiom.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from support import mysql_drivers, postgres_drivers
from support.transactions import Driver as Driver
from support.transactions import Login as Login
from support.transactions import Transaction

DRIVERS: dict[str, dict[str, Driver]] = {
    "postgres": postgres_drivers.DRIVERS,
    "mysql": mysql_drivers.DRIVERS,
}
USUAL = {"postgres": "asyncpg", "mysql": "asyncmy"}


def usual(login: Login) -> AbstractAsyncContextManager[Transaction]:
    """By the driver that surehook itself uses, where it does not matter which."""
    return DRIVERS[login.engine][USUAL[login.engine]](login)
