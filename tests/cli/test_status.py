"""`surehook status`: who runs, where, since when, and what is missing."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from support import Configure, OpenStore
from support.api import FLAGS
from support.commands import Done, run_command
from support.pipeline import running
from support.waiting import until_row
from surehook import __version__
from surehook.model.records import Heartbeat, Myself
from surehook.pipeline.registry import SILENT_SECONDS
from surehook.process.components import COMPONENTS
from surehook.store import store_of
from surehook.store.logins import DatabaseAccess
from surehook.store.registry import RegistryStore

ENTERED = "SELECT count(*) FROM processes"


class Status:
    """status("--json"): on the test's own database."""

    def __init__(self, access: DatabaseAccess) -> None:
        self.env = {
            "SUREHOOK_DATABASE_URL": access.url,
            "SUREHOOK_ROLE_SECRET": access.role_secret or "",
        }

    async def __call__(self, *arguments: str) -> Done:
        return await asyncio.to_thread(run_command, ("status", *arguments), self.env)


@pytest.fixture
def status(access: DatabaseAccess) -> Status:
    return Status(access)


async def test_nothing_runs(status: Status) -> None:
    done = await status()
    assert done.code == 1
    assert "No process has been heard of." in done.err
    assert done.out == f"Missing: {', '.join(COMPONENTS)}.\n"


async def test_who_runs_where_and_what_is_missing(
    status: Status, configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    async with running(configure(FLAGS), access, ("api", "router")) as process:
        await until_row(owner, ENTERED, wanted=2)
        done = await status("--json")
        shown = await status()
        assert process.api is not None
        address = process.api.address
    assert done.code == 1
    found = done.json()
    installation = await owner.fetchval(
        "SELECT value FROM schema_settings WHERE name = 'installation'"
    )
    assert found["installation"] == installation
    assert f"installation: {installation}\n" in shown.err
    assert found["missing"] == ["verifier", "orchestrator", "worker", "cleaner", "deadletters"]
    api, router = found["components"]
    assert (api["component"], router["component"]) == ("api", "router")
    assert api["process_id"] == router["process_id"]
    assert (api["host"], api["pid"]) == (socket.gethostname(), os.getpid())
    assert (api["version"], api["address"], api["alive"]) == (__version__, address, True)
    assert api["since"] <= api["step_at"] <= api["heartbeat_at"]
    rows = shown.rows()
    assert rows[0][:2] == ["api", "ok"] and address in rows[0]
    assert rows[-1][0] == "Missing:"


async def test_everything_runs_and_who_was_killed_is_shown_as_silent(
    status: Status, open_store: OpenStore, owner: Any
) -> None:
    store = store_of(RegistryStore, await open_store("registry"))
    beats = [Heartbeat(name, 0.0, None) for name in COMPONENTS]
    await store.enter(Myself("a" * 16, "one", 1, __version__, None), 0.0, beats)
    assert (await status()).code == 0
    await store.enter(Myself("b" * 16, "two", 2, "9.9.9", None), 0.0, beats[:1])
    done = await status()
    assert done.code == 0 and "also at work: 9.9.9" in done.err
    await owner.execute(
        "UPDATE processes SET heartbeat_at = heartbeat_at - interval '1 second' * $1::float8"
        " WHERE host = 'two'",
        SILENT_SECONDS + 1,
    )
    done = await status()
    assert done.code == 0 and "9.9.9" not in done.err
    [silent] = [line for line in done.out.splitlines() if "two" in line]
    assert "silent for" in silent
