"""The store: how a named statement reaches a database.

A component opens the store under its own name and gets its own statements and its own login,
nothing else. Which engine is behind it, only the files below know.
"""

from __future__ import annotations

from typing import TypeVar

from surehook import observe
from surehook.config import Config
from surehook.store.database import Database
from surehook.store.engine import Engine
from surehook.store.logins import DatabaseAccess, login

Store = TypeVar("Store")


def engine_of(url: str) -> Engine:
    """The engine that a database URL names; its driver is loaded only now."""
    if url.startswith(("mysql:", "mariadb:")):
        from surehook.store.mysql import ENGINE as MYSQL

        return MYSQL
    from surehook.store.postgres import ENGINE as POSTGRES

    return POSTGRES


def store_of(kind: type[Store], database: Database, *more: object) -> Store:
    """A component's store on this database, in its engine's own way where it has one."""
    own_way = engine_of(database.login.url).stores
    made: Store = own_way.get(kind, kind)(database, *more)
    return made


async def open_database(config: Config, access: DatabaseAccess, login_name: str) -> Database:
    """The login's connections; refuses a database whose schema this program does not fit."""
    who = login(config, access, login_name)
    database = engine_of(who.url).database(config, who)
    await database.open()
    try:
        await database.check_schema()
    except BaseException:
        await database.close()
        raise
    observe.identify(database.installation)
    return database
