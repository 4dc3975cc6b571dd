"""The registry: every process is seen while it runs, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support import Configure, OpenStore
from support.clock import Clock
from support.pipeline import facts, running
from support.waiting import until, until_row
from surehook import __version__
from surehook.errors import DatabaseUnreachable
from surehook.pipeline import registry
from surehook.pipeline.hints import Hints
from surehook.pipeline.registry import FORGET_SECONDS, SILENT_SECONDS, Registry, alive
from surehook.pipeline.service import Component, Service
from surehook.records import Heartbeat, Myself
from surehook.store import store_of
from surehook.store.logins import Place
from surehook.store.observer import ObserverStore
from surehook.store.registry import RegistryStore

ME = Myself("0123456789abcdef", "host.example", 4711, "1.2.3", "127.0.0.1:9464")
BEATS = [Heartbeat("router", 0.5, None), Heartbeat("worker", 2.0, "It failed 3 times in a row.")]


class Idle(Component):
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
    configure: Configure, place: Place, observer: ObserverStore, owner: Any
) -> None:
    async with running(configure(), place, ("router", "cleaner")) as process:
        known = await until(observer.processes)
        assert [one.component for one in known] == ["cleaner", "router"]
        assert process.listener is not None
        assert {one.address for one in known} == {process.listener.address}
        assert {one.version for one in known} == {__version__}
        assert len({(one.process_id, one.host, one.pid) for one in known}) == 1
        assert all(one.since <= one.step_at <= one.heartbeat_at for one in known)
        assert all(one.trouble is None for one in known)
    assert await observer.processes() == []


async def test_what_a_component_does_and_what_troubles_it_is_kept(
    store: RegistryStore, observer: ObserverStore
) -> None:
    assert not await store.beat(ME.process_id, BEATS)
    await store.enter(ME, 60.0, BEATS)
    assert await store.beat(ME.process_id, BEATS)
    router, worker = await observer.processes()
    assert (router.host, router.pid, router.version) == ("host.example", 4711, "1.2.3")
    assert (router.trouble, worker.trouble) == (None, "It failed 3 times in a row.")
    assert round((worker.heartbeat_at - worker.step_at).total_seconds(), 3) == 2.0
    assert (router.heartbeat_at - router.since).total_seconds() >= 60
    assert await store.beat(ME.process_id, [Heartbeat("worker", 0.0, None), BEATS[0]])
    assert [one.trouble for one in await observer.processes()] == [None, None]


async def test_the_killed_fall_silent_and_are_forgotten_by_the_database_s_clock(
    store: RegistryStore, observer: ObserverStore, clock: Clock
) -> None:
    await store.enter(ME, 0.0, BEATS)
    assert len(alive(await observer.processes())) == 2
    await clock.shift(SILENT_SECONDS + 1)
    known = await observer.processes()
    assert len(known) == 2 and alive(known) == []
    await store.forget_silent(FORGET_SECONDS)
    assert len(await observer.processes()) == 2
    await clock.shift(FORGET_SECONDS)
    await store.forget_silent(FORGET_SECONDS)
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
