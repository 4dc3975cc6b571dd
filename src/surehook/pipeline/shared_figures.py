"""The figures of the whole system: one process counts them per interval, every process shows them.

Components  observer, to count; registry, to say who counts and to keep what was found
Reads   the backlog, processes, system_figures
Writes  system_figures

A row says when a process last began to count. Whoever finds that the interval is over and changes
that time first is the one that counts, by the database's clock; all others read what it wrote.
While no process asks, none counts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from surehook.model.records import KeptFigures, SystemFigures
from surehook.pipeline.registry import alive
from surehook.pipeline.service import heard
from surehook.store.observer import ObserverStore
from surehook.store.registry import RegistryStore

INTERVAL_SECONDS = 5.0
# A process that began to count and has not finished by then is taken for gone: longer than a
# statement may run by default.
LOST_SECONDS = 40.0
# Figures that are older are not shown; younger ones are better than none.
OLD_SECONDS = 60.0
# How long a reader waits for a count under way, here or in another process.
PATIENCE_SECONDS = 0.7
LOOK_SECONDS = 0.1


class SharedFigures:
    """The system's figures, as this process shows them."""

    def __init__(
        self, observer: ObserverStore, open_registry: Callable[[], Awaitable[RegistryStore]]
    ) -> None:
        self._observer = observer
        self._open_registry = open_registry
        self._counting: asyncio.Task[None] | None = None

    async def current(self) -> KeptFigures | None:
        """What was counted last, by this process or another; None if that is too long ago."""
        kept = await self._observer.kept_figures()
        if not _is_younger(kept, INTERVAL_SECONDS):
            await self._count_if_nobody_does(kept)
            kept = await self._awaited(kept)
        return kept if _is_younger(kept, OLD_SECONDS) else None

    async def close(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)

    async def _count_if_nobody_does(self, kept: KeptFigures | None) -> None:
        if self._counting is not None and not self._counting.done():
            return
        registry = await self._open_registry()
        if kept is None:
            mine = await registry.begin_first_figures()
        else:
            mine = await registry.begin_figures(INTERVAL_SECONDS, LOST_SECONDS)
        if mine:
            self._counting = asyncio.get_running_loop().create_task(self._count(registry))
            # One that fails is no reader's error: the figures grow old, and the next one counts.
            self._counting.add_done_callback(heard)

    async def _count(self, registry: RegistryStore) -> None:
        backlog = await self._observer.backlog()
        known = alive(await self._observer.processes())
        running = Counter(one.component for one in known)
        size = await self._observer.database_bytes()
        await registry.keep_figures(SystemFigures(backlog, dict(running), size))

    async def _awaited(self, kept: KeptFigures | None) -> KeptFigures | None:
        """The new figures if they are there soon, else what there is."""
        loop = asyncio.get_running_loop()
        patience_ends = loop.time() + PATIENCE_SECONDS
        while not _is_younger(kept, INTERVAL_SECONDS) and loop.time() < patience_ends:
            if self._counting is not None and not self._counting.done():
                await asyncio.wait([self._counting], timeout=LOOK_SECONDS)
            else:
                await asyncio.sleep(LOOK_SECONDS)
            kept = await self._observer.kept_figures()
        return kept


def _is_younger(kept: KeptFigures | None, seconds: float) -> bool:
    return kept is not None and kept.figures is not None and abs(kept.age_seconds) < seconds
