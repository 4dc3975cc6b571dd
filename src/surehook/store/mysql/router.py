"""The router's statements on MySQL. Reads events and subscriptions; writes sagas, cursor, notes.

The cursor is the highest id that was read. Ids below it that were not there are kept as gaps
(ranges) until something appears in them, or until they are proved dead: no open transaction
has a row there, and for longer than any statement may take nothing has come. Nothing waits for
an open transaction.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from surehook.model.records import EventId, RoutedSaga, SagaId, SubscriptionId
from surehook.observe import crashpoints
from surehook.store.database import LockHeld, Row
from surehook.store.mysql.database import MysqlDatabase, MysqlSession
from surehook.store.mysql.values import Ranges, Rows
from surehook.store.router import Interval, RouterStore

# An id is given out and its row is written within one statement. Other people's may take longer
# than ours are allowed to, so this many times as long.
STATEMENTS = 2.0
# So many gaps are looked at in each step, the newest ones; all of them once a second.
GAPS_PER_STEP = 500
GAPS_MAX = 100_000
PROBES_PER_STEP = 200
PROBE_SECONDS = 1.0
# So many questions of a kind are one statement.
ASKED_AT_ONCE = 200

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Gap:
    """Ids from first to last that were not there when later ones were."""

    first: int
    last: int
    age_seconds: float = 0.0


def holes(after_id: int, present: Iterable[int]) -> list[Range]:
    """The ranges between after_id and the highest present id that hold none of them."""
    found = []
    expected = after_id + 1
    for number in present:
        if number > expected:
            found.append((expected, number - 1))
        expected = number + 1
    return found


def without(gap: Range, filled: Iterable[int]) -> list[Range]:
    """What is left of a gap when these of its ids have appeared."""
    first, last = gap
    return [*holes(first - 1, [*filled, last + 1])]


class MysqlRouterStore(RouterStore):
    _database: MysqlDatabase

    def __init__(self, database: MysqlDatabase) -> None:
        super().__init__(database)
        self._probe_due: dict[int, float] = {}
        self._idle: set[int] = set()  # buckets in which nothing was new

    async def route_page(self, bucket: int, count: int) -> tuple[list[RoutedSaga], bool] | None:
        catching_up = self.catching_up(bucket)

        async def work(session: MysqlSession) -> tuple[list[RoutedSaga], bool] | None:
            row = await session.one("lock_cursor", bucket=bucket)
            if row is None:
                return None
            after_id: int = row[0]
            probe = self._is_time_to_probe(bucket)
            late, late_left = await self._late(session, bucket, after_id, probe, count)
            rows = await session.all(
                "new_events", bucket=bucket, after_id=after_id, count=count - len(late)
            )
            new = [row[0] for row in rows]
            created: dict[int, datetime] = {row[0]: row[1] for row in [*late, *rows]}
            sagas, last_ended = await self._insert(session, bucket, [*created])
            if created and last_ended is not None and last_ended > min(created.values()):
                await self.hold(session, bucket, [*created], min(created.values()))
            if new:
                await self._remember(session, bucket, after_id, new)
            if probe:
                await self._bury(session, bucket)
            more = late_left or len(late) + len(new) >= count
            if catching_up is not None:
                owed, owed_left = await catching_up.step(session, count)
                sagas += owed
                more = more or owed_left
            return sagas, more

        idle = bucket in self._idle and catching_up is None
        if idle and not await self._anything_new(bucket):
            return [], False
        result = await self._database.in_transaction(work)
        if result is not None and catching_up is not None:
            catching_up.committed()
        if result == ([], False):
            self._idle.add(bucket)
        else:
            self._idle.discard(bucket)
        await crashpoints.here("router.after_commit")
        if result is None and await self._database.one("cursor_exists", bucket=bucket) is None:
            await self._database.write("create_cursor", bucket=bucket)
        return result

    async def _anything_new(self, bucket: int) -> bool:
        row = await self._database.one("anything_new", bucket=bucket)
        return row is None or bool(row[0])

    def _is_time_to_probe(self, bucket: int) -> bool:
        now = time.monotonic()
        if now < self._probe_due.get(bucket, 0.0):
            return False
        self._probe_due[bucket] = now + PROBE_SECONDS
        return True

    async def _late(
        self, session: MysqlSession, bucket: int, after_id: int, everything: bool, count: int
    ) -> tuple[list[tuple[int, datetime]], bool]:
        """Events of this bucket that appeared in gaps, which are narrowed by them, with their
        times."""
        most = GAPS_MAX if everything else GAPS_PER_STEP
        gaps = [Gap(*row) for row in await session.all("read_gaps", bucket=bucket, count=most)]
        ahead = [gap.first for gap in gaps if gap.first > after_id]
        if ahead:  # the cursor was wound back: what lies before it is read anew
            await session.write("drop_gaps", bucket=bucket, first_ids=ahead)
            gaps = [gap for gap in gaps if gap.first <= after_id]
        if not gaps:
            return [], False
        rows = await session.all(
            "late_events", ranges=Ranges((gap.first, gap.last) for gap in gaps), count=count
        )
        if rows:
            await self._narrow(session, bucket, gaps, [row[0] for row in rows])
        return [(row[0], row[2]) for row in rows if row[1] == bucket], len(rows) == count

    async def _narrow(
        self, session: MysqlSession, bucket: int, gaps: Iterable[Gap], filled: Sequence[int]
    ) -> None:
        now = await _now(session)
        touched: list[Gap] = []
        left: list[Range] = []
        for gap in gaps:
            inside = filled[bisect_left(filled, gap.first) : bisect_right(filled, gap.last)]
            if inside:
                touched.append(gap)
                left += without((gap.first, gap.last), inside)
        await session.write("drop_gaps", bucket=bucket, first_ids=[gap.first for gap in touched])
        await _add(session, bucket, left, now)

    async def _remember(
        self, session: MysqlSession, bucket: int, after_id: int, new: Sequence[int]
    ) -> None:
        """The cursor comes last; what was not there below it is kept."""
        present: Iterable[int] = new
        if self._database.buckets > 1:
            rows = await session.all(
                "events_elsewhere", bucket=bucket, after_id=after_id, until_id=new[-1]
            )
            present = sorted([*new, *(row[0] for row in rows)])
        found = holes(after_id, present)
        if found:
            await _add(session, bucket, found, await _now(session))
        await session.write("save_cursor", bucket=bucket, read_until_id=new[-1])

    async def insert(self, session: MysqlSession, bucket: int, ids: list[int]) -> list[RoutedSaga]:
        return (await self._insert(session, bucket, ids))[0]

    async def _insert(
        self, session: MysqlSession, bucket: int, ids: list[int]
    ) -> tuple[list[RoutedSaga], datetime | None]:
        """The sagas, and when an interval had last ended by the time that they were matched."""
        if not ids:
            return [], None
        await crashpoints.here("router.before_insert")
        rows = await session.all("matches", bucket=bucket, event_ids=ids)
        last_ended = next(row[3] for row in rows if not row[0])
        sure = [(row[0], row[1]) for row in rows if row[2]]
        earlier = [(row[0], row[1], *row[3:]) for row in rows if row[0] and not row[2]]
        pairs = sorted([*sure, *await _covered(session, earlier)])
        sagas: list[RoutedSaga] = []
        if pairs:
            written = await session.write(
                "route", given=Rows((event_id, number, bucket) for event_id, number in pairs)
            )
            sagas = [
                RoutedSaga(SagaId(saga_id), EventId(event_id), SubscriptionId(number))
                for saga_id, (event_id, number) in zip(written.ids(), pairs, strict=True)
            ]
        await crashpoints.here("router.after_insert")
        return sagas, last_ended

    async def hold(
        self, session: MysqlSession, bucket: int, ids: list[int], oldest: datetime
    ) -> int:
        changed: dict[tuple[str, str], list[Row]] = {}
        for row in await session.all("changed_since", oldest=oldest):
            changed.setdefault((row[3], row[4]), []).append(row)
        if not changed:
            return 0
        sure: list[Range] = []
        earlier: list[Row] = []
        for event_id, *kind, created in await session.all("kinds", bucket=bucket, event_ids=ids):
            for number, since, until, tenant, event_type, first in changed.get((*kind,), ()):
                if first is None or first > created or (until is not None and until <= created):
                    continue
                if since <= created:
                    sure.append((event_id, number))
                else:
                    earlier.append((event_id, number, created, tenant, event_type, first))
        owed = {*sure, *await _covered(session, earlier)}
        if not owed:
            return 0
        given = Rows(sorted(owed))
        owed -= {(a, b) for a, b in await session.all("routed", bucket=bucket, given=given)}
        held = Rows((b, a) for a, b in sorted(owed))
        if owed:
            owed -= {(a, b) for a, b in await session.all("noted", bucket=bucket, held=held)}
        if owed:
            await session.write("hold", given=Rows((bucket, b, a) for a, b in sorted(owed)))
        return len(owed)

    async def unrouted(
        self, session: MysqlSession, bucket: int, intervals: Sequence[Interval], count: int
    ) -> Sequence[Row]:
        asked = [{"bucket": bucket, "count": count, **interval._asdict()} for interval in intervals]
        found: list[Row] = []
        for first in range(0, len(asked), ASKED_AT_ONCE):
            found += await session.union("unrouted_since", asked[first : first + ASKED_AT_ONCE])
            if len(found) >= count:
                break
        return found[:count]

    async def let_go(
        self, session: MysqlSession, bucket: int, held: Sequence[tuple[int, int]]
    ) -> None:
        given = Rows((number, event_id) for event_id, number in held)
        done = await session.all("settled", bucket=bucket, held=given)
        if done:
            await session.write("let_go", bucket=bucket, held=Rows(done))

    async def _bury(self, session: MysqlSession, bucket: int) -> None:
        """Forget gaps that nothing will fill."""
        limit = STATEMENTS * self._database.statement_seconds
        rows = await session.all("read_gaps", bucket=bucket, count=GAPS_MAX)
        old = [gap for row in rows if (gap := Gap(*row)).age_seconds > limit]
        dead = [gap for gap in old[-PROBES_PER_STEP:] if await _is_empty(session, gap)]
        if dead:
            await session.write("drop_gaps", bucket=bucket, first_ids=[gap.first for gap in dead])


async def _covered(session: MysqlSession, asked: Sequence[Row]) -> list[Range]:
    """Of (event, subscription, created_at, tenant, event_type, eligible_first) those whose event
    lies in an interval that has ended."""
    names = ("event_id", "subscription_id", "created_at", "tenant", "event_type", "eligible_first")
    found: list[Range] = []
    for start in range(0, len(asked), ASKED_AT_ONCE):
        some = [dict(zip(names, row, strict=True)) for row in asked[start : start + ASKED_AT_ONCE]]
        found += [(row[0], row[1]) for row in await session.union("covering", some)]
    return found


async def _is_empty(session: MysqlSession, gap: Gap) -> bool:
    name = "probe_mariadb" if session.mariadb else "probe_mysql"
    try:
        return not await session.all(name, first_id=gap.first, last_id=gap.last)
    except LockHeld:
        return False


async def _now(session: MysqlSession) -> datetime:
    row = await session.one("now")
    assert row is not None
    now: datetime = row[0]
    return now


async def _add(
    session: MysqlSession, bucket: int, ranges: Sequence[Range], noticed_at: datetime
) -> None:
    if ranges:
        await session.write(
            "add_gaps", given=Rows((bucket, first, last, noticed_at) for first, last in ranges)
        )
