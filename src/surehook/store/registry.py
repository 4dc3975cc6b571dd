"""The registry's statements. Reads and writes processes and system_figures."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from surehook.model.records import Heartbeat, Myself, SystemFigures
from surehook.store.database import Database


class RegistryStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def beat(self, process_id: str, beats: Sequence[Heartbeat]) -> bool:
        """Say that these components run; False if the registry does not know them all."""
        rows = await self._database.all("beat", process_id=process_id, **_columns(beats))
        return len(rows) == len(beats)

    async def enter(self, me: Myself, running: float, beats: Sequence[Heartbeat]) -> None:
        """Make this process known, which has run for so many seconds."""
        await self._database.all(
            "enter",
            process_id=me.process_id,
            host=me.host,
            pid=me.pid,
            version=me.version,
            address=me.address,
            running=running,
            **_columns(beats),
        )

    async def leave(self, process_id: str) -> None:
        await self._database.all("leave", process_id=process_id)

    async def forget_silent(self, seconds: float) -> None:
        """Remove those that have not been heard of for so long."""
        await self._database.all("forget_silent", seconds=seconds)

    async def begin_figures(self, interval: float, lost: float) -> bool:
        """Whether this process is the one that counts now."""
        return bool(await self._database.all("begin_figures", interval=interval, lost=lost))

    async def begin_first_figures(self) -> bool:
        """The same where nobody has counted yet."""
        return bool(await self._database.all("begin_first_figures"))

    async def keep_figures(self, figures: SystemFigures) -> None:
        """Write down what was counted, for all processes."""
        text = msgspec.json.encode(figures).decode()
        await self._database.all("keep_figures", figures=text)


def _columns(beats: Sequence[Heartbeat]) -> dict[str, object]:
    return {
        "components": [beat.component for beat in beats],
        "step_ages": [beat.step_age for beat in beats],
        "troubles": [beat.trouble for beat in beats],
    }
