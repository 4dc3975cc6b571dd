"""How the router finds every event, whatever commits in whichever order. Both engines' ways.

A writer takes ids and, on PostgreSQL, an xid, in either order; its rows become visible when it
commits, or never. The router reads a page, inserts its sagas and saves its cursor in one commit; it
may die before that. The cursors are the product's own: advance() of PostgreSQL, holes() and
without() of MySQL.

Time has no length. What the product waits for (MySQL: twice as long as a statement may take, before
it looks whether a gap is empty for good) is a condition here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.explore import Step
from surehook.store.mysql.router import holes, without
from surehook.store.postgres.router import Cursor, Snapshot, advance

Ids = tuple[int, ...]


class Writer(NamedTuple):
    """A transaction that has begun and not ended."""

    size: int  # how many events
    xid: int = 0  # 0 = none yet
    ids: Ids = ()
    written: bool = False


class Event(NamedTuple):
    xid: int
    id: int


class Written(NamedTuple):
    """What the writers have done, and what they will."""

    to_come: Ids  # sizes of transactions that have not begun
    open: tuple[Writer, ...] = ()
    events: frozenset[Event] = frozenset()  # committed
    next_xid: int = 1
    next_id: int = 1

    def steps(self) -> Iterator[tuple[str, Written, bool]]:
        """(label, what is then written, whether nothing may rely on it)"""
        if self.to_come:
            begun = self._replace(
                to_come=self.to_come[1:], open=(*self.open, Writer(self.to_come[0]))
            )
            yield "a writer begins", begun, True
        for number, writer in enumerate(self.open):
            others = (*self.open[:number], *self.open[number + 1 :])
            if not writer.xid:
                mine = writer._replace(xid=self.next_xid)
                after = self._replace(next_xid=self.next_xid + 1)
                yield f"a writer gets xid {mine.xid}", after._now(others, mine), False
            if not writer.ids:
                last = self.next_id + writer.size
                mine = writer._replace(ids=tuple(range(self.next_id, last)))
                after = self._replace(next_id=last)
                yield f"a writer gets the ids of {_list(mine.ids)}", after._now(others, mine), False
            if writer.xid and writer.ids and not writer.written:
                mine = writer._replace(written=True)
                yield f"a writer inserts {_list(mine.ids)}", self._now(others, mine), False
            if writer.written:
                rows = {Event(writer.xid, one) for one in writer.ids}
                after = self._replace(open=others, events=self.events | rows)
                yield f"the writer of {_list(writer.ids)} commits", after, False
            yield "a writer rolls back", self._replace(open=others), True

    def _now(self, others: tuple[Writer, ...], mine: Writer) -> Written:
        return self._replace(open=tuple(sorted((*others, mine))))

    def snapshot(self) -> Snapshot:
        in_flight = tuple(sorted(writer.xid for writer in self.open if writer.xid))
        return min((*in_flight, self.next_xid)), self.next_xid, in_flight


def _list(ids: Ids) -> str:
    return "events " + ", ".join(map(str, ids)) if len(ids) > 1 else f"event {ids[0]}"


FOUND = "every event that is committed is routed"


# ── PostgreSQL ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SnapshotRules:
    """All of it holds in the product; each broken variant lacks one."""

    cursor_is_snapshot: bool = True  # … and not the highest id that was read
    in_flight_is_kept: bool = True  # the saved snapshot has what was under way
    full_page_goes_on: bool = True  # after a full page the cursor stands at its last row
    saved_with_the_sagas: bool = True  # one commit
    rescan_saves_snapshot_first: bool = True  # begin_rescan, not at its end


class Rescan(NamedTuple):
    after: int
    until: int


class Page(NamedTuple):
    """What a router has read and not committed."""

    ids: Ids
    cursor: Cursor
    rescan: Rescan | None


class SnapshotState(NamedTuple):
    written: Written
    routed: frozenset[int] = frozenset()
    cursor: Cursor = Cursor((1, 1, ()))
    rescan: Rescan | None = None  # events that are walked by id
    foreign_id_max: int = 0
    page: Page | None = None  # the cursor's row is locked meanwhile
    restores: int = 0  # how often a dump may still be restored
    other_server: bool = False


@dataclass(slots=True)
class BySnapshot:
    """A model: see explore.Model."""

    sizes: Ids = (2, 1, 1)
    page: int = 2
    restores: int = 0
    rules: SnapshotRules = field(default_factory=SnapshotRules)
    goal: str = FOUND

    def start(self) -> SnapshotState:
        return SnapshotState(Written(self.sizes), restores=self.restores)

    def broken(self, state: SnapshotState) -> str | None:
        return None

    def settled(self, state: SnapshotState) -> bool:
        return not state.other_server and {e.id for e in state.written.events} <= state.routed

    def steps(self, state: SnapshotState) -> Iterator[Step[SnapshotState]]:
        for label, written, fault in state.written.steps():
            yield Step(label, state._replace(written=written), None, fault)
        if state.restores:
            yield Step("a dump is restored elsewhere", _restored(state), None, True)
        if state.page is None:
            yield from self._read(state)
        else:
            yield Step("the router dies", state._replace(page=None), None, True)
            done = state._replace(routed=state.routed | set(state.page.ids), page=None)
            if self.rules.saved_with_the_sagas:
                done = done._replace(cursor=state.page.cursor, rescan=state.page.rescan)
            yield Step(f"the router commits {_list(state.page.ids)}", done)

    def _read(self, state: SnapshotState) -> Iterator[Step[SnapshotState]]:
        if state.other_server:
            yield Step("the router begins to walk all events", self._rescanning(state))
            return
        page = self._walked(state, state.rescan) if state.rescan else self._new(state)
        if page is None:
            return
        after = state._replace(page=page)
        if not self.rules.saved_with_the_sagas:
            after = after._replace(cursor=page.cursor, rescan=page.rescan)
        yield Step(f"the router reads {_list(page.ids)}", after)

    def _new(self, state: SnapshotState) -> Page | None:
        """new_events, and the cursor that is saved when they are routed."""
        if not self.rules.cursor_is_snapshot:
            return self._new_by_id(state)
        old, now = state.cursor, state.written.snapshot()
        _, xmax, in_flight = old.snapshot
        seen_in_part = Event(old.partial_xid, old.partial_id)
        rows = sorted(
            row
            for row in state.written.events
            if (row.xid in in_flight and (row.xid != seen_in_part.xid or row > seen_in_part))
            or (
                row > max(seen_in_part, Event(xmax, 0))
                and row.xid < now[1]
                and row.id > state.foreign_id_max
            )
        )[: self.page]
        if not rows:
            return None
        full = len(rows) == self.page and self.rules.full_page_goes_on
        if not self.rules.in_flight_is_kept:
            now = (now[1], now[1], ())
        after = advance(old, now, (rows[-1].xid, rows[-1].id) if full else None)
        return Page(tuple(row.id for row in rows), after, None)

    def _new_by_id(self, state: SnapshotState) -> Page | None:
        after = state.cursor.partial_id
        ids = sorted(row.id for row in state.written.events if row.id > after)[: self.page]
        return Page(tuple(ids), Cursor(state.cursor.snapshot, 0, ids[-1]), None) if ids else None

    # ── After a restore ───────────────────────────────────────────────────────────────────────

    def _rescanning(self, state: SnapshotState) -> SnapshotState:
        now = state.written.snapshot()
        ahead = [row.id for row in state.written.events if row.xid >= now[1]]
        until = max((row.id for row in state.written.events), default=0)
        first = self.rules.rescan_saves_snapshot_first
        return state._replace(
            other_server=False,
            cursor=Cursor(now) if first else state.cursor,
            rescan=Rescan(0, until) if until else None,
            foreign_id_max=max(ahead, default=0),
        )

    def _walked(self, state: SnapshotState, rescan: Rescan) -> Page:
        every = sorted(row.id for row in state.written.events)
        ids = [one for one in every if rescan.after < one <= rescan.until][: self.page]
        done = ids[-1] if len(ids) == self.page else rescan.until
        left = Rescan(done, rescan.until) if done < rescan.until else None
        cursor = state.cursor
        if left is None and not self.rules.rescan_saves_snapshot_first:
            cursor = Cursor(state.written.snapshot())
        return Page(tuple(ids), cursor, left)


def _restored(state: SnapshotState) -> SnapshotState:
    """What was open is lost, as its writers learn; this server has counted fewer transactions."""
    written = state.written._replace(open=(), next_xid=1)
    return state._replace(
        written=written, page=None, restores=state.restores - 1, other_server=True
    )


# ── MySQL ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class GapRules:
    """All of it holds in the product; each broken variant lacks one."""

    gaps_are_kept: bool = True
    gaps_are_saved_with_the_sagas: bool = True  # one commit
    open_rows_keep_a_gap: bool = True  # the probe meets their locks
    statements_keep_a_gap: bool = True  # a gap is probed only after any statement's time
    narrowed_to_what_is_missing: bool = True  # without(): the rest of a gap stays


Range = tuple[int, int]


class GapPage(NamedTuple):
    ids: Ids
    read_until: int
    gaps: tuple[Range, ...]


class GapState(NamedTuple):
    written: Written
    routed: frozenset[int] = frozenset()
    read_until: int = 0
    gaps: tuple[Range, ...] = ()
    page: GapPage | None = None


@dataclass(slots=True)
class ByGaps:
    """A model: see explore.Model."""

    sizes: Ids = (2, 1, 1)
    page: int = 2
    rules: GapRules = field(default_factory=GapRules)
    goal: str = FOUND

    def start(self) -> GapState:
        return GapState(Written(self.sizes))

    def broken(self, state: GapState) -> str | None:
        return None

    def settled(self, state: GapState) -> bool:
        return {event.id for event in state.written.events} <= state.routed

    def steps(self, state: GapState) -> Iterator[Step[GapState]]:
        for label, written, fault in state.written.steps():
            yield Step(label, state._replace(written=written), None, fault)
        if state.page is not None:
            yield Step("the router dies", state._replace(page=None), None, True)
            done = state._replace(routed=state.routed | set(state.page.ids), page=None)
            if self.rules.gaps_are_saved_with_the_sagas:
                done = _saved(done, state.page)
            yield Step(f"the router commits {_list(state.page.ids)}", done)
            return
        for gap in state.gaps:
            if not self._may_be_filled(state, gap):
                left = tuple(one for one in state.gaps if one != gap)
                label = f"the router gives up on {gap[0]} to {gap[1]}"
                yield Step(label, state._replace(gaps=left), None, True)
        page = self._read(state)
        if page.ids:
            after = state._replace(page=page)
            if not self.rules.gaps_are_saved_with_the_sagas:
                after = _saved(after, page)
            yield Step(f"the router reads {_list(page.ids)}", after)

    def _read(self, state: GapState) -> GapPage:
        """What has appeared in gaps, then what lies beyond the highest id that was read."""
        ids = sorted(event.id for event in state.written.events)
        late = [one for one in ids if any(first <= one <= last for first, last in state.gaps)]
        late = late[: self.page]
        gaps = [left for gap in state.gaps for left in self._narrowed(gap, late)]
        new = [one for one in ids if one > state.read_until][: self.page - len(late)]
        if self.rules.gaps_are_kept:
            gaps += holes(state.read_until, new)
        return GapPage((*late, *new), max(new, default=state.read_until), tuple(gaps))

    def _narrowed(self, gap: Range, filled: list[int]) -> list[Range]:
        inside = [one for one in filled if gap[0] <= one <= gap[1]]
        if inside and not self.rules.narrowed_to_what_is_missing:
            return []
        return without(gap, inside)

    def _may_be_filled(self, state: GapState, gap: Range) -> bool:
        inside = [event for event in state.written.events if gap[0] <= event.id <= gap[1]]
        if inside:
            return True
        for writer in state.written.open:
            waited_for = (
                self.rules.open_rows_keep_a_gap
                if writer.written
                else self.rules.statements_keep_a_gap
            )
            if waited_for and any(gap[0] <= one <= gap[1] for one in writer.ids):
                return True
        return False


def _saved(state: GapState, page: GapPage) -> GapState:
    return state._replace(read_until=page.read_until, gaps=page.gaps)
