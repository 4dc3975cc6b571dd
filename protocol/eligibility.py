"""Who is owed which event: one subscription, switched off and on while events come and are read.

An event and a change of the subscription carry the time of their statement and are seen when they
commit, which may be later. The router's transaction is several statements, and each sees what was
committed when it began. How it finds new events is reading.py's subject: here it just does.

A change commits within a minute of its statement (COMMIT_SECONDS of store/router.py); here the
router looks at what became eligible however long ago that was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.explore import Step

GETS_ALL = "an eligible subscription gets every event of each of its intervals"
OWED = "a saga's event was created while its subscription was eligible"


@dataclass(frozen=True, slots=True)
class Rules:
    """All of it holds in the product; each broken variant lacks one."""

    matched_by_time: bool = True  # route: eligible when the event was created
    earlier_intervals_count: bool = True  # route: subscription_eligibility
    held_while_off: bool = True  # hold
    end_is_asked_after_routing: bool = True  # save_cursor tells when an interval last ended
    intervals_are_caught_up: bool = True  # unrouted_since
    ended_intervals_are_caught_up: bool = True  # … also of who is off again
    kept_until_it_has_its_saga: bool = True  # let_go


class Subscription(NamedTuple):
    on: bool = False
    since: int | None = None  # eligible_from
    until: int | None = None  # eligible_until
    first: int | None = None  # eligible_first
    ended: tuple[tuple[int, int], ...] = ()  # subscription_eligibility

    def switched(self, at: int) -> Subscription:
        """As the trigger subscription_rules does it."""
        if not self.on:
            return self._replace(on=True, since=at, until=None, first=self.first or at)
        assert self.since is not None
        kept = ((self.since, at),) if self.since < at else ()
        return self._replace(on=False, until=at, ended=(*self.ended, *kept))

    def covers(self, created: int, *, earlier: bool = True) -> bool:
        """Whether one of its intervals has this moment; `until` is the first outside."""
        last = self.since is not None and self.since <= created
        if last and (self.until is None or created < self.until):
            return True
        return earlier and any(first <= created < until for first, until in self.ended)

    def intervals(self) -> Iterator[tuple[int, int | None]]:
        yield from self.ended
        if self.on and self.since is not None:
            yield self.since, None


class Page(NamedTuple):
    """A router's transaction: what it has read, and would commit."""

    next: str
    events: frozenset[int]  # their times
    sagas: frozenset[int]
    held: frozenset[int]
    last_end: int | None = None
    owed: frozenset[int] = frozenset()  # what it found that it has left out before
    looked_at: frozenset[int] = frozenset()  # intervals, by their beginning


class State(NamedTuple):
    now: int = 1
    subscription: Subscription = Subscription()
    change: Subscription | None = None  # not committed
    changes: int = 0  # that may still come
    uncommitted: frozenset[int] = frozenset()  # events, by the time of their creation
    unread: frozenset[int] = frozenset()
    read: frozenset[int] = frozenset()
    sagas: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    caught_up: frozenset[int] = frozenset()  # intervals that the router remembers to have looked at
    page: Page | None = None
    early: frozenset[int] = frozenset()  # routed while a change had not committed


