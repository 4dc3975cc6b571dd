"""One database holds one installation, found from any search path; a second one is refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode, urlsplit

import asyncpg
import pytest

from support import Configure
from support.connections import connected, engine_connection
from support.rows import an_event
from support.server import Server
from surehook import outbox
from surehook.errors import ConfigError, Declined
from surehook.process.doctor import examine
from surehook.store import engine_of, open_database
from surehook.store.findings import Level
from surehook.store.logins import DatabaseAccess, Login
from surehook.store.postgres.database import connect_anywhere
from surehook.store.postgres.migrate import migrate as migrate_here

pytestmark = pytest.mark.only_on("postgres", reason="on MySQL a database is the schema")

SCHEMAS = (
    "SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
    "WHERE relname = 'events' ORDER BY 1"
)


def naming(url: str, schema: str) -> str:
    parts = urlsplit(url)
    query = "&".join(filter(None, [parts.query, urlencode({"search_path": schema})]))
    return parts._replace(query=query).geturl()


async def migrate(url: str, server: Server) -> list[str]:
    said: list[str] = []
    async with engine_connection(url) as connection:
        await engine_of(url).migrate(connection, role_secret=server.role_secret, report=said.append)
    return said


async def schemas(url: str) -> list[str]:
    async with connected(url) as owner:
        return [row[0] for row in await owner.fetch(SCHEMAS)]


async def events_read(configure: Configure, access: DatabaseAccess) -> int:
    """How many events a component sees with its own login."""
    config = configure(environment={"SUREHOOK_DATABASE_URL": access.url})
    database = await open_database(config, access, "ingest")
    try:
        await database.check_schema()
        count = "SELECT count(*) FROM events"
        return int(await database.run(lambda session: session.connection.fetchval(count)))
    finally:
        await database.close()


async def wrong(configure: Configure, access: DatabaseAccess) -> list[str]:
    found = await examine(configure({"database.allow_unsafe": True}), access)
    return [one.says for one in found if one.level is Level.WRONG]


@pytest.fixture
async def misled(database_url: str, owner: Any) -> str:
    """A database whose sessions look elsewhere first."""
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute("CREATE SCHEMA elsewhere")
    await owner.execute(f'ALTER DATABASE "{name}" SET search_path = elsewhere, public')
    return database_url


async def test_another_search_path_makes_no_second_installation(
    misled: str, server: Server, access: DatabaseAccess, owner: Any, configure: Configure
) -> None:
    await an_event(owner)
    assert await migrate(misled, server) == []
    assert await schemas(misled) == ["public"]
    assert await events_read(configure, access) == 1
    assert await wrong(configure, access) == []


async def test_an_installation_in_a_schema_of_its_own_is_found_without_naming_it(
    empty_url: str, server: Server, configure: Configure
) -> None:
    async with connected(empty_url) as owner:
        await owner.execute('CREATE SCHEMA "Our hooks"')
    await migrate(naming(empty_url, '"Our hooks"'), server)
    access = DatabaseAccess(empty_url, server.role_secret)
    assert await schemas(empty_url) == ["Our hooks"]
    assert await migrate(empty_url, server) == []
    assert await events_read(configure, access) == 0
    assert await wrong(configure, access) == []


async def test_the_search_path_of_a_role_misleads_no_component(
    misled: str, access: DatabaseAccess, owner: Any, configure: Configure
) -> None:
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(
        f'ALTER ROLE event_ingest_writer IN DATABASE "{name}" SET search_path = elsewhere'
    )
    await an_event(owner)
    assert await events_read(configure, access) == 1


# ── A second one ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def doubled(misled: str, server: Server) -> str:
    """As older programs left it: two installations, of which one is read."""
    connection = await connect_anywhere(Login("migrate", misled), 10)
    await migrate_here(connection, role_secret=server.role_secret)
    await connection.close()
    assert await schemas(misled) == ["elsewhere", "public"]
    return misled


async def test_a_second_installation_is_refused_by_name(
    doubled: str, server: Server, access: DatabaseAccess, configure: Configure
) -> None:
    said = "more than once, in the schemas elsewhere, public"
    with pytest.raises(Declined, match=said):
        await migrate(doubled, server)
    with pytest.raises(Declined, match=said):
        await events_read(configure, access)
    assert any(said in one for one in await wrong(configure, access))


async def test_until_the_other_is_dropped_the_url_says_which_is_meant(
    doubled: str, server: Server, owner: Any, configure: Configure
) -> None:
    await owner.execute("INSERT INTO public.events (event_type, payload) VALUES ('a', '1')")
    for schema, count in (("public", 1), ("elsewhere", 0)):
        access = DatabaseAccess(naming(doubled, schema), server.role_secret)
        assert await events_read(configure, access) == count
        assert any("more than once" in one for one in await wrong(configure, access))


async def test_the_outbox_stores_nothing_where_nobody_may_look(doubled: str, owner: Any) -> None:
    connection = await asyncpg.connect(doubled)
    try:
        with pytest.raises(asyncpg.DataError, match=r"are in (public and elsewhere|elsewhere and)"):
            await outbox.publish_async(connection, "order.paid", {"order": 1})
        await outbox.publish_async(connection, "order.paid", {"order": 2}, schema="public")
        await owner.execute("DROP SCHEMA elsewhere CASCADE")
        await outbox.publish_async(connection, "order.paid", {"order": 3})
    finally:
        await connection.close()
    assert await owner.fetchval("SELECT count(*) FROM public.events") == 2


# ── Mistakes in the URL ───────────────────────────────────────────────────────────────────────


async def test_a_url_that_names_another_schema_is_refused(misled: str, server: Server) -> None:
    with pytest.raises(ConfigError, match="tables are in the schema public"):
        await migrate(naming(misled, "elsewhere"), server)


async def test_a_search_path_to_nowhere_is_one_clear_line(empty_url: str, server: Server) -> None:
    with pytest.raises(Declined, match="No schema of the search path nowhere exists"):
        await migrate(naming(empty_url, "nowhere"), server)
