"""A network that goes silent: what waits is given up, what the server works on is not."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from faults.proxy import Direction, Proxy
from support import Configure
from support.waiting import PATIENCE, until
from surehook.errors import DatabaseUnreachable
from surehook.store import open_database, watch
from surehook.store.database import Database
from surehook.store.logins import DatabaseAccess
from surehook.store.postgres import database as postgres_database

SLOW_SECONDS = 2
BUSY = {False: f"SELECT pg_sleep({SLOW_SECONDS})", True: f"SELECT SLEEP({SLOW_SECONDS})"}
ENDED = {
    False: "SELECT count(*) FROM pg_stat_activity WHERE pid = $1",
    True: "SELECT count(*) FROM information_schema.processlist WHERE id = $1",
}


def socket_of(url: str) -> Path:
    """The file on which the server of this URL listens."""
    asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    return Path(asked.get("unix_socket") or f"{asked['host']}/.s.PGSQL.{asked['port']}")


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """Between the components and their server."""
    there = socket_of(database_url)
    made = Proxy(lambda: asyncio.open_unix_connection(there))
    with tempfile.TemporaryDirectory() as directory:  # a socket's path must not be long
        await made.start(Path(directory) / there.name)
        yield made
        await made.close()


@pytest.fixture
def through(proxy: Proxy, access: DatabaseAccess) -> DatabaseAccess:
    """The way to the database that leads through the proxy."""
    there, here = socket_of(access.url), proxy.path
    assert here is not None
    files = access.url.replace(quote(str(there), safe="/"), quote(str(here), safe="/"))
    url = files.replace(f"host={quote(str(there.parent))}", f"host={quote(str(here.parent))}")
    assert url != access.url
    return DatabaseAccess(url, access.role_secret, access.encryption_key)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is asked at once, and again and again."""
    monkeypatch.setattr(watch, "TICK_SECONDS", 0.05)
    for name in ("PATIENCE_TICKS", "AGAIN_TICKS"):
        monkeypatch.setattr(watch, name, 1)
    monkeypatch.setattr(watch, "RESTED_SECONDS", 1.0)
    monkeypatch.setattr(postgres_database, "PING_SECONDS", 0.05)


@pytest.fixture
async def cleaner(
    soon: None, configure: Configure, through: DatabaseAccess
) -> AsyncIterator[Database]:
    """Its connections go through the proxy."""
    config = configure({"database.statement_timeout": 300})
    database = await open_database(config, through, "cleaner")
    yield database
    await database.close()


async def calm(cleaner: Database, proxy: Proxy) -> None:
    """Until the watch asks nothing: a question that the silence meets is waited for as long as a
    connection may take, here for ever; and its server, in the midst of a login, would hold up
    every other test that creates or drops a database."""
    await until(lambda: len(proxy.links) == sum(cleaner.connections()))


@pytest.mark.parametrize(
    "direction", [Direction.BOTH, Direction.TO_SERVER, Direction.TO_CLIENT], ids=lambda d: d.name
)
async def test_a_session_that_went_silent_is_given_up_and_work_goes_on_over_a_new_one(
    cleaner: Database, proxy: Proxy, direction: Direction
) -> None:
    await cleaner.one("next_expiry", bucket=0)
    await calm(cleaner, proxy)
    stalled = proxy.stall(direction)
    with pytest.raises(DatabaseUnreachable):
        await asyncio.wait_for(cleaner.one("next_expiry", bucket=0), PATIENCE)
    await asyncio.wait_for(cleaner.one("next_expiry", bucket=0), PATIENCE)
    await until(lambda: all(link.given_up_at for link in stalled if link.waits_since))


async def test_a_long_statement_that_the_server_works_on_is_waited_for(
    cleaner: Database, on_mysql: bool
) -> None:
    async def slow(session: Any) -> str:
        await session.connection.fetch(BUSY[on_mysql])
        return "done"

    assert await asyncio.wait_for(cleaner.run(slow), PATIENCE) == "done"


async def test_work_of_many_short_statements_is_not_taken_for_silence(
    cleaner: Database, on_mysql: bool
) -> None:
    """Between two of them the session rests, but not for long."""

    async def many(session: Any) -> str:
        end = asyncio.get_running_loop().time() + 3 * watch.RESTED_SECONDS
        while asyncio.get_running_loop().time() < end:
            await session.one("next_expiry", bucket=0)
            await asyncio.sleep(0.02)
        return "done"

    assert await asyncio.wait_for(cleaner.in_transaction(many), PATIENCE) == "done"


async def test_a_session_that_is_given_up_ends_on_the_server_in_the_middle_of_its_transaction(
    cleaner: Database, proxy: Proxy, owner: Any, on_mysql: bool
) -> None:
    """So it holds no lock, and nothing of it arrives late."""
    numbers: list[int] = []

    async def locked(session: Any) -> None:
        question = "SELECT CONNECTION_ID()" if on_mysql else "SELECT pg_backend_pid()"
        numbers.append(int((await session.connection.fetch(question))[0][0]))
        await session.one("next_expiry", bucket=0)
        await calm(cleaner, proxy)
        proxy.stall()
        await session.one("next_expiry", bucket=0)

    with pytest.raises(DatabaseUnreachable):
        await asyncio.wait_for(cleaner.in_transaction(locked), PATIENCE)

    async def ended() -> bool:
        return not await owner.fetchval(ENDED[on_mysql], numbers[0])

    await until(ended)


async def test_idle_connections_of_before_the_silence_are_closed_and_not_used_again(
    cleaner: Database, proxy: Proxy
) -> None:
    """Each would be waited for in vain, one after the other."""
    gate = asyncio.Barrier(3)

    async def together(session: Any) -> None:
        await gate.wait()
        await session.one("next_expiry", bucket=0)

    await asyncio.gather(*(cleaner.run(together) for _ in range(3)))
    assert cleaner.connections() == (0, 3)
    await calm(cleaner, proxy)
    stalled = proxy.stall()
    with pytest.raises(DatabaseUnreachable):
        await asyncio.wait_for(cleaner.one("next_expiry", bucket=0), PATIENCE)
    await until(lambda: all(link.given_up_at is not None for link in stalled))
    await asyncio.gather(*(cleaner.run(together) for _ in range(3)))


async def test_a_server_that_nobody_can_even_ask_does_not_answer(
    cleaner: Database, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New connections meet the same silence."""
    asked = DatabaseUnreachable("The database does not answer (no answer in time).")

    async def in_vain(_: object) -> list[int]:
        raise asked

    await calm(cleaner, proxy)
    with monkeypatch.context() as silence:
        silence.setattr(cleaner._watch, "_ask", in_vain)  # type: ignore[attr-defined]
        proxy.stall(new_ones=True)
        with pytest.raises(DatabaseUnreachable):
            await asyncio.wait_for(cleaner.one("next_expiry", bucket=0), PATIENCE)
    proxy.heal(late=False)
    await asyncio.wait_for(cleaner.one("next_expiry", bucket=0), PATIENCE)


@pytest.mark.only_on("postgres", reason="nobody listens through MySQL")
async def test_a_listener_whose_connection_went_silent_learns_that_it_is_lost(
    proxy: Proxy, soon: None, configure: Configure, through: DatabaseAccess
) -> None:
    config = configure({"database.connect_timeout": 2})
    database = await open_database(config, through, "cleaner")
    try:
        async with database.listening("surehook_test", lambda _: None) as lost:
            proxy.stall()
            await asyncio.wait_for(lost, PATIENCE)
    finally:
        await database.close()
