"""Registry: every process says every few seconds that it runs, and which components.

Role    process_registrar
Reads   processes, system_figures
Writes  processes, system_figures
Never   anything that a delivery depends on

A heartbeat is one statement for all components of the process. What goes wrong with it is logged
once and tried again; the process goes on. A process that ends removes its rows, the rows of one
that was killed are removed by the others, by the database's clock. Under this login the process
also keeps what it counted for all (shared_figures.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from surehook import observe
from surehook.errors import SurehookError
from surehook.model.records import Heartbeat, Myself, RunningComponent
from surehook.pipeline.service import Service
from surehook.store.registry import RegistryStore

BEAT_SECONDS = 10.0
# Who has missed three heartbeats is taken for gone, and is forgotten some time later: meanwhile
# `surehook status` shows that it was there.
SILENT_SECONDS = 30.0
FORGET_SECONDS = 600.0
LEAVE_SECONDS = 2.0
TROUBLE_MAX = 255  # characters


class Registry:
    """This process in the registry, from start() to stop()."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[RegistryStore]],
        me: Myself,
        services: Sequence[Service],
    ) -> None:
        self._open_store = open_store
        self._me = me
        self._services = services
        self._began = time.monotonic()
        self._store: RegistryStore | None = None
        self._beating: asyncio.Task[None] | None = None
        self._lost = False
        self._forget_at = 0.0

    def start(self) -> None:
        self._beating = asyncio.get_running_loop().create_task(self._beat_on())

    async def stop(self) -> None:
        """Say farewell, if the database listens."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        if self._store is not None:
            try:
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._store.leave(self._me.process_id)
            except Exception as error:  # the rows grow old by themselves
                self._report(error)

    async def _beat_on(self) -> None:
        while True:
            try:
                await self._beat()
            except Exception as error:  # whatever it is, no delivery waits for it
                self._report(error)
            else:
                self._report(None)
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self) -> None:
        if self._store is None:
            self._store = await self._open_store()
        now = time.monotonic()
        beats = [
            Heartbeat(service.component.name, service.step_age(), _short(service.trouble()))
            for service in self._services
        ]
        if not await self._store.beat(self._me.process_id, beats):
            await self._store.enter(self._me, now - self._began, beats)
        if now >= self._forget_at:
            self._forget_at = now + SILENT_SECONDS
            await self._store.forget_silent(FORGET_SECONDS)

    def _report(self, error: Exception | None) -> None:
        """Once when it fails, once when it works again."""
        if error is not None and not self._lost:
            reason = error.message if isinstance(error, SurehookError) else type(error).__name__
            observe.emit("registry.lost", reason=reason)
        elif error is None and self._lost:
            observe.emit("registry.back")
        self._lost = error is not None


def alive(known: Sequence[RunningComponent]) -> list[RunningComponent]:
    """Those that have been heard of lately."""
    return [one for one in known if one.silent_seconds <= SILENT_SECONDS]


def _short(trouble: str | None) -> str | None:
    return trouble[:TROUBLE_MAX] if trouble else None
