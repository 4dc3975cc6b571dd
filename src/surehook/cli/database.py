"""The database as the commands reach it: which one, and the line that says so.

Reads   the configuration, what runs        Writes  one line to standard error

A command that reads, or changes what is there, never makes a database: system.py says which one it
acts on. An embedded server that does not run is started for as long as the command takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from surehook.cli import Invocation
from surehook.cli.output import say_which
from surehook.config import Config
from surehook.process.database import open_access, opened
from surehook.process.system import chosen
from surehook.store.database import Database
from surehook.store.logins import DatabaseAccess

Result = TypeVar("Result")


@contextmanager
def on_database(
    invocation: Invocation, flags: Mapping[str, object] | None = None, *, must_exist: bool = True
) -> Iterator[tuple[Config, DatabaseAccess]]:
    """The configuration of the system that is acted on, and its database."""
    system = chosen(invocation.config(flags), must_exist=must_exist)
    say_which(system)
    found = {"database.data_dir": system.database} if system.embedded else {}
    config = invocation.config({**(flags or {}), **found})
    with open_access(config) as access:
        yield config, access


def as_login(
    invocation: Invocation,
    login: str,
    work: Callable[[Database], Awaitable[Result]],
    flags: Mapping[str, object] | None = None,
) -> Result:
    """Do it under this login, on the system that is acted on."""

    async def run(config: Config, access: DatabaseAccess) -> Result:
        async with opened(config, access, login) as database:
            return await work(database)

    with on_database(invocation, flags) as (config, access):
        return asyncio.run(run(config, access))
