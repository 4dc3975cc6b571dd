"""A rolling upgrade: the program before the newest migration and this one work side by side."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.old_program import ROOT, NoHistory, Previous, Program
from support.pipeline import ALL
from support.processes import environment
from support.receiver import Receiver
from support.rows import a_subscription, an_event
from support.servers import Server, connected
from support.waiting import until, until_row
from surehook.store.logins import DatabaseAccess

COMPLETED = "SELECT count(*) FROM webhook_delivery_sagas WHERE status = 'Completed'"
WORK = ("serve", "--components", ",".join(ALL))


@pytest.fixture
def database_url(empty_url: str) -> str:
    return empty_url


@pytest.mark.long
async def test_nothing_is_lost_or_repeated_while_the_previous_program_is_replaced(
    owner: Any, server: Server, access: DatabaseAccess, tmp_path: Path
) -> None:
    try:
        previous = Previous(server.engine, tmp_path / "previous")
    except NoHistory as reason:
        pytest.skip(f"The previous program cannot be had from git: {reason}")
    env = environment(access, database_allow_unsafe="on", observe_listen="off")
    programs: list[Program] = []

    def start(env: dict[str, str], *arguments: str) -> Program:
        log = tmp_path / f"{len(programs)}.log"
        programs.append(Program(env, log, *arguments))
        return programs[-1]

    published, enough = 0, False
    publishing: asyncio.Task[None] | None = None

    async def publish() -> None:
        nonlocal published
        async with connected(access.url) as application:
            while not enough:
                await an_event(application)
                published += 1
                await asyncio.sleep(0.01)  # no more than there is room for

    async def more() -> None:
        """Some events later, all that were published before have been delivered."""
        goal = published + 20
        await until(lambda: published >= goal)
        await until_row(owner, f"SELECT ({COMPLETED}) >= {goal}", wanted=True)

    old_env, new_env = previous.environment(env), {**env, "PYTHONPATH": str(ROOT / "src")}
    try:
        async with Receiver() as receiver:
            await start(old_env, "migrate").ended()
            newest = await owner.fetchval("SELECT max(version) FROM schema_migrations")
            assert newest == previous.schema_version
            old = start(old_env, *WORK)
            await old.started(len(ALL))
            await a_subscription(owner, callback_url=f"{receiver.url}/hook")
            publishing = asyncio.create_task(publish())
            await more()
            await start(new_env, "migrate").ended()
            await more()  # the old program on the new schema
            new = start(new_env, *WORK)
            await new.started(len(ALL))
            await more()  # both
            await old.stop()
            await more()  # the new one alone
            enough = True
            await publishing
            await until_row(owner, COMPLETED, wanted=published)
            await new.stop()
            await start(new_env, "check").ended()
            sent = Counter(request.headers["webhook-id"] for request in receiver.requests)
        assert len(sent) == published and set(sent.values()) == {1}
        for program in (old, new):
            assert "component.failed" not in program.text(), program.text()[-4000:]
    finally:
        if publishing is not None:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
        for program in programs:
            program.kill()
