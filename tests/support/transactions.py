"""One transaction of an application, as every driver's part of a test gives it.

Reads and writes what the test says, as a login of the application's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import django
import django.conf
import django.db
from django.db import transaction as django_transaction

from surehook import outbox


@dataclass(frozen=True)
class Login:
    """Who the application is and where its database is."""

    engine: str
    user: str
    password: str
    database: str
    host: str
    """With PostgreSQL the directory of the socket."""
    port: int
    socket: str | None = None
    charset: str = "utf8mb4"
    """Of the connection; MySQL's alone."""

    @classmethod
    def of(cls, url: str, user: str, password: str) -> Login:
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return cls(
            engine="mysql" if parts.scheme == "mysql" else "postgres",
            user=user,
            password=password,
            database=parts.path[1:],
            host=query.get("host") or parts.hostname or "localhost",
            port=int(query.get("port") or parts.port or 3306),
            socket=query.get("unix_socket"),
        )

    def url(self, scheme: str | None = None) -> str:
        if self.engine == "mysql":
            where = f"@{self.host}:{self.port}/{self.database}"
            where += f"?unix_socket={quote(self.socket, safe='/')}" if self.socket else ""
        else:
            where = f"@/{self.database}?host={quote(self.host, safe='')}&port={self.port}"
        default = "mysql" if self.engine == "mysql" else "postgresql"
        return f"{scheme or default}://{self.user}:{self.password}{where}"


@dataclass(frozen=True)
class Transaction:
    """What a test does in one."""

    publish: Callable[..., Awaitable[None]]
    execute: Callable[[str], Awaitable[object]]
    handle: Any
    """What the driver calls a connection or session."""


Driver = Callable[[Login], AbstractAsyncContextManager[Transaction]]


def blocking(handle: Any, execute: Callable[[str], object] | None = None) -> Transaction:
    async def publish(*arguments: Any, **named: Any) -> None:
        outbox.publish(handle, *arguments, **named)

    async def run(statement: str) -> object:
        return (execute or handle.execute)(statement)

    return Transaction(publish, run, handle)


def awaiting(handle: Any, execute: Callable[[str], Awaitable[object]] | None = None) -> Transaction:
    async def publish(*arguments: Any, **named: Any) -> None:
        await outbox.publish_async(handle, *arguments, **named)

    return Transaction(publish, execute or handle.execute, handle)


@asynccontextmanager
async def in_django(login: Login, settings: Mapping[str, object]) -> AsyncIterator[Transaction]:
    """`settings` are those of this database beside the login's own."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(DATABASES={})
        django.setup()
    alias = login.user
    own = {"NAME": login.database, "USER": login.user, "PASSWORD": login.password}
    django.db.connections.settings[alias] = django.db.connections.configure_settings(
        {"default": {}, alias: {**own, **settings}}
    )[alias]
    connection = django.db.connections[alias]

    async def publish(*arguments: Any, **named: Any) -> None:
        outbox.publish(alias, *arguments, **named)

    async def run(statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    try:
        with django_transaction.atomic(using=alias):
            yield Transaction(publish, run, connection)
    finally:
        connection.close()
        del django.db.connections[alias]
