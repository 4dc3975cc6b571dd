"""The registry's statements on MySQL. Reads and writes processes and system_figures."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from surehook.model.records import Heartbeat, Myself
from surehook.store.mysql.database import MysqlDatabase
from surehook.store.mysql.values import Table
from surehook.store.registry import RegistryStore


class MysqlRegistryStore(RegistryStore):
    _database: MysqlDatabase

    async def beat(self, process_id: str, beats: Sequence[Heartbeat]) -> bool:
        written = await self._database.write("beat", process_id=process_id, given=_given(beats))
        return written.rows == len(beats)

    async def enter(self, me: Myself, running: float, beats: Sequence[Heartbeat]) -> None:
        values = {"running_us": int(running * 1e6), "given": _given(beats)}
        await self._database.write("enter", **asdict(me), **values)


def _given(beats: Sequence[Heartbeat]) -> Table:
    return Table((beat.component, int(beat.step_age * 1e6), beat.trouble) for beat in beats)
