"""The registry: every process is seen while it runs, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support import Configure, OpenStore
from support.pipeline import facts, running
from support.waiting import until, until_row
from surehook import __version__
from surehook.errors import DatabaseUnreachable
from surehook.model.records import Myself
from surehook.pipeline import registry
from surehook.pipeline.registry import Registry
from surehook.pipeline.service import Loop, Service
from surehook.store import store_of
from surehook.store.hints import Hints
from surehook.store.logins import DatabaseAccess
from surehook.store.observer import ObserverStore
from surehook.store.registry import RegistryStore

ME = Myself("0123456789abcdef", "host.example", 4711, "1.2.3", "127.0.0.1:9464")


class Idle(Loop):
    name = "router"


@pytest.fixture
async def store(open_store: OpenStore) -> RegistryStore:
    return store_of(RegistryStore, await open_store("registry"))


@pytest.fixture
async def observer(open_store: OpenStore) -> ObserverStore:
    return store_of(ObserverStore, await open_store("observer"))


def registered(opening: Callable[[], Awaitable[RegistryStore]]) -> Registry:
    return Registry(opening, ME, [Service(Idle(), Hints(), None)])


async def test_every_component_of_a_process_is_there_until_the_process_ends(
    configure: Configure, access: DatabaseAccess, observer: ObserverStore, owner: Any
) -> None:
    async with running(configure(), access, ("router", "cleaner")) as process:
        known = await until(observer.processes)
        assert [one.component for one in known] == ["cleaner", "router"]
        assert process.listener is not None
        assert {one.address for one in known} == {process.listener.address}
        assert {one.version for one in known} == {__version__}
        assert len({(one.process_id, one.host, one.pid) for one in known}) == 1
        assert all(one.since <= one.step_at <= one.heartbeat_at for one in known)
        assert all(one.trouble is None for one in known)
    assert await observer.processes() == []


async def test_a_heartbeat_of_all_components_is_one_statement(
    store: RegistryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = registered(lambda: asyncio.sleep(0, store))
    await me._beat()  # makes itself known, and tidies up
    asked = 0
    database: Any = store._database
    run = database.run

    async def counted(work: Any) -> Any:
        nonlocal asked
        asked += 1
        return await run(work)

    monkeypatch.setattr(database, "run", counted)
    await me._beat()
    await me._beat()
    assert asked == 2


async def test_a_database_that_is_away_is_reported_once_and_tried_again(
    store: RegistryStore, observer: ObserverStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BEAT_SECONDS", 0.001)
    away, tried = True, 0

    async def opening() -> RegistryStore:
        nonlocal tried
        tried += 1
        if away:
            raise DatabaseUnreachable("The database does not answer.")
        return store

    with facts() as reported:
        me = registered(opening)
        me.start()
        await until(lambda: tried > 3)
        away = False
        await until(observer.processes)
        await until(lambda: len(reported) == 2)
        await me.stop()
    assert reported == [
        ("registry.lost", {"reason": "The database does not answer."}),
        ("registry.back", {}),
    ]
    assert await observer.processes() == []


async def test_rows_that_vanished_come_back_with_the_next_heartbeat(
    store: RegistryStore, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BEAT_SECONDS", 0.001)
    me = registered(lambda: asyncio.sleep(0, store))
    me.start()
    for _ in range(2):
        await until_row(owner, "SELECT count(*) FROM processes", wanted=1)
        await owner.execute("DELETE FROM processes")
    await until_row(owner, "SELECT count(*) FROM processes", wanted=1)
    await me.stop()
