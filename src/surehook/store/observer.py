"""The observer's statements. Reads everything but secrets; writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from surehook.model.moments import Moment
from surehook.model.records import KeptFigures, RunningComponent, SystemFigures
from surehook.model.resources.dead_letter import DeadLetter, DeadLetterWithPayload
from surehook.model.resources.delivery import Attempt, Delivery, DeliveryWithAttempts
from surehook.model.resources.event import Event, EventWindow, EventWithDeliveries
from surehook.model.resources.key import Key
from surehook.model.resources.subscription import Missed, Subscription
from surehook.store.contract import Store, statement

Item = TypeVar("Item")

# The most rows that one page of a list looks at to find those that fit its filters.
LOOK = 20_000
# A backlog is counted no further than this.
COUNT_MAX = 50_000
# So many dead letters are looked at: whether one was requeued is a look into another table.
OPEN_LOOK = 10_000
# So many components of processes are looked at.
PROCESSES_MAX = 2_000


class Found(msgspec.Struct, Generic[Item], frozen=True):
    """A part of a list; `last` is where to go on, None at its end."""

    items: list[Item]
    last: tuple[object, ...] | None


class ObserverStore(Store):
    async def broken(
        self, invariant: str, since: datetime, margin: float, count: int
    ) -> list[tuple[int, int, str]]:
        """What breaks an invariant: two ids and the facts."""
        name = f"check_{invariant}"
        given: dict[str, object] = {"since": since, "margin": margin, "count": count}
        wanted = self._database.parameters(name)
        rows = await self._database.all(name, **{key: given[key] for key in wanted})
        return [(row[0], row[1], row[2]) for row in rows]

    @statement
    async def now(self) -> datetime:
        """The database's time, which every timestamp in it is of."""

    @statement
    async def owed_nothing(self, most: int) -> tuple[int, int]:
        """Subscriptions that are not eligible now, and events held for them, up to `most`."""

    # ── Lists ─────────────────────────────────────────────────────────────────────────────────

    async def events(
        self, before: tuple[datetime, int], count: int, **filters: object
    ) -> Found[Event]:
        """Events before (created_at, id), newest first."""
        rows: list[EventWindow] = await self._listed(
            "list_events", filters, before=before[0], before_id=before[1], count=count, look=LOOK
        )
        items = [row.item for row in rows if row.item is not None]
        if len(items) == count:
            return Found(items, (items[-1].created_at, items[-1].id))
        end = rows[0]
        return Found(items, (end.last_created_at, end.last_id) if end.looked == LOOK else None)

    async def deliveries(self, before_id: int, count: int, **filters: object) -> Found[Delivery]:
        return await self._window("list_deliveries", before_id, count, filters)

    async def dead_letters(
        self, before_id: int, count: int, **filters: object
    ) -> Found[DeadLetter]:
        return await self._window("list_dead_letters", before_id, count, filters)

    async def subscriptions(
        self, before_id: int, count: int, **filters: object
    ) -> Found[Subscription]:
        """Each with its newest verification."""
        found = await self._listed("list_subscriptions", filters, before_id=before_id, count=count)
        return Found(found, (found[-1].id,) if len(found) == count else None)

    async def keys(self, before_id: int, count: int, **filters: object) -> Found[Key]:
        found = await self._listed("list_api_keys", filters, before_id=before_id, count=count)
        return Found(found, (found[-1].id,) if len(found) == count else None)

    async def _window(
        self, name: str, before_id: int, count: int, filters: Mapping[str, object]
    ) -> Found[Any]:
        """What fits of a window of rows, and the window's last id if there may be more."""
        rows = await self._listed(name, filters, before_id=before_id, count=count, look=LOOK)
        items = [row.item for row in rows if row.item is not None]
        if len(items) == count:
            return Found(items, (items[-1].id,))
        return Found(items, (rows[0].last_id,) if rows[0].looked == LOOK else None)

    async def _listed(
        self, name: str, filters: Mapping[str, object], **values: object
    ) -> list[Any]:
        """A filter that is not given lets everything through."""
        given = {**dict.fromkeys(self._database.parameters(name)), **filters, **values}
        return await self._database.records(name, **given)

    async def missed(self, subscription_id: int) -> Missed | None:
        """What a subscription missed when it last was not eligible, or is missing now."""
        gap = await self._database.one("last_gap", id=subscription_id)
        if gap is None or gap[2] is None:
            return None
        tenant, event_type, since, until, now = gap
        row = await self._database.one(
            "missed_events",
            tenant=tenant,
            event_type=event_type,
            since=since,
            until=until or now,
            look=LOOK,
        )
        assert row is not None
        seen, count, first_at, last_at = row
        if not count:
            return None
        return Missed(
            count=count,
            more=seen == LOOK,
            first_at=Moment.of(first_at),
            last_at=Moment.of(last_at),
        )

    # ── One ───────────────────────────────────────────────────────────────────────────────────

    @statement
    async def read_event(self, id: int, tenant: str | None) -> EventWithDeliveries | None:
        """Without its deliveries."""

    @statement
    async def read_delivery(self, id: int, tenant: str | None) -> DeliveryWithAttempts | None:
        """Without its attempts."""

    @statement
    async def read_attempts(self, saga_id: int, count: int) -> list[Attempt]: ...

    @statement
    async def read_dead_letter(
        self, id: int, tenant: str | None
    ) -> DeadLetterWithPayload | None: ...

    async def backlog(self) -> list[tuple[str, str, int, float]]:
        """Stage, state, how many wait (COUNT_MAX = that or more), age of the oldest in seconds."""
        rows = [
            *await self._database.all("unrouted", most=COUNT_MAX),
            *await self._database.all("backlog", most=COUNT_MAX),
            *await self._database.all("open_dead_letters", look=OPEN_LOOK),
        ]
        return [(row[0], row[1], row[2], max(0.0, float(row[3] or 0))) for row in rows]

    async def database_bytes(self) -> int:
        row = await self._database.one("database_bytes")
        assert row is not None
        return int(row[0] or 0)

    async def kept_figures(self) -> KeptFigures | None:
        """The figures of the whole system as they were last counted; None = never begun."""
        row = await self._database.one("system_figures")
        if row is None:
            return None
        if row[0] is None:
            return KeptFigures(None, 0.0)
        return KeptFigures(msgspec.json.decode(row[0], type=SystemFigures), float(row[1]))

    async def processes(self) -> list[RunningComponent]:
        """Every component that the registry knows, also those that have fallen silent."""
        rows = await self._database.all("processes", most=PROCESSES_MAX)
        return [RunningComponent(*row) for row in rows]
