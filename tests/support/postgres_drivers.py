"""One transaction on PostgreSQL by each driver that the outbox knows; see applications.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import psycopg
import psycopg2
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from support.transactions import Driver, Login, Transaction, awaiting, blocking, in_django


@asynccontextmanager
async def with_psycopg(login: Login) -> AsyncIterator[Transaction]:
    with psycopg.connect(login.url()) as connection:
        yield blocking(connection)


@asynccontextmanager
async def with_psycopg_async(login: Login) -> AsyncIterator[Transaction]:
    async with await psycopg.AsyncConnection.connect(login.url()) as connection:
        yield awaiting(connection)


@asynccontextmanager
async def with_psycopg2(login: Login) -> AsyncIterator[Transaction]:
    connection = psycopg2.connect(login.url())
    try:
        with connection:
            yield blocking(connection, lambda statement: connection.cursor().execute(statement))
    finally:
        connection.close()


@asynccontextmanager
async def with_asyncpg(login: Login) -> AsyncIterator[Transaction]:
    connection = await asyncpg.connect(login.url())
    try:
        async with connection.transaction():
            yield awaiting(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def with_asyncpg_pool(login: Login) -> AsyncIterator[Transaction]:
    async with (
        asyncpg.create_pool(login.url(), min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield awaiting(connection)


@asynccontextmanager
async def with_sqlalchemy_session(login: Login) -> AsyncIterator[Transaction]:
    engine = sa.create_engine(login.url("postgresql+psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield blocking(session, lambda statement: session.execute(sa.text(statement)))


@asynccontextmanager
async def with_sqlalchemy_connection(login: Login) -> AsyncIterator[Transaction]:
    engine = sa.create_engine(login.url("postgresql+psycopg2"), poolclass=NullPool)
    with engine.begin() as connection:
        yield blocking(connection, lambda statement: connection.execute(sa.text(statement)))


@asynccontextmanager
async def with_sqlalchemy_async_session(login: Login) -> AsyncIterator[Transaction]:
    engine = create_async_engine(login.url("postgresql+asyncpg"), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield awaiting(session, lambda statement: session.execute(sa.text(statement)))


@asynccontextmanager
async def with_sqlalchemy_async_connection(login: Login) -> AsyncIterator[Transaction]:
    engine = create_async_engine(login.url("postgresql+psycopg"), poolclass=NullPool)
    async with engine.begin() as connection:
        yield awaiting(connection, lambda statement: connection.execute(sa.text(statement)))


@asynccontextmanager
async def with_django(login: Login) -> AsyncIterator[Transaction]:
    engine = "django.db.backends.postgresql"
    settings = {"ENGINE": engine, "HOST": login.host, "PORT": str(login.port)}
    async with in_django(login, settings) as transaction:
        yield transaction


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
