"""The figures' table: one process per interval counts, by the database's clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support import OpenStore
from support.clock import Clock
from support.rows import a_dead_letter, a_saga
from surehook.model.records import KeptFigures, SystemFigures
from surehook.pipeline.shared_figures import INTERVAL_SECONDS, LOST_SECONDS
from surehook.store import store_of
from surehook.store.observer import ObserverStore
from surehook.store.registry import RegistryStore

FOUND = SystemFigures([("sagas", "Pending", 7, 1.5), ("jobs", "Leased", 0, 0.0)], {"worker": 2})


@pytest.fixture
async def stores(open_store: OpenStore) -> list[RegistryStore]:
    """As of several processes."""
    return [store_of(RegistryStore, await open_store("registry")) for _ in range(4)]


async def begun(stores: list[RegistryStore]) -> int:
    """How many of them, all asking at once, are to count."""
    answers = await asyncio.gather(
        *(store.begin_figures(INTERVAL_SECONDS, LOST_SECONDS) for store in stores)
    )
    return sum(answers)


async def test_of_several_processes_that_ask_at_once_one_counts_per_interval(
    stores: list[RegistryStore], open_store: OpenStore, clock: Clock
) -> None:
    observer = store_of(ObserverStore, await open_store("observer"))
    await clock.stop()
    assert await observer.kept_figures() is None
    first = await asyncio.gather(*(store.begin_first_figures() for store in stores))
    assert sum(first) == 1
    assert await observer.kept_figures() == KeptFigures(None, 0.0)
    await stores[0].keep_figures(FOUND)
    assert await begun(stores) == 0
    await clock.shift(INTERVAL_SECONDS + 1)
    assert await observer.kept_figures() == KeptFigures(FOUND, INTERVAL_SECONDS + 1)
    assert await begun(stores) == 1


async def test_a_count_that_takes_long_is_not_begun_again_until_it_counts_as_lost(
    stores: list[RegistryStore], clock: Clock
) -> None:
    await clock.stop()
    assert await stores[0].begin_first_figures()
    await clock.shift(INTERVAL_SECONDS + 1)
    assert await begun(stores) == 0
    await clock.shift(LOST_SECONDS)
    assert await begun(stores) == 1


async def test_a_clock_that_was_set_back_holds_up_nobody(
    stores: list[RegistryStore], owner: Any, clock: Clock
) -> None:
    await clock.stop()
    assert await stores[0].begin_first_figures()
    await stores[0].keep_figures(FOUND)
    await owner.execute("UPDATE system_figures SET begun_at = begun_at + interval '1 day'")
    assert await begun(stores) == 1


async def test_a_dead_letter_is_open_until_it_is_requeued(
    owner: Any, open_store: OpenStore
) -> None:
    observer = store_of(ObserverStore, await open_store("observer"))
    letters = [await a_dead_letter(owner) for _ in range(3)]
    [(event_id, subscription_id)] = await owner.fetch(
        "SELECT event_id, subscription_id FROM dead_letters WHERE id = $1", letters[1]
    )
    requeued = {"event_id": event_id, "subscription_id": subscription_id}
    await a_saga(owner, **requeued, requeued_from=letters[1])
    found = {(stage, state): number for stage, state, number, _ in await observer.backlog()}
    assert (found["dead_letters", "kept"], found["dead_letters", "open"]) == (3, 2)


async def test_the_size_of_the_database_is_known_to_the_observer(open_store: OpenStore) -> None:
    observer = store_of(ObserverStore, await open_store("observer"))
    assert await observer.database_bytes() > 100_000
