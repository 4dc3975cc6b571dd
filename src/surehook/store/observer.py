"""The observer's statements. Reads everything but secrets; writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from surehook.model.fields import Moment
from surehook.model.records import KeptFigures, RunningComponent, SystemFigures
from surehook.model.resources.subscription import Missed, Subscription
from surehook.store.database import Database, Row

# The most rows that one page of a list looks at to find those that fit its filters.
LOOK = 20_000
# A backlog is counted no further than this.
COUNT_MAX = 50_000
# So many components of processes are looked at.
PROCESSES_MAX = 2_000


class Found(msgspec.Struct, frozen=True):
    """Rows of a list, each in the order of its answer's fields; `last` is where to go on."""

    rows: Sequence[Row]
    last: tuple[object, ...] | None


class ObserverStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def broken(
        self, invariant: str, since: datetime, margin: float, count: int
    ) -> list[tuple[int, int, str]]:
        """What breaks an invariant: two ids and the facts."""
        name = f"check_{invariant}"
        given: dict[str, object] = {"since": since, "margin": margin, "count": count}
        wanted = self._database.parameters(name)
        rows = await self._database.all(name, **{key: given[key] for key in wanted})
        return [(row[0], row[1], row[2]) for row in rows]

    async def now(self) -> datetime:
        """The database's time, which every timestamp in it is of."""
        row = await self._database.one("observed_at")
        assert row is not None
        now: datetime = row[0]
        return now

    async def owed_nothing(self) -> tuple[int, int]:
        """Subscriptions that are not eligible now, and events held for them (up to COUNT_MAX)."""
        row = await self._database.one("owed_nothing", most=COUNT_MAX)
        assert row is not None
        return row[0], row[1]

    # ── Lists ─────────────────────────────────────────────────────────────────────────────────

    async def events(self, before: tuple[datetime, int], count: int, **filters: object) -> Found:
        """Events before (created_at, id), newest first."""
        rows = await self._database.all(
            "list_events", before=before[0], before_id=before[1], count=count, look=LOOK, **filters
        )
        items = [row[3:] for row in rows if row[3] is not None]
        if len(items) == count:
            return Found(items, (items[-1][4], items[-1][0]))
        return Found(items, (rows[0][1], rows[0][2]) if rows[0][0] == LOOK else None)

    async def deliveries(self, before_id: int, count: int, **filters: object) -> Found:
        rows = await self._database.all(
            "list_deliveries", before_id=before_id, count=count, look=LOOK, **filters
        )
        return _window(rows, count)

    async def dead_letters(self, before_id: int, count: int, **filters: object) -> Found:
        rows = await self._database.all(
            "list_dead_letters", before_id=before_id, count=count, look=LOOK, **filters
        )
        return _window(rows, count)

    async def subscriptions(
        self, before_id: int, count: int, **filters: object
    ) -> tuple[list[Subscription], tuple[object, ...] | None]:
        """Subscriptions, each with its newest verification, and where to go on."""
        found: list[Subscription] = await self._database.records(
            "list_subscriptions", before_id=before_id, count=count, **filters
        )
        return found, (found[-1].id,) if len(found) == count else None

    async def api_keys(self, before_id: int, count: int, tenant: str | None) -> Found:
        rows = await self._database.all(
            "list_api_keys", before_id=before_id, count=count, tenant=tenant
        )
        return Found(rows, (rows[-1][0],) if len(rows) == count else None)

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

    async def event(self, event_id: int, tenant: str | None) -> Row | None:
        return await self._database.one("read_event", id=event_id, tenant=tenant)

    async def delivery(self, saga_id: int, tenant: str | None) -> Row | None:
        """A delivery's columns, then its dead letter's id."""
        return await self._database.one("read_delivery", id=saga_id, tenant=tenant)

    async def attempts(self, saga_id: int, count: int) -> Sequence[Row]:
        return await self._database.all("read_attempts", saga_id=saga_id, count=count)

    async def dead_letter(self, dead_letter_id: int, tenant: str | None) -> Row | None:
        return await self._database.one("read_dead_letter", id=dead_letter_id, tenant=tenant)

    async def backlog(self) -> list[tuple[str, str, int, float]]:
        """Stage, state, how many wait (COUNT_MAX = that or more), age of the oldest in seconds."""
        rows = await self._database.all("backlog", most=COUNT_MAX)
        return [(row[0], row[1], row[2], max(0.0, float(row[3] or 0))) for row in rows]

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


def _window(rows: Sequence[Row], count: int) -> Found:
    """Of rows that begin with the size and the last id of the window that was looked at."""
    items = [row[2:] for row in rows if row[2] is not None]
    if len(items) == count:
        return Found(items, (items[-1][0],))
    return Found(items, (rows[0][1],) if rows[0][0] == LOOK else None)
