"""Access to the database: the configured one, or our own, started for as long as it is needed.

Reads   the configuration, the data directory of the embedded server
Writes  nothing itself; starting the embedded server creates its data directory
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from surehook.config import Config
from surehook.errors import EmbeddedServerError
from surehook.store import open_database
from surehook.store.database import Database
from surehook.store.logins import DatabaseAccess

if TYPE_CHECKING:
    from surehook.embedded.server import EmbeddedServer

LOOK_SECONDS = 2.0


@contextmanager
def open_access(config: Config) -> Iterator[DatabaseAccess]:
    """The database and its secrets; an embedded server that was not running is stopped again."""
    url = config.optional_text("database.url")
    role_secret = config.optional_text("database.role_secret")
    encryption_key = config.optional_text("delivery.encryption_key")
    if url is not None:
        yield DatabaseAccess(url, role_secret, encryption_key)
        return
    with running_server(config) as server:
        yield DatabaseAccess(
            server.url,
            role_secret or server.role_secret,
            encryption_key or server.encryption_key,
        )


@asynccontextmanager
async def opened(config: Config, access: DatabaseAccess, login: str) -> AsyncIterator[Database]:
    """The login's connections for as long as the block lasts."""
    database = await open_database(config, access, login)
    try:
        yield database
    finally:
        await database.close()


@contextmanager
def running_server(config: Config) -> Iterator[EmbeddedServer]:
    """The embedded server: one that runs already, else started here and stopped at the end.

    While it is in use it is looked after: a supervisor that was killed is started again.
    """
    server = embedded_server(config)
    if not server.attach():
        try:
            server.start()
        except EmbeddedServerError:
            if not server.attach():  # another process was faster
                raise
    done = threading.Event()
    nurse = threading.Thread(target=_look_after, args=(server, done), daemon=True)
    nurse.start()
    try:
        yield server
    finally:
        done.set()
        nurse.join()
        server.stop()


def _look_after(server: EmbeddedServer, done: threading.Event) -> None:
    while not done.wait(LOOK_SECONDS):
        with suppress(EmbeddedServerError):  # tried again at the next look
            server.poll()


def embedded_server(config: Config) -> EmbeddedServer:
    """The handle for the configured data directory; starts nothing."""
    from surehook.embedded import default_data_dir
    from surehook.embedded.server import EmbeddedServer

    return EmbeddedServer(
        config.optional_path("database.data_dir") or default_data_dir(),
        binaries=config.optional_path("database.postgres_binaries"),
    )
