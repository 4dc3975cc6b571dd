"""Which installation a database is of: made once, its own, kept, made anew only on request."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from support.commands import run_command
from support.connections import engine_connection, migrate
from support.servers import ENCRYPTION_KEY, Server
from surehook.errors import Declined
from surehook.store import engine_of, open_database
from surehook.store.logins import DatabaseAccess

INSTALLATION = "SELECT value FROM schema_settings WHERE name = 'installation'"


async def installation(url: str) -> str:
    async with engine_connection(url) as connection:
        return (await engine_of(url).read_state(connection)).installation


async def test_every_database_gets_an_id_of_its_own_and_keeps_it(
    server: Server, empty_url: str, database_url: str
) -> None:
    await migrate(empty_url, role_secret=server.role_secret)
    first = await installation(empty_url)
    assert re.fullmatch("[0-9a-f]{10}", first)
    await migrate(empty_url, role_secret=server.role_secret)
    assert await installation(empty_url) == first
    assert await installation(database_url) != first


async def test_an_id_that_was_taken_away_is_refused_and_migrate_makes_another(
    server: Server, owner: Any, access: DatabaseAccess, configure: Any, database_url: str
) -> None:
    before = await installation(database_url)
    await owner.execute("DELETE FROM schema_settings WHERE name = 'installation'")
    with pytest.raises(Declined, match="lacks its installation id"):
        await open_database(configure(), access, "worker")
    await migrate(database_url, role_secret=server.role_secret)
    assert re.fullmatch("[0-9a-f]{10}", await installation(database_url))
    assert await installation(database_url) != before


async def test_a_copy_gets_another_id_by_a_command_that_asks_first(
    owner: Any, server: Server, database_url: str
) -> None:
    env = {
        "SUREHOOK_DATABASE_URL": database_url,
        "SUREHOOK_ROLE_SECRET": server.role_secret,
        "SUREHOOK_ENCRYPTION_KEY": ENCRYPTION_KEY,
    }

    async def command(*arguments: str) -> Any:
        return await asyncio.to_thread(run_command, ("installation", *arguments), env)

    before = await owner.fetchval(INSTALLATION)
    shown = await command("show")
    assert (shown.code, before in shown.out) == (0, True)
    refused = await command("renew")
    assert refused.code == 2 and "--yes" in refused.err
    assert "takes such" in refused.err  # what it means for receivers
    assert await owner.fetchval(INSTALLATION) == before
    renewed = await command("renew", "--yes")
    after = await owner.fetchval(INSTALLATION)
    assert renewed.code == 0 and after != before and re.fullmatch("[0-9a-f]{10}", after)
    assert before in renewed.out and after in renewed.out and "restart them" in renewed.out
    again = await command("renew", "--yes", "--json")
    assert again.json() == {"installation": await owner.fetchval(INSTALLATION), "before": after}
