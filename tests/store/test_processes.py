"""The registry's table: what a process writes there, and how long it counts."""

from __future__ import annotations

import pytest

from support import OpenStore
from support.clock import Clock
from surehook.model.records import Heartbeat, Myself
from surehook.pipeline.registry import FORGET_SECONDS, SILENT_SECONDS, alive
from surehook.store import store_of
from surehook.store.observer import ObserverStore
from surehook.store.registry import RegistryStore

ME = Myself("0123456789abcdef", "host.example", 4711, "1.2.3", "127.0.0.1:9464")
BEATS = [Heartbeat("router", 0.5, None), Heartbeat("worker", 2.0, "It failed 3 times in a row.")]


@pytest.fixture
async def store(open_store: OpenStore) -> RegistryStore:
    return store_of(RegistryStore, await open_store("registry"))


@pytest.fixture
async def observer(open_store: OpenStore) -> ObserverStore:
    return store_of(ObserverStore, await open_store("observer"))


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


async def test_killed_processes_fall_silent_and_are_removed_by_the_clock_of_the_database(
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
