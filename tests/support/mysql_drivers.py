"""One transaction on MySQL or MariaDB by each driver that the outbox knows; see applications.py.

mysqlclient comes without ready-made wheels, so it is tried only where it is installed; PyMySQL
stands in for it below Django, as many applications have it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import Any

import aiomysql
import asyncmy
import mysql.connector
import mysql.connector.aio
import pymysql
import sqlalchemy as sa
from mysql.connector.pooling import MySQLConnectionPool
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from support.transactions import Driver, Login, Transaction, awaiting, blocking, in_django

HAS_MYSQLCLIENT = find_spec("MySQLdb") is not None


def where(login: Login) -> dict[str, Any]:
    """In the words that every driver has."""
    if login.socket is not None:
        return {"unix_socket": login.socket}
    return {"host": login.host, "port": login.port}


def arguments(login: Login) -> dict[str, Any]:
    who = {"user": login.user, "password": login.password, "database": login.database}
    return {**who, "charset": login.charset, **where(login)}


@contextmanager
def _committed(connection: Any) -> Iterator[Transaction]:
    def execute(statement: str) -> None:
        cursor = connection.cursor()
        cursor.execute(statement)
        cursor.close()

    try:
        yield blocking(connection, execute)
        connection.commit()
    finally:  # closing rolls back what was not committed
        connection.close()


async def _execute(connection: Any, statement: str) -> None:
    async with connection.cursor() as cursor:
        await cursor.execute(statement)


@asynccontextmanager
async def with_pymysql(login: Login) -> AsyncIterator[Transaction]:
    with _committed(pymysql.connect(**arguments(login))) as transaction:
        yield transaction


@asynccontextmanager
async def with_mysqlclient(login: Login) -> AsyncIterator[Transaction]:
    import MySQLdb

    with _committed(MySQLdb.connect(**arguments(login))) as transaction:
        yield transaction


@asynccontextmanager
async def with_connector(login: Login) -> AsyncIterator[Transaction]:
    with _committed(mysql.connector.connect(**arguments(login))) as transaction:
        yield transaction


@asynccontextmanager
async def with_connector_pool(login: Login) -> AsyncIterator[Transaction]:
    pool = MySQLConnectionPool(pool_size=1, pool_name=login.user, **arguments(login))
    try:
        with _committed(pool.get_connection()) as transaction:
            yield transaction
    finally:
        pool._remove_connections()


@asynccontextmanager
async def with_connector_async(login: Login) -> AsyncIterator[Transaction]:
    connection = await mysql.connector.aio.connect(**arguments(login))

    async def execute(statement: str) -> None:
        cursor = await connection.cursor()
        await cursor.execute(statement)
        await cursor.close()

    try:
        yield awaiting(connection, execute)
        await connection.commit()
    finally:
        await connection.close()


@asynccontextmanager
async def with_aiomysql(login: Login) -> AsyncIterator[Transaction]:
    connection = await aiomysql.connect(**renamed(login))
    try:
        yield awaiting(connection, lambda statement: _execute(connection, statement))
        await connection.commit()
    finally:
        await connection.ensure_closed()


@asynccontextmanager
async def with_aiomysql_pool(login: Login) -> AsyncIterator[Transaction]:
    async with (
        aiomysql.create_pool(**renamed(login), minsize=1, maxsize=1) as pool,
        pool.acquire() as connection,
    ):
        yield awaiting(connection, lambda statement: _execute(connection, statement))
        await connection.commit()


def renamed(login: Login) -> dict[str, Any]:
    """aiomysql calls the database by another name."""
    return {"db" if name == "database" else name: of for name, of in arguments(login).items()}


@asynccontextmanager
async def with_asyncmy(login: Login) -> AsyncIterator[Transaction]:
    connection = await asyncmy.connect(**arguments(login))
    try:
        yield awaiting(connection, lambda statement: _execute(connection, statement))
        await connection.commit()
    finally:
        await connection.ensure_closed()


@asynccontextmanager
async def with_asyncmy_pool(login: Login) -> AsyncIterator[Transaction]:
    async with (
        asyncmy.create_pool(**arguments(login), minsize=1, maxsize=1) as pool,
        pool.acquire() as connection,
    ):
        yield awaiting(connection, lambda statement: _execute(connection, statement))
        await connection.commit()


# ── SQLAlchemy ────────────────────────────────────────────────────────────────────────────────


def sqlalchemy_url(login: Login, scheme: str) -> sa.URL:
    query = {"charset": login.charset}
    if login.socket is not None:
        query["unix_socket"] = login.socket
    return sa.URL.create(
        scheme, login.user, login.password, login.host, login.port, login.database, query
    )


@asynccontextmanager
async def with_sqlalchemy_session(login: Login) -> AsyncIterator[Transaction]:
    engine = sa.create_engine(sqlalchemy_url(login, "mysql+pymysql"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield blocking(session, lambda statement: session.execute(sa.text(statement)))


@asynccontextmanager
async def with_sqlalchemy_connection(login: Login) -> AsyncIterator[Transaction]:
    engine = sa.create_engine(sqlalchemy_url(login, "mysql+mysqlconnector"), poolclass=NullPool)
    with engine.begin() as connection:
        yield blocking(connection, lambda statement: connection.execute(sa.text(statement)))


@asynccontextmanager
async def with_sqlalchemy_async_session(login: Login) -> AsyncIterator[Transaction]:
    engine = create_async_engine(sqlalchemy_url(login, "mysql+asyncmy"), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield awaiting(session, lambda statement: session.execute(sa.text(statement)))


@asynccontextmanager
async def with_sqlalchemy_async_connection(login: Login) -> AsyncIterator[Transaction]:
    engine = create_async_engine(sqlalchemy_url(login, "mysql+aiomysql"), poolclass=NullPool)
    async with engine.begin() as connection:
        yield awaiting(connection, lambda statement: connection.execute(sa.text(statement)))


# ── Django ────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def with_django(login: Login) -> AsyncIterator[Transaction]:
    if not HAS_MYSQLCLIENT:
        pymysql.version_info = (2, 2, 7, "final", 0)  # Django asks for mysqlclient's
        pymysql.install_as_MySQLdb()
    options = {"charset": login.charset}
    if login.socket is not None:
        options["unix_socket"] = login.socket
    place = {"HOST": "" if login.socket else login.host, "PORT": str(login.port)}
    settings = {"ENGINE": "django.db.backends.mysql", "OPTIONS": options, **place}
    async with in_django(login, settings) as transaction:
        yield transaction


DRIVERS: dict[str, Driver] = {
    "pymysql": with_pymysql,
    "connector": with_connector,
    "connector pool": with_connector_pool,
    "connector async": with_connector_async,
    "aiomysql": with_aiomysql,
    "aiomysql pool": with_aiomysql_pool,
    "asyncmy": with_asyncmy,
    "asyncmy pool": with_asyncmy_pool,
    "sqlalchemy session": with_sqlalchemy_session,
    "sqlalchemy connection": with_sqlalchemy_connection,
    "sqlalchemy async session": with_sqlalchemy_async_session,
    "sqlalchemy async connection": with_sqlalchemy_async_connection,
    "django": with_django,
    **({"mysqlclient": with_mysqlclient} if HAS_MYSQLCLIENT else {}),
}
