"""The store: how a named statement reaches a database.

A store is opened with its login's name and has that login's rights and statements, nothing else.
Which engine is behind it, only the files below know.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from surehook import observe
from surehook.config import Config
from surehook.store.database import Database
from surehook.store.engine import Engine
from surehook.store.logins import DatabaseAccess, login

Kind = TypeVar("Kind")


def engine_of(url: str) -> Engine:
    """The engine that a database URL names; its driver is loaded only now."""
    if url.startswith(("mysql:", "mariadb:")):
        from surehook.store.mysql import ENGINE as MYSQL

        return MYSQL
    from surehook.store.postgres import ENGINE as POSTGRES

    return POSTGRES


def store_of(contract: Callable[..., Kind], database: Database, *more: object) -> Kind:
    """A login's store on this database: the contract's own, or its engine's where it has a file of
    the contract's name."""
    kind: Any = contract
    where = f"{__name__}.{database.dialect}.{contract.__module__.rpartition('.')[2]}"
    if find_spec(where):
        name = f"{database.dialect.capitalize()}{contract.__name__}"
        kind = getattr(import_module(where), name)
    made: Kind = kind(database, *more)
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
