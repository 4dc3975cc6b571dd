"""The registry's statements on PostgreSQL. Reads and writes processes and system_figures."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from surehook.model.records import Heartbeat, Myself
from surehook.store.registry import RegistryStore


class PostgresRegistryStore(RegistryStore):
    async def beat(self, process_id: str, beats: Sequence[Heartbeat]) -> bool:
        rows = await self._database.all("beat", process_id=process_id, **_columns(beats))
        return len(rows) == len(beats)

    async def enter(self, me: Myself, running: float, beats: Sequence[Heartbeat]) -> None:
        await self._database.all("enter", running=running, **asdict(me), **_columns(beats))


def _columns(beats: Sequence[Heartbeat]) -> dict[str, object]:
    return {
        "components": [beat.component for beat in beats],
        "step_ages": [beat.step_age for beat in beats],
        "troubles": [beat.trouble for beat in beats],
    }
