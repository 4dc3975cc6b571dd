"""The figures of the whole system: counted by one process, shown by all that are asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from support import Configure, OpenStore
from support.api import FLAGS, serving
from support.clock import Clock
from support.rows import a_saga
from support.waiting import until
from surehook.pipeline import shared_figures, vitals
from surehook.pipeline.shared_figures import (
    INTERVAL_SECONDS,
    LOST_SECONDS,
    OLD_SECONDS,
    SharedFigures,
)
from surehook.store import store_of
from surehook.store.database import Session
from surehook.store.logins import DatabaseAccess
from surehook.store.observer import ObserverStore
from surehook.store.registry import RegistryStore

TWO_WAIT = b'surehook_backlog{stage="deliveries",state="Pending"} 2.0'


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Every statement that any process sends, by its name."""
    names: Counter[str] = Counter()
    call = Session._call

    def counted(session: Session, name: str, values: dict[str, object]) -> Any:
        names[name] += 1
        return call(session, name, values)

    monkeypatch.setattr(Session, "_call", counted)
    return names


@pytest.fixture
async def figures(open_store: OpenStore) -> Callable[[], SharedFigures]:
    """As another process would have them."""
    observer = store_of(ObserverStore, await open_store("observer"))
    registry = store_of(RegistryStore, await open_store("registry"))
    return lambda: SharedFigures(observer, lambda: asyncio.sleep(0, registry))


async def test_however_many_processes_are_asked_the_database_counts_once_per_interval(
    configure: Configure,
    access: DatabaseAccess,
    owner: Any,
    clock: Clock,
    asked: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vitals, "KEPT_FRESH_SECONDS", 0.0)  # every look is one at the database
    for _ in range(2):
        await a_saga(owner)
    await clock.stop()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(serving(configure(FLAGS), access)) for _ in range(3)
        ]

        async def shown() -> bool:
            """Whether every process shows the figures; all of them are asked at once."""
            pages = await asyncio.gather(*(client.get("/metrics") for client in clients))
            return all(TWO_WAIT in page.body for page in pages)

        for interval in (1, 2):
            for _ in range(5):
                await until(shown)
            assert asked["backlog"] == interval
            await clock.shift(INTERVAL_SECONDS + 1)
    assert asked["system_figures"] >= 30  # what each look costs: one row by its key


async def test_a_process_that_dies_while_it_counts_is_replaced(
    figures: Callable[[], SharedFigures], open_store: OpenStore, clock: Clock
) -> None:
    await clock.stop()
    dying = store_of(RegistryStore, await open_store("registry"))
    assert await dying.begin_first_figures()
    assert await figures().current() is None
    await clock.shift(LOST_SECONDS + 1)
    kept = await until(figures().current)
    assert kept.figures is not None and kept.age_seconds == 0


async def test_figures_are_shown_while_a_newer_count_takes_its_time_but_not_for_ever(
    figures: Callable[[], SharedFigures], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await clock.stop()
    mine = figures()
    assert await until(mine.current)
    hanging = asyncio.Event()

    async def backlog(_store: ObserverStore) -> Any:
        await hanging.wait()

    monkeypatch.setattr(ObserverStore, "backlog", backlog)
    monkeypatch.setattr(shared_figures, "PATIENCE_SECONDS", 0.0)
    await clock.shift(INTERVAL_SECONDS + 1)
    kept = await mine.current()
    assert kept is not None and kept.age_seconds == INTERVAL_SECONDS + 1
    await clock.shift(OLD_SECONDS)
    assert await mine.current() is None
    await mine.close()


async def test_nobody_counts_while_nobody_looks(
    configure: Configure, access: DatabaseAccess, asked: Counter[str]
) -> None:
    async with serving(configure(FLAGS), access) as client:
        for _ in range(3):
            assert (await client.get("/readyz")).status == 200
    assert asked["backlog"] == 0
