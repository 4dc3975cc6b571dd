"""The router's statements on PostgreSQL. Reads events, subscriptions; writes sagas, cursor, notes.

The cursor is a snapshot: what it can see is routed. The next read is what it could not see and
the current snapshot can, so ids that commit out of order are neither missed nor waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from surehook.model.records import RoutedSaga
from surehook.observe import crashpoints
from surehook.store.database import Row, Session
from surehook.store.router import Interval, RouterStore

# xmin, xmax, xids in flight: as the driver decodes pg_snapshot.
Snapshot: TypeAlias = tuple[int, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything visible in `snapshot` is routed, and of partial_xid the ids up to partial_id."""

    snapshot: Snapshot
    partial_xid: int = 0
    partial_id: int = 0


def advance(old: Cursor, now: Snapshot, last: tuple[int, int] | None) -> Cursor:
    """The cursor after a page was routed that was read under `now`.

    `last` is the (xid, id) of the page's last row if the page was full: more may follow. Then only
    what is smaller than that xid is complete, and the xid itself up to that id.
    """
    if last is None:
        return Cursor(now)
    xid, row_id = last
    _, old_xmax, old_in_flight = old.snapshot
    _, _, now_in_flight = now
    if xid >= old_xmax:
        xmax = xid
        in_flight = tuple(x for x in now_in_flight if x < xid)
    else:  # the page ended among the transactions that were under way before
        xmax = old_xmax
        in_flight = tuple(x for x in old_in_flight if x >= xid or x in now_in_flight)
    return Cursor((min((*in_flight, xmax)), xmax, in_flight), xid, row_id)


class PostgresRouterStore(RouterStore):
    async def route_page(self, bucket: int, count: int) -> tuple[list[RoutedSaga], bool] | None:
        catching_up = self.catching_up(bucket)

        async def work(session: Session) -> tuple[list[RoutedSaga], bool] | None:
            row = await session.one("lock_cursor", bucket=bucket)
            if row is None:
                return None
            snapshot, partial_xid, partial_id, foreign_id_max, after_id, until_id, other = row
            if other:
                await session.all("begin_rescan", bucket=bucket)
                return [], True
            if after_id < until_id:
                page = await self._rescan(session, bucket, after_id, until_id, count)
            else:
                cursor = Cursor(snapshot, partial_xid, partial_id)
                page = await self._read_on(session, bucket, cursor, foreign_id_max, count)
            if catching_up is None:
                return page
            late, more = await catching_up.step(session, count)
            return page[0] + late, page[1] or more

        result = await self._database.in_transaction(work)
        if result is not None and catching_up is not None:
            catching_up.committed()
        await crashpoints.here("router.after_commit")
        if result is None:
            await self._database.all("create_cursor", bucket=bucket)
        return result

    async def _rescan(
        self, session: Session, bucket: int, after_id: int, until_id: int, count: int
    ) -> tuple[list[RoutedSaga], bool]:
        rows = await session.all(
            "rescan_events", bucket=bucket, after_id=after_id, until_id=until_id, count=count
        )
        ids = [row[0] for row in rows]
        sagas = await self.insert(session, bucket, ids)
        done_until = ids[-1] if len(ids) == count else until_id
        saved = await session.one("save_rescan", bucket=bucket, after_id=done_until)
        await self._hold(session, bucket, ids, [row[1] for row in rows], saved)
        return sagas, True

    async def _read_on(
        self, session: Session, bucket: int, cursor: Cursor, foreign_id_max: int, count: int
    ) -> tuple[list[RoutedSaga], bool]:
        _, xmax, in_flight = cursor.snapshot
        at_xmax = cursor.partial_xid == xmax
        rows = await session.all(
            "new_events",
            bucket=bucket,
            in_flight=in_flight,
            partial_xid=cursor.partial_xid,
            partial_id=cursor.partial_id,
            from_xid=xmax,
            from_id=cursor.partial_id if at_xmax else 0,
            foreign_id_max=foreign_id_max,
            count=count,
        )
        if not rows:
            return [], False
        ids = [row[0] for row in rows]
        sagas = await self.insert(session, bucket, ids)
        full = len(rows) == count
        after = advance(cursor, rows[0][2], (rows[-1][1], rows[-1][0]) if full else None)
        saved = await session.one(
            "save_cursor",
            bucket=bucket,
            snapshot=after.snapshot,
            partial_xid=after.partial_xid,
            partial_id=after.partial_id,
        )
        await self._hold(session, bucket, ids, [row[3] for row in rows], saved)
        return sagas, full

    async def _hold(
        self,
        session: Session,
        bucket: int,
        ids: list[int],
        created: Sequence[datetime],
        saved: Row | None,
    ) -> None:
        """Saving the cursor says when an interval last ended, as seen after these were routed."""
        ended: datetime | None = saved[0] if saved else None
        if ids and ended is not None and ended > min(created):
            await self.hold(session, bucket, ids, min(created))

    async def hold(self, session: Session, bucket: int, ids: list[int], oldest: datetime) -> int:
        return len(await session.all("hold", bucket=bucket, event_ids=ids))

    async def unrouted(
        self, session: Session, bucket: int, intervals: Sequence[Interval], count: int
    ) -> Sequence[Row]:
        return await session.all(
            "unrouted_since",
            bucket=bucket,
            subscription_ids=[interval.subscription_id for interval in intervals],
            since=[interval.since for interval in intervals],
            until=[interval.until for interval in intervals],
            count=count,
        )

    async def let_go(self, session: Session, bucket: int, held: Sequence[tuple[int, int]]) -> None:
        events, subscriptions = zip(*held, strict=True)
        await session.all("let_go", bucket=bucket, event_ids=events, subscription_ids=subscriptions)

    async def insert(self, session: Session, bucket: int, ids: list[int]) -> list[RoutedSaga]:
        await crashpoints.here("router.before_insert")
        rows = await session.all("route", bucket=bucket, event_ids=ids)
        await crashpoints.here("router.after_insert")
        return [RoutedSaga(*row) for row in rows]
