"""Keys that someone's open transaction holds, and the events that wait for them.

Reads   nothing     Writes  by way of ingest, one key at a time

Each is asked for again and again, all of them on one connection, and after a second those who wait
are told. The key is remembered for longer: an event that comes again waits here at once, and not
in a batch with others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from surehook.errors import DatabaseUnreachable
from surehook.model.records import NewEvent, StoredEvent
from surehook.store.database import LockHeld
from surehook.store.ingest import Key

HELD_SECONDS_MAX = 1.0
ASK_AGAIN_SECONDS = 0.02
REMEMBERED_SECONDS = 10.0
# How many may wait here at once; an event beyond it fails immediately.
KEYS_MAX = 100
CHARACTERS_MAX = 16 * 2**20

Waiting = tuple[NewEvent, "asyncio.Future[StoredEvent]"]


class Busy(DatabaseUnreachable):
    """Too much is waiting: try again in a moment."""


class KeyHeld(Busy):
    """An open transaction has written an event with this external_id: its end decides."""

    def __init__(self) -> None:
        super().__init__(
            "The external_id is being written by a transaction that is still open.",
            "Try again when it has ended.",
        )


class HeldKeys:
    """`write` stores the events of one key and answers them, or raises LockHeld."""

    def __init__(self, write: Callable[[list[Waiting]], Awaitable[None]]) -> None:
        self._write = write
        self._keys: dict[Key, _Held] = {}  # the one asked for last is the last
        self._characters = 0
        self._task: asyncio.Task[None] | None = None
        self.futures: set[asyncio.Future[StoredEvent]] = set()  # of those who wait

    def __contains__(self, key: Key) -> bool:
        held = self._keys.get(key)
        return held is not None and (bool(held.waiting) or time.monotonic() < held.forgotten_at)

    def add(self, key: Key, group: list[Waiting]) -> None:
        """These events wait for their key, which is held."""
        if not self._room_for(key):
            fail(group, KeyHeld())
            return
        now = time.monotonic()
        held = self._keys.pop(key, None) or _Held()
        self._keys[key] = held
        held.forgotten_at = now + REMEMBERED_SECONDS
        if not held.waiting:
            held.fails_at = now + HELD_SECONDS_MAX
        held.waiting += group
        for event, stored in group:
            self._characters += len(event.payload)
            self.futures.add(stored)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._ask())

    def _room_for(self, key: Key) -> bool:
        """Keys that no event waits for make room."""
        if self._characters >= CHARACTERS_MAX:
            return False
        if key not in self._keys and len(self._keys) >= KEYS_MAX:
            idle = next((known for known, held in self._keys.items() if not held.waiting), None)
            if idle is None:
                return False
            del self._keys[idle]
        return True

    async def _ask(self) -> None:
        """Ask for every key that an event waits for, until none does."""
        try:
            while asked := [(key, held) for key, held in self._keys.items() if held.waiting]:
                for key, held in asked:
                    if await self._is_free(held) and not held.waiting:
                        del self._keys[key]
                await asyncio.sleep(ASK_AGAIN_SECONDS)
        except BaseException as error:
            for held in self._keys.values():
                self._end(held, len(held.waiting), error)
            raise
        finally:
            # In the same breath as the look at the keys: who comes next sees it.
            self._task = None

    async def _is_free(self, held: _Held) -> bool:
        """Try to store what waits; who comes during that is for the next time."""
        count = len(held.waiting)
        group = [(event, stored) for event, stored in held.waiting if not stored.done()]
        error: Exception | None = None
        try:
            if group:  # else all have left, and nothing is stored
                await self._write(group)
        except LockHeld:
            if time.monotonic() >= held.fails_at:
                self._end(held, len(held.waiting), KeyHeld())
            return False
        except Exception as other:
            error = other
        self._end(held, count, error)
        return bool(group)

    def _end(self, held: _Held, count: int, error: BaseException | None) -> None:
        """The first so many wait no longer."""
        ended, held.waiting = held.waiting[:count], held.waiting[count:]
        for event, stored in ended:
            self._characters -= len(event.payload)
            self.futures.discard(stored)
        if error is not None:
            fail(ended, error)


class _Held:
    """One key."""

    __slots__ = ("fails_at", "forgotten_at", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.fails_at = self.forgotten_at = 0.0


def fail(group: Iterable[Waiting], error: BaseException) -> None:
    """The same error for all that still wait."""
    for _, stored in group:
        if not stored.done():
            stored.set_exception(error)
