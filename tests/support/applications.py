"""An application with a login of its own: one transaction, by each driver the outbox knows.

    async with DRIVERS["psycopg"](login) as transaction:
        await transaction.execute("INSERT INTO orders VALUES (1)")
        await transaction.publish("order.paid", {"order": 1})

Leaving the block commits, an exception rolls back: each driver's own idiom.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg
import django
import django.conf
import django.db
import psycopg
import psycopg2
import sqlalchemy as sa
from django.db import transaction as django_transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from surehook import outbox


@dataclass(frozen=True)
class Login:
    """Who the application is and where its database is."""

    user: str
    password: str
    database: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str, user: str, password: str) -> Login:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        return cls(user, password, parts.path[1:], query["host"][0], int(query["port"][0]))

    def url(self, scheme: str = "postgresql") -> str:
        where = f"host={quote(self.host, safe='')}&port={self.port}"
        return f"{scheme}://{self.user}:{self.password}@/{self.database}?{where}"


@dataclass(frozen=True)
class Transaction:
    """What a test does in one."""

    publish: Callable[..., Awaitable[None]]
    execute: Callable[[str], Awaitable[object]]
    handle: Any
    """What the driver calls a connection or session."""


def _blocking(handle: Any, execute: Callable[[str], object] | None = None) -> Transaction:
    async def publish(*arguments: Any, **named: Any) -> None:
        outbox.publish(handle, *arguments, **named)

    async def run(statement: str) -> object:
        return (execute or handle.execute)(statement)

    return Transaction(publish, run, handle)


def _awaiting(
    handle: Any, execute: Callable[[str], Awaitable[object]] | None = None
) -> Transaction:
    async def publish(*arguments: Any, **named: Any) -> None:
        await outbox.publish_async(handle, *arguments, **named)

    return Transaction(publish, execute or handle.execute, handle)


@asynccontextmanager
async def with_psycopg(login: Login) -> AsyncIterator[Transaction]:
    with psycopg.connect(login.url()) as connection:
        yield _blocking(connection)


@asynccontextmanager
async def with_psycopg_async(login: Login) -> AsyncIterator[Transaction]:
    async with await psycopg.AsyncConnection.connect(login.url()) as connection:
        yield _awaiting(connection)


@asynccontextmanager
async def with_psycopg2(login: Login) -> AsyncIterator[Transaction]:
    connection = psycopg2.connect(login.url())
    try:
        with connection:
            yield _blocking(connection, lambda statement: connection.cursor().execute(statement))
    finally:
        connection.close()


@asynccontextmanager
async def with_asyncpg(login: Login) -> AsyncIterator[Transaction]:
    connection = await asyncpg.connect(login.url())
    try:
        async with connection.transaction():
            yield _awaiting(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def with_asyncpg_pool(login: Login) -> AsyncIterator[Transaction]:
    async with (
        asyncpg.create_pool(login.url(), min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield _awaiting(connection)


@asynccontextmanager
async def with_sqlalchemy_session(login: Login) -> AsyncIterator[Transaction]:
    engine = sa.create_engine(login.url("postgresql+psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield _blocking(session, lambda statement: session.execute(sa.text(statement)))


@asynccontextmanager
async def with_sqlalchemy_connection(login: Login) -> AsyncIterator[Transaction]:
    engine = sa.create_engine(login.url("postgresql+psycopg2"), poolclass=NullPool)
    with engine.begin() as connection:
        yield _blocking(connection, lambda statement: connection.execute(sa.text(statement)))


@asynccontextmanager
async def with_sqlalchemy_async_session(login: Login) -> AsyncIterator[Transaction]:
    engine = create_async_engine(login.url("postgresql+asyncpg"), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield _awaiting(session, lambda statement: session.execute(sa.text(statement)))


@asynccontextmanager
async def with_sqlalchemy_async_connection(login: Login) -> AsyncIterator[Transaction]:
    engine = create_async_engine(login.url("postgresql+psycopg"), poolclass=NullPool)
    async with engine.begin() as connection:
        yield _awaiting(connection, lambda statement: connection.execute(sa.text(statement)))


@asynccontextmanager
async def with_django(login: Login) -> AsyncIterator[Transaction]:
    if not django.conf.settings.configured:
        django.conf.settings.configure(DATABASES={})
        django.setup()
    alias = login.user
    django.db.connections.settings[alias] = django.db.connections.configure_settings(
        {
            "default": {},
            alias: {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": login.database,
                "USER": login.user,
                "PASSWORD": login.password,
                "HOST": login.host,
                "PORT": str(login.port),
            },
        }
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


Driver = Callable[[Login], AbstractAsyncContextManager[Transaction]]

DRIVERS: dict[str, Driver] = {
    "psycopg": with_psycopg,
    "psycopg async": with_psycopg_async,
    "psycopg2": with_psycopg2,
    "asyncpg": with_asyncpg,
    "asyncpg pool": with_asyncpg_pool,
    "sqlalchemy session": with_sqlalchemy_session,
    "sqlalchemy connection": with_sqlalchemy_connection,
    "sqlalchemy async session": with_sqlalchemy_async_session,
    "sqlalchemy async connection": with_sqlalchemy_async_connection,
    "django": with_django,
}
