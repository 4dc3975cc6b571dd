"""The loop that every component runs in: step, rest, wake, drain.

Reads   nothing itself      Writes  nothing itself

A component supplies `step()`, which does some work and returns how many seconds to rest (0 = there
is more). A hint ends the rest early. When the database is gone the loop rests longer and longer
and goes on when it is back; the process does not exit.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Protocol

from surehook import observe
from surehook.errors import DatabaseUnreachable
from surehook.observe.metrics import Sample
from surehook.store.hints import Channel, Hints

BACK_OFF_FIRST_SECONDS = 0.1
# After an outage every component goes on within this time; deliveries within 5 s in all.
BACK_OFF_MAX_SECONDS = 2.0
# Two steps begin at least this far apart, unless the first said that there is more to do.
PACE_SECONDS = 0.004
# Where processes cannot wake each other through the database, a component polls instead: soon after
# there was work, then less and less often.
LOOK_FIRST_SECONDS = 0.01
LOOK_LAST_SECONDS = 0.5
LOOK_GROWTH = 1.25
# A loop that failed so often, or stood still for so long, is not alive (readiness).
FAILURES_IN_A_ROW = 3
STUCK_SECONDS = 60.0


class Listening(Protocol):
    """The part of a database that a service needs for hints from other processes."""

    @property
    def notifies(self) -> bool:
        """Whether there are any."""

    def listening(self, channel: str, heard: Callable[[str], None]) -> Any: ...


class Loop:
    """What runs in a service. Subclasses implement `step` and may implement the rest."""

    name = "component"
    # The hints that end this component's rest.
    wakes_on: tuple[Channel, ...] = ()
    # Whether deliveries wait for it: then it polls often where no hint can reach it.
    urgent = False

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    async def start(self) -> None:
        """Once, before the first step."""

    def start_fields(self) -> dict[str, object]:
        """Extra fields for the component.started log line."""
        return {}

    def figures(self) -> Iterable[Sample]:
        """What /metrics shows of this component."""
        return ()

    async def step(self) -> float:
        """Some work; returns the seconds to rest."""
        raise NotImplementedError

    async def drain(self) -> None:
        """After the last step: finish or give back what is under way."""

    def wake(self) -> None:
        """End the rest: there may be work."""
        self._woken.set()

    def heard(self, channel: Channel, bucket: int, ids: list[int]) -> None:
        """A hint arrived. Most components only wake up."""
        self.wake()

    async def rest(self, seconds: float) -> bool:
        """Until woken, but no longer than `seconds`; whether it was woken."""
        if not self._woken.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
        woken = self._woken.is_set()
        self._woken.clear()
        return woken


class Service:
    """One component at work."""

    def __init__(
        self,
        component: Loop,
        hints: Hints,
        database: Listening | None,
        installation: str | None = None,
    ) -> None:
        self.component = component
        self._installation = installation
        self._hints = hints
        self._database = database
        self._stopping = False
        self._lost = False
        self._failures = 0
        self._turned_at = time.monotonic()
        self._deaf = database is not None and not database.notifies
        self._look_seconds = LOOK_FIRST_SECONDS
        for channel in component.wakes_on:
            hints.on(channel, _bound(component, channel))

    def trouble(self) -> str | None:
        """Why this loop makes no progress; None = it does."""
        if self._lost:
            return "The database does not answer."
        if self._failures >= FAILURES_IN_A_ROW:
            return f"It failed {self._failures} times in a row."
        stuck = time.monotonic() - self._turned_at
        return f"No step has completed for {stuck:.0f} s." if stuck > STUCK_SECONDS else None

    def step_age(self) -> float:
        """Seconds since its last step began."""
        return time.monotonic() - self._turned_at

    def stop(self) -> None:
        """Finish the step under way, drain, end."""
        self._stopping = True
        self.component.wake()

    async def run(self) -> None:
        """Until stop(); an unexpected error is reported and the loop goes on."""
        name = self.component.name
        ears = [
            asyncio.get_running_loop().create_task(self._listen(channel))
            for channel in self.component.wakes_on
            if self._database is not None and not self._deaf
        ]
        try:
            await self.component.start()
            observe.emit(
                "component.started",
                component=name,
                installation=self._installation,
                **self.component.start_fields(),
            )
            await self._loop()
            observe.emit("component.draining", component=name)
            await self.component.drain()
        finally:
            for ear in ears:
                ear.cancel()
            await asyncio.gather(*ears, return_exceptions=True)
        observe.emit("component.stopped", component=name)

    async def _loop(self) -> None:
        while not self._stopping:
            self._turned_at = time.monotonic()
            try:
                seconds = await self.component.step()
                if self._lost:
                    self._lost = False
                    observe.emit("database.back", component=self.component.name)
                self._failures = 0
                if seconds == 0:
                    self._look_seconds = LOOK_FIRST_SECONDS
                    await asyncio.sleep(0)  # let the others have their turn
                    continue
                if self._deaf and self.component.urgent:
                    seconds = min(seconds, self._next_look())
            except DatabaseUnreachable as error:
                if not self._lost:
                    self._lost = True
                    observe.emit(
                        "database.lost", component=self.component.name, reason=error.message
                    )
                self._failures += 1
                seconds = _back_off(self._failures)
            except Exception as error:
                self._failures += 1
                observe.emit(
                    "component.failed",
                    component=self.component.name,
                    reason=f"{type(error).__name__}: {error}",
                )
                seconds = _back_off(self._failures)
            if not self._stopping:
                if await self.component.rest(seconds):
                    self._look_seconds = LOOK_FIRST_SECONDS
                await self._keep_pace()

    def _next_look(self) -> float:
        """How long a component rests that no other process can wake."""
        seconds = self._look_seconds
        self._look_seconds = min(seconds * LOOK_GROWTH, LOOK_LAST_SECONDS)
        return seconds

    async def _keep_pace(self) -> None:
        """Hints that come thick and fast must not make every batch a small one: a statement for
        one row costs as much as one for twenty. After a pause nothing is held up."""
        early = self._turned_at + PACE_SECONDS - time.monotonic()
        if early > 0 and not self._stopping:
            await asyncio.sleep(early)

    async def _listen(self, channel: Channel) -> None:
        """Hear other processes; after a lost connection, again."""
        assert self._database is not None
        failures = 0
        while True:
            try:
                heard = _heard(self._hints, channel)
                async with self._database.listening(channel, heard) as lost:
                    failures = 0
                    await lost
            except Exception:  # the connection may break in many ways; none may deafen us for good
                failures += 1
            observe.emit("hint.lost", component=self.component.name, channel=str(channel))
            await asyncio.sleep(_back_off(failures + 1))


def _bound(component: Loop, channel: Channel) -> Callable[[int, list[int]], None]:
    return lambda bucket, ids: component.heard(channel, bucket, ids)


def _heard(hints: Hints, channel: Channel) -> Callable[[str], None]:
    return lambda message: hints.hear(channel, message)


def heard(asked: asyncio.Future[Any]) -> None:
    """Takes note of an error that no caller may wait for any more, else asyncio reports it."""
    if not asked.cancelled():
        asked.exception()


def _back_off(failures: int) -> float:
    longest = min(BACK_OFF_FIRST_SECONDS * 2 ** (failures - 1), BACK_OFF_MAX_SECONDS)
    return random.uniform(longest / 2, longest)


class Group:
    """Several services in one process."""

    def __init__(self, services: list[Service]) -> None:
        self.services = services

    async def run(self) -> None:
        """Until all have ended; if one breaks, the others are stopped too."""
        runs: list[Coroutine[Any, Any, None]] = [service.run() for service in self.services]
        async with asyncio.TaskGroup() as group:
            for run in runs:
                group.create_task(run)

    def stop(self) -> None:
        for service in self.services:
            service.stop()
