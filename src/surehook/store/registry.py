"""The registry's statements. Reads and writes processes and system_figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import msgspec

from surehook.model.records import Heartbeat, Myself, SystemFigures
from surehook.store.contract import Store, statement
from surehook.store.database import Duplicate


class RegistryStore(Store):
    @abstractmethod
    async def beat(self, process_id: str, beats: Sequence[Heartbeat]) -> bool:
        """Say that these components run; False if the registry does not know them all."""

    @abstractmethod
    async def enter(self, me: Myself, running: float, beats: Sequence[Heartbeat]) -> None:
        """Make this process known, which has run for so many seconds."""

    @statement
    async def leave(self, process_id: str) -> None: ...

    @statement
    async def forget_silent(self, seconds: float) -> None:
        """Remove those that have not been heard of for so long."""

    async def begin_figures(self, interval: float, lost: float) -> bool:
        """Whether this process is the one that counts now."""
        written = await self._database.write("begin_figures", interval=interval, lost=lost)
        return written.rows == 1

    async def begin_first_figures(self) -> bool:
        """The same where none has counted yet."""
        try:
            return (await self._database.write("begin_first_figures")).rows == 1
        except Duplicate:
            return False

    async def keep_figures(self, figures: SystemFigures) -> None:
        """Write down what was counted, for all processes."""
        text = msgspec.json.encode(figures).decode()
        await self._database.all("keep_figures", figures=text)