@dataclass(slots=True)
class Eligibility:
    """A model: see explore.Model."""

    events: int = 2
    changes: int = 4
    rules: Rules = field(default_factory=Rules)
    goal: str = GETS_ALL

    def start(self) -> State:
        return State(changes=self.changes)

    def broken(self, state: State) -> str | None:
        owed = {time for time in state.sagas if state.subscription.covers(time)}
        return OWED if state.sagas - owed - state.early else None

    def settled(self, state: State) -> bool:
        seen, subscription = state.read | state.unread, state.subscription
        if state.change is not None or state.uncommitted:
            return False
        return not subscription.on or {e for e in seen if subscription.covers(e)} <= state.sagas

    def steps(self, state: State) -> Iterator[Step[State]]:
        yield from self._others(state)
        if state.page is None:
            yield from self._begin(state)
        else:
            dead = state._replace(page=None, caught_up=frozenset())
            yield Step("the router dies", dead, None, True)
            yield from self._go_on(state, state.page)

    def _others(self, state: State) -> Iterator[Step[State]]:
        """Applications that insert events, and people who switch the subscription off and on."""
        at = state.now
        events = state.uncommitted | state.unread | state.read
        if len(events) < self.events:
            after = state._replace(now=at + 1, uncommitted=state.uncommitted | {at})
            yield Step(f"an event is inserted at {at}", after, None, True)
        for event in state.uncommitted:
            uncommitted, unread = state.uncommitted - {event}, state.unread | {event}
            after = state._replace(uncommitted=uncommitted, unread=unread)
            yield Step(f"the event of {event} commits", after)
        if state.change is not None:
            after = state._replace(subscription=state.change, change=None)
            yield Step("the change of the subscription commits", after)
        elif state.changes:
            change = state.subscription.switched(at)
            after = state._replace(now=at + 1, change=change, changes=state.changes - 1)
            yield Step(f"it is switched {'on' if change.on else 'off'} at {at}", after, None, True)

    # ── The router's transaction ──────────────────────────────────────────────────────────────

    def _begin(self, state: State) -> Iterator[Step[State]]:
        if state.unread:
            page = Page("route", state.unread, state.sagas, state.held)
            if not self.rules.end_is_asked_after_routing:
                page = page._replace(last_end=_last_end(state.subscription))
            label = f"the router reads {_list(state.unread)}"
            yield Step(label, state._replace(page=page))
        if (state.subscription.on and state.held) or any(self._news(state)):
            page = Page("find", frozenset(), state.sagas, state.held)
            yield Step("the router looks for what it owes", state._replace(page=page))

    def _news(self, state: State) -> Iterator[tuple[int, int | None]]:
        """Intervals that the router has not looked at yet."""
        for since, until in state.subscription.intervals():
            wanted = until is None or self.rules.ended_intervals_are_caught_up
            if since not in state.caught_up and wanted and self.rules.intervals_are_caught_up:
                yield since, until

    def _go_on(self, state: State, page: Page) -> Iterator[Step[State]]:
        match page.next:
            case "route":
                yield self._route(state, page, page.events, "save")
            case "save":
                last_end = page.last_end
                if self.rules.end_is_asked_after_routing:
                    last_end = _last_end(state.subscription)
                ended = last_end is not None and last_end > min(page.events)
                hold = ended and self.rules.held_while_off
                page = page._replace(next="hold" if hold else "commit", last_end=last_end)
                yield Step("it saves its cursor", state._replace(page=page))
            case "hold":
                owed = {event for event in page.events if state.subscription.covers(event)}
                page = page._replace(next="commit", held=page.held | (owed - page.sagas))
                yield Step(f"it holds {_list(page.held)}", state._replace(page=page))
            case "find":
                yield self._find(state, page)
            case "route owed":
                yield self._route(state, page, page.owed | page.held, "hold owed")
            case "hold owed":
                owed = {event for event in page.owed if state.subscription.covers(event)}
                page = page._replace(next="let go", held=page.held | (owed - page.sagas))
                yield Step(f"it holds {_list(page.held)}", state._replace(page=page))
            case "let go":
                done = (
                    page.held & page.sagas if self.rules.kept_until_it_has_its_saga else page.held
                )
                page = page._replace(next="commit", held=page.held - done)
                yield Step(f"it lets go of {_list(done)}", state._replace(page=page))
            case "commit":
                yield self._commit(state, page)

    def _route(self, state: State, page: Page, events: frozenset[int], then: str) -> Step[State]:
        matched = frozenset(event for event in events if self._matches(state.subscription, event))
        early = state.early | matched if state.change is not None else state.early
        page = page._replace(next=then, sagas=page.sagas | matched)
        label = f"it makes sagas for {_list(matched)}"
        return Step(label, state._replace(page=page, early=early))

    def _matches(self, subscription: Subscription, created: int) -> bool:
        if not subscription.on or not self.rules.matched_by_time:
            return subscription.on
        return subscription.covers(created, earlier=self.rules.earlier_intervals_count)

    def _find(self, state: State, page: Page) -> Step[State]:
        """recently_eligible and unrouted_since."""
        seen = (state.unread | state.read) - page.sagas
        news = list(self._news(state))
        owed = {e for e in seen for since, until in news if since <= e and (not until or e < until)}
        looked_at = frozenset(since for since, _ in news)
        page = page._replace(next="route owed", owed=frozenset(owed), looked_at=looked_at)
        return Step(f"it finds {_list(page.owed)} without sagas", state._replace(page=page))

    def _commit(self, state: State, page: Page) -> Step[State]:
        after = state._replace(
            unread=state.unread - page.events,
            read=state.read | page.events,
            sagas=page.sagas,
            held=page.held,
            caught_up=state.caught_up | page.looked_at,
            page=None,
        )
        return Step("the router commits", after)


def _last_end(subscription: Subscription) -> int | None:
    return max((until for _, until in subscription.ended), default=None)


def _list(events: frozenset[int]) -> str:
    return f"the events of {', '.join(map(str, sorted(events)))}" if events else "nothing"
