"""The router's statements. Reads events and subscriptions; writes sagas, its cursor and its notes.

How to read on without missing what commits late is each engine's own way; the promise is the same:
a subscription gets every event that was created inside one of its intervals (active and verified
for that tenant and type), while it is active and verified.

Two things a page of new events cannot know, and a step once a second makes good (CatchingUp). A
change that makes a subscription eligible carries its statement's time and is seen when it commits:
events created in between may have been routed already, also if the subscription is off again by
then. And events that were read while a subscription was not eligible, though it was when they were
created, are held (router_held) until it is again.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from surehook.model.records import RoutedSaga
from surehook.store.contract import Store
from surehook.store.database import Database, Row

CATCH_UP_SECONDS = 1.0
# A change of a subscription commits within this time; `check` has the same margin.
COMMIT_SECONDS = 60.0
# Who was changed in a transaction that took longer has what is held found by looking at all of it.
SWEEP_SECONDS = 60.0


class Interval(NamedTuple):
    """A time in which a subscription was active and verified; until None = it still is."""

    subscription_id: int
    since: datetime
    tenant: str
    event_type: str
    until: datetime | None = None


class RouterStore(Store):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._caught_up: dict[int, CaughtUp] = {}

    @abstractmethod
    async def route_page(self, bucket: int, count: int) -> tuple[list[RoutedSaga], bool] | None:
        """Route the next page of events; None = another router has this bucket.

        The flag says that more may follow. Sagas and cursor are one commit, the cursor last.
        """

    @abstractmethod
    async def insert(self, session: Any, bucket: int, ids: list[int]) -> list[RoutedSaga]:
        """The sagas that these events lack."""

    @abstractmethod
    async def let_go(self, session: Any, bucket: int, held: Sequence[tuple[int, int]]) -> None:
        """Forget these (event, subscription) if they have their saga or are wanted no more."""

    @abstractmethod
    async def unrouted(
        self, session: Any, bucket: int, intervals: Sequence[Interval], count: int
    ) -> Sequence[Row]:
        """(event, subscription) without a saga, created in these intervals and not held."""

    @abstractmethod
    async def hold(self, session: Any, bucket: int, ids: list[int], oldest: datetime) -> int:
        """Note who was eligible when these events were created and got none; how many notes."""

    def catching_up(self, bucket: int) -> CatchingUp | None:
        """What to do beside a page, if it is time for it."""
        known = self._caught_up.setdefault(bucket, CaughtUp())
        return CatchingUp(self, bucket, known) if time.monotonic() >= known.due else None


class CaughtUp:
    """What this process has made good in one bucket."""

    def __init__(self) -> None:
        self.due = 0.0
        self.sweep_due = 0.0
        self.looked_at: set[tuple[int, datetime]] = set()  # intervals: subscription and beginning
        self.session = 0  # in which it was written: another may be one of a standby that was behind


class CatchingUp:
    """One look, inside the transaction that holds the bucket's cursor: no page is under way."""

    def __init__(self, store: RouterStore, bucket: int, known: CaughtUp) -> None:
        self._store = store
        self._bucket = bucket
        self._known = known
        self._after: CaughtUp | None = None

    async def step(self, session: Any, count: int) -> tuple[list[RoutedSaga], bool]:
        """A page of what was left out; the flag says that there is more."""
        now = time.monotonic()
        self._after = after = CaughtUp()
        intervals = [
            Interval(*row)
            for name in ("recently_eligible", "recently_ended")
            for row in await session.all(name, seconds=COMMIT_SECONDS)
        ]
        after.looked_at = {(one.subscription_id, one.since) for one in intervals}
        after.session = session.number
        known = self._known.looked_at if self._known.session == session.number else set()
        newly = [one for one in intervals if (one.subscription_id, one.since) not in known]
        found: list[tuple[int, int]] = []
        held: list[tuple[int, int]] = []
        where = {"bucket": self._bucket, "count": count}
        if newly:
            late = await self._store.unrouted(session, self._bucket, newly, count)
            found = [(row[0], row[1]) for row in late]
            numbers = [one.subscription_id for one in newly if one.until is None]
            if numbers:
                rows = await session.all("held_for", subscription_ids=numbers, **where)
                held = [(row[0], row[1]) for row in rows]
        after.sweep_due = self._known.sweep_due
        if now >= after.sweep_due and not held:
            held = [(row[0], row[1]) for row in await session.all("held", **where)]
            after.sweep_due = now + SWEEP_SECONDS
        sagas: list[RoutedSaga] = []
        ids = sorted({event_id for event_id, _ in found + held})
        if ids:
            sagas = await self._store.insert(session, self._bucket, ids)
        notes = 0
        if found:  # who is off again by now gets it when it is on
            oldest = min(one.since for one in newly)
            owed = sorted({event_id for event_id, _ in found})
            notes = await self._store.hold(session, self._bucket, owed, oldest)
        if held:
            await self._store.let_go(session, self._bucket, held)
        after.due = now + CATCH_UP_SECONDS
        more = bool(sagas or notes) and max(len(found), len(held)) >= count
        if more:  # the same again, at once
            self._after = None
        return sagas, more

    def committed(self) -> None:
        """What was looked at need not be looked at again."""
        if self._after is not None:
            self._known.__dict__.update(self._after.__dict__)
