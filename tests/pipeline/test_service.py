"""The loop: step, rest, wake, drain, and a database that comes and goes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support import servers
from support.connections import migrate
from support.pipeline import ALL, FakeSender, facts, running
from support.rows import a_subscription, an_event
from support.waiting import PATIENCE, in_time, until, until_row
from surehook.config import load
from surehook.errors import DatabaseUnreachable
from surehook.pipeline import service as service_module
from surehook.pipeline.service import (
    LOOK_FIRST_SECONDS,
    LOOK_LAST_SECONDS,
    Group,
    Loop,
    Service,
)
from surehook.store.hints import Channel, Hints
from surehook.store.logins import DatabaseAccess


class Scripted(Loop):
    """Does what each step is told; the last one repeats."""

    name = "scripted"
    wakes_on = (Channel.EVENTS,)

    def __init__(self, *steps: float | Exception) -> None:
        super().__init__()
        self._script = list(steps)
        self.steps = 0
        self.stepped_at: list[float] = []
        self.drained = False

    async def step(self) -> float:
        self.steps += 1
        self.stepped_at.append(time.monotonic())
        what = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(what, Exception):
            raise what
        return what

    async def drain(self) -> None:
        self.drained = True


@asynccontextmanager
async def at_work(component: Loop, hints: Hints | None = None) -> AsyncIterator[Service]:
    service = Service(component, hints or Hints(), None)
    work = asyncio.ensure_future(service.run())
    try:
        yield service
    finally:
        service.stop()
        async with asyncio.timeout(PATIENCE):
            await work


async def test_a_step_that_has_more_is_followed_by_another_at_once() -> None:
    component = Scripted(0, 0, 0, 60)
    async with at_work(component):
        await in_time(until(lambda: component.steps == 4), 1)


async def test_a_rest_ends_by_itself() -> None:
    component = Scripted(0.05, 60)
    async with at_work(component):
        await until(lambda: component.steps == 2)
    assert component.stepped_at[1] - component.stepped_at[0] >= 0.045


async def test_a_hint_ends_the_rest_also_one_that_came_during_the_step() -> None:
    hints = Hints()
    component = Scripted(60)
    async with at_work(component, hints):
        await until(lambda: component.steps == 1)
        hints.hint(Channel.EVENTS, 0)
        await until(lambda: component.steps == 2)

    class Hinted(Scripted):
        async def step(self) -> float:
            if self.steps == 0:
                hints.hint(Channel.EVENTS, 0)
            return await super().step()

    hints = Hints()
    early = Hinted(60)
    async with at_work(early, hints):
        await until(lambda: early.steps == 2)


async def test_stopping_ends_the_rest_and_drains() -> None:
    component = Scripted(60)
    with facts() as reported:
        async with at_work(component):
            await until(lambda: component.steps == 1)
    assert component.drained
    assert [name for name, _ in reported] == [
        "component.started",
        "component.draining",
        "component.stopped",
    ]


async def test_an_unexpected_error_is_reported_and_the_loop_goes_on() -> None:
    component = Scripted(ValueError("odd"), KeyError("odd"), 60)
    with facts() as reported:
        async with at_work(component):
            await until(lambda: component.steps == 3)
    told = [fields["reason"] for name, fields in reported if name == "component.failed"]
    assert told == ["ValueError: odd", "KeyError: 'odd'"]


async def test_a_lost_database_is_reported_once_and_so_is_its_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_module, "BACK_OFF_FIRST_SECONDS", 0.001)
    gone = DatabaseUnreachable("gone")
    component = Scripted(gone, gone, gone, 0, 60)
    with facts() as reported:
        async with at_work(component):
            await until(lambda: component.steps == 5)
    names = [name for name, _ in reported]
    assert names.count("database.lost") == names.count("database.back") == 1


def test_the_back_off_grows_to_its_limit_and_is_spread() -> None:
    waits = [[service_module._back_off(n) for _ in range(50)] for n in range(1, 30)]
    assert all(0.05 <= wait <= 0.1 for wait in waits[0])
    assert all(1.0 <= wait <= 2.0 for wait in waits[-1])
    assert len(set(waits[-1])) > 40


class Ears:
    """LISTEN that fails in some way before it works."""

    notifies = True

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.heard: Callable[[str], None] | None = None

    @asynccontextmanager
    async def listening(
        self, channel: str, heard: Callable[[str], None]
    ) -> AsyncIterator[asyncio.Future[None]]:
        if self._failures:
            raise self._failures.pop(0)
        self.heard = heard
        yield asyncio.get_running_loop().create_future()


async def test_listening_is_tried_again_whatever_went_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_module, "BACK_OFF_FIRST_SECONDS", 0.001)
    ears = Ears(DatabaseUnreachable("gone"), ConnectionResetError(), RuntimeError("odd"))
    component = Scripted(60)
    service = Service(component, Hints(), ears)
    work = asyncio.ensure_future(service.run())
    heard = await until(lambda: ears.heard)
    assert heard is not None
    await until(lambda: component.steps == 1)
    heard("0:")
    await until(lambda: component.steps == 2)
    service.stop()
    await work


async def test_if_one_component_breaks_the_others_are_ended_too() -> None:
    class Broken(Scripted):
        async def start(self) -> None:
            raise RuntimeError("cannot start")

    group = Group([Service(c, Hints(), None) for c in (Scripted(60), Broken(60))])
    with pytest.raises(ExceptionGroup):
        async with asyncio.timeout(PATIENCE):
            await group.run()


@pytest.mark.only_on("postgres", reason="nobody listens through MySQL")
async def test_a_terminated_listener_comes_back(
    owner: Any, configure: Any, access: DatabaseAccess
) -> None:
    sessions = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND query ILIKE 'LISTEN%' AND application_name LIKE 'surehook%'"
    )
    async with running(configure(), access, ["deadletters"]) as process:
        first = await until(lambda: owner.fetchval(sessions))
        await owner.fetchval("SELECT pg_terminate_backend($1)", first)

        async def another() -> bool:
            return await owner.fetchval(sessions) not in (None, first)

        await until(another)
        told: list[int] = []
        process.hints.on(Channel.DEATHS, lambda _, ids: told.extend(ids))

        async def heard() -> bool:
            await owner.execute("SELECT pg_notify('surehook_deaths', '0:42')")
            return 42 in told

        await until(heard)


async def test_the_pipeline_outlives_a_restart_of_the_server(server_kind: str) -> None:
    """Every component of one process loses the server, waits, and goes on when it is back."""
    if server_kind == "mysql":
        pytest.skip("another's server is not ours to restart")
    with servers.private_directory() as directory:
        first, second = (servers.own_server(server_kind, directory / "own") for _ in range(2))
        first.start()
        try:
            await _outlives_a_restart(first, second)
        finally:
            first.stop()
            second.stop()


async def _outlives_a_restart(first: servers.Runnable, second: servers.Runnable) -> None:
    url = first.url
    await migrate(url, buckets=1, role_secret=servers.ROLE_SECRET)
    async with servers.connected(url) as owner:
        await a_subscription(owner)
        await an_event(owner)
    access = DatabaseAccess(url, servers.ROLE_SECRET, servers.ENCRYPTION_KEY)
    config = load(
        Path(os.devnull),
        {"SUREHOOK_DATABASE_URL": url, "SUREHOOK_ROLE_SECRET": servers.ROLE_SECRET},
    )
    completed = "SELECT count(*) FROM webhook_delivery_sagas WHERE status = 'Completed'"
    with facts() as reported:

        def components(name: str) -> set[object]:
            return {fields["component"] for fact, fields in reported if fact == name}

        async with running(config, access, ALL, FakeSender()):
            async with servers.connected(url) as owner:
                await until_row(owner, completed, wanted=1)
            await asyncio.to_thread(first.stop)
            await until(lambda: components("database.lost") == set(ALL))
            await asyncio.to_thread(second.start)
            assert second.url == url
            async with servers.connected(url) as owner:
                await an_event(owner)
                await until_row(owner, completed, wanted=2)
            await until(lambda: components("database.back") == set(ALL))
        assert components("component.stopped") == set(ALL)


class Deaf(Ears):
    """An engine on which processes cannot wake each other."""

    notifies = False


class Looking(Loop):
    """Notes how long it is left to rest, and asks for a minute each time."""

    name = "looking"
    urgent = True
    wakes_on = (Channel.EVENTS,)

    def __init__(self) -> None:
        super().__init__()
        self.rests: list[float] = []
        self.enough = asyncio.Event()

    async def step(self) -> float:
        if len(self.rests) == 40:
            self.enough.set()
        return 60.0

    async def rest(self, seconds: float) -> bool:
        self.rests.append(seconds)
        await asyncio.sleep(0)
        return len(self.rests) == 30  # a hint


async def test_without_notifications_a_component_looks_often_after_work_and_then_less() -> None:
    looking = Looking()
    service = Service(looking, Hints(), Deaf())
    work = asyncio.get_running_loop().create_task(service.run())
    async with asyncio.timeout(PATIENCE):
        await looking.enough.wait()
    service.stop()
    await work
    assert looking.rests[0] == LOOK_FIRST_SECONDS
    assert looking.rests[:30] == sorted(looking.rests[:30])
    assert looking.rests[29] == LOOK_LAST_SECONDS
    assert looking.rests[30] == LOOK_FIRST_SECONDS  # the hint said that there is work again
