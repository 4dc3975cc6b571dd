"""The database as the commands reach it: which one, and the line that says so.

Reads   the configuration, what runs        Writes  one line to standard error

A command that reads, or changes what is there, never makes a database: system.py says which one it
acts on. An embedded server that does not run is started for as long as the command takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from surehook.cli import Invocation
from surehook.cli.output import say_which
from surehook.config import Config
from surehook.process.database import open_access
from surehook.process.system import chosen
from surehook.store.logins import DatabaseAccess


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
