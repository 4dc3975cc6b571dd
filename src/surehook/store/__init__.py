"""The store: how a named statement reaches a database.

A component opens the store under its own name and gets its own statements and its own login,
nothing else. Which engine is behind it, only the files below know.
"""

from __future__ import annotations

from surehook.config import Config
from surehook.errors import ConfigError
from surehook.store.logins import Place, login
from surehook.store.postgres.database import Database


async def open_database(config: Config, place: Place, component: str) -> Database:
    """The component's connections; refuses a database whose schema this program does not fit."""
    if place.url.startswith(("mysql:", "mariadb:")):
        raise ConfigError("MySQL and MariaDB are not supported yet; use a postgresql:// URL.")
    database = Database(config, login(config, place, component))
    await database.open()
    try:
        await database.check_schema()
    except BaseException:
        await database.close()
        raise
    return database
