"""Eligibility: exactly the events created while a subscription was active and verified, whenever
the router comes by; nothing vanishes, and `check` proves it from the intervals."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from support import OpenStore, dialects, servers
from support.clock import Clock
from support.pipeline import broken_invariants
from support.rows import a_subscription, an_event
from support.servers import Server
from support.waiting import until
from surehook.errors import DatabaseUnreachable
from surehook.pipeline.router import Router
from surehook.process.check import check
from surehook.store import router as common
from surehook.store import store_of
from surehook.store.hints import Hints
from surehook.store.observer import ObserverStore
from surehook.store.router import RouterStore

HELD = "SELECT count(*) FROM router_held"


async def route_all(router: Router) -> None:
    for _ in range(1000):
        if await router.step() > 0:
            return
    raise AssertionError("the router never came to rest")


@pytest.fixture
async def router(
    open_store: OpenStore, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Router]:
    """One that looks at every step for what a page could not know."""
    monkeypatch.setattr(common, "CATCH_UP_SECONDS", 0.0)
    monkeypatch.setattr("surehook.pipeline.router.POLL_SECONDS", 0.001)
    store = store_of(RouterStore, await open_store("router"))
    router = Router(store, Hints(), range(buckets), batch=50)
    await route_all(router)  # the first look, at the empty table
    await router.step()
    yield router


async def pairs(owner: Any) -> set[tuple[int, int]]:
    rows = await owner.fetch("SELECT event_id, subscription_id FROM webhook_delivery_sagas")
    found = [tuple(row) for row in rows]
    assert len(found) == len(set(found))
    return set(found)


async def switch(owner: Any, **columns: object) -> None:
    changes = ", ".join(f"{name} = ${number}" for number, name in enumerate(columns, 1))
    await owner.execute(f"UPDATE subscriptions SET {changes}", *columns.values())


# ── Whenever the router comes by ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("column", ["active", "verified"])
@pytest.mark.parametrize("buckets", [1, 4])
async def test_an_event_survives_that_its_subscription_is_switched_off_and_on_before_the_router(
    owner: Any, router: Router, open_store: OpenStore, column: str, buckets: int
) -> None:
    subscription = await a_subscription(owner)
    event = await an_event(owner, bucket=buckets - 1)
    await switch(owner, **{column: False})
    meanwhile = await an_event(owner)
    await switch(owner, **{column: True})
    await route_all(router)
    assert await pairs(owner) == {(event, subscription)}
    assert meanwhile not in {event for event, _ in await pairs(owner)}
    assert await broken_invariants(open_store) == {}


@pytest.mark.parametrize("buckets", [1, 4])
async def test_an_event_that_is_read_while_its_subscription_is_off_is_held_until_it_is_on(
    owner: Any, router: Router, open_store: OpenStore, buckets: int
) -> None:
    subscription = await a_subscription(owner)
    events = [await an_event(owner, bucket=number % buckets) for number in range(120)]
    await switch(owner, active=False)
    await route_all(router)
    assert await pairs(owner) == set()
    assert await owner.fetchval(HELD) == 120
    assert await broken_invariants(open_store) == {}
    await an_event(owner)  # this one it misses
    await route_all(router)
    await switch(owner, active=True)
    await route_all(router)
    assert await pairs(owner) == {(event, subscription) for event in events}
    assert await owner.fetchval(HELD) == 0
    assert await broken_invariants(open_store) == {}


async def test_what_is_held_is_found_by_a_router_that_saw_no_change(
    owner: Any, router: Router, open_store: OpenStore, clock: Clock
) -> None:
    """Another process had the bucket, or the change was an hour in coming."""
    subscription = await a_subscription(owner)
    event = await an_event(owner)
    await switch(owner, active=False)
    await route_all(router)
    await switch(owner, active=True)
    await clock.shift(3600)
    later = Router(store_of(RouterStore, await open_store("router")), Hints(), [0])
    await route_all(later)
    assert await pairs(owner) == {(event, subscription)}


async def test_an_event_of_a_long_open_transaction_is_judged_by_when_it_was_created(
    owner: Any, router: Router, open_store: OpenStore, database_url: str
) -> None:
    subscription = await a_subscription(owner)
    async with servers.connected(database_url) as writer:
        transaction = writer.transaction()
        await transaction.start()
        early = await an_event(writer)
        await switch(owner, active=False)
        off = await an_event(writer)
        await switch(owner, active=True)
        late = await an_event(owner)
        await route_all(router)
        assert await pairs(owner) == {(late, subscription)}
        await transaction.commit()
    await route_all(router)
    assert await pairs(owner) == {(early, subscription), (late, subscription)}
    assert off not in {event for event, _ in await pairs(owner)}
    assert await broken_invariants(open_store) == {}


async def test_an_event_routed_before_the_change_that_wants_it_was_committed_is_not_lost(
    owner: Any, router: Router, open_store: OpenStore, database_url: str
) -> None:
    """The change has its statement's time, and is seen when it commits."""
    subscription = await a_subscription(owner, active=False)
    async with servers.connected(database_url) as administrator:
        transaction = administrator.transaction()
        await transaction.start()
        await administrator.execute("UPDATE subscriptions SET active = true")
        event = await an_event(owner)
        await route_all(router)
        assert await pairs(owner) == set()
        await transaction.commit()
    await route_all(router)
    assert await pairs(owner) == {(event, subscription)}
    assert await broken_invariants(open_store) == {}


async def test_what_was_made_good_is_looked_at_again_in_another_session(
    owner: Any, router: Router, open_store: OpenStore, database_url: str
) -> None:
    """It may be one of a standby that was behind: what this process wrote last is not there."""
    subscription = await a_subscription(owner, active=False)
    async with servers.connected(database_url) as administrator:
        transaction = administrator.transaction()
        await transaction.start()
        await administrator.execute("UPDATE subscriptions SET active = true")
        event = await an_event(owner)
        await route_all(router)
        await transaction.commit()
    await route_all(router)
    assert await pairs(owner) == {(event, subscription)}
    await owner.execute("DELETE FROM webhook_delivery_sagas")
    await route_all(router)
    assert await pairs(owner) == set()  # in the same session nothing can be missing
    await dialects.end_sessions(owner, "router")
    await until(lambda: routed_again(router))
    assert await pairs(owner) == {(event, subscription)}


async def routed_again(router: Router) -> bool:
    """Its connections may fail once each."""
    try:
        await route_all(router)
    except DatabaseUnreachable:
        return False
    return True


@pytest.mark.parametrize("looked_at", [False, True], ids=["unseen", "seen"])
@pytest.mark.parametrize("buckets", [1, 4])
async def test_an_event_routed_before_that_change_was_committed_survives_that_it_is_undone(
    owner: Any,
    router: Router,
    open_store: OpenStore,
    database_url: str,
    buckets: int,
    looked_at: bool,
) -> None:
    """On and off again before the router has looked, so that it never sees that interval begin."""
    subscription = await a_subscription(owner, active=False)
    async with servers.connected(database_url) as administrator:
        transaction = administrator.transaction()
        await transaction.start()
        await administrator.execute("UPDATE subscriptions SET active = true")
        events = [await an_event(owner, bucket=number % buckets) for number in range(120)]
        await route_all(router)
        await transaction.commit()
    await switch(owner, active=False)
    missed = await an_event(owner)
    if looked_at:
        await route_all(router)
        assert await owner.fetchval(HELD) == 120
    await switch(owner, active=True)
    await route_all(router)
    assert await pairs(owner) == {(event, subscription) for event in events}
    assert missed not in {event for event, _ in await pairs(owner)}
    assert await owner.fetchval(HELD) == 0
    assert await broken_invariants(open_store) == {}


async def test_an_event_survives_that_its_subscription_is_switched_off_while_the_router_looks(
    owner: Any,
    router: Router,
    open_store: OpenStore,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is found as owed, and when its saga is to be made its subscription is off."""
    subscription = await a_subscription(owner, active=False)
    store = type(router._store)
    unrouted = store.unrouted

    async def switched_off_meanwhile(*given: Any) -> Any:
        found = await unrouted(*given)
        await switch(owner, active=False)
        return found

    async with servers.connected(database_url) as administrator:
        transaction = administrator.transaction()
        await transaction.start()
        await administrator.execute("UPDATE subscriptions SET active = true")
        event = await an_event(owner)
        await route_all(router)
        await transaction.commit()
    with monkeypatch.context() as patch:
        patch.setattr(store, "unrouted", switched_off_meanwhile)
        await route_all(router)
    assert await pairs(owner) == set()
    await switch(owner, active=True)
    await route_all(router)
    assert await pairs(owner) == {(event, subscription)}
    assert await broken_invariants(open_store) == {}


async def test_an_event_routed_before_the_end_of_its_subscription_was_committed_is_not_a_finding(
    owner: Any, router: Router, open_store: OpenStore, database_url: str
) -> None:
    subscription = await a_subscription(owner)
    async with servers.connected(database_url) as administrator:
        transaction = administrator.transaction()
        await transaction.start()
        await administrator.execute("UPDATE subscriptions SET active = false")
        event = await an_event(owner)
        await route_all(router)
        await transaction.commit()
    assert await pairs(owner) == {(event, subscription)}
    assert await broken_invariants(open_store, margin=60) == {}
    assert set(await broken_invariants(open_store)) == {"unowed_deliveries"}


# ── Other types, other tenants ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("column", ["event_type", "tenant"])
async def test_another_type_or_tenant_ends_what_is_owed_and_begins_anew(
    owner: Any, router: Router, open_store: OpenStore, column: str
) -> None:
    subscription = await a_subscription(owner, event_type="a", tenant="a")

    async def event(value: str) -> int:
        typed = column == "event_type"
        return await an_event(
            owner, event_type=value if typed else "a", tenant="a" if typed else value
        )

    routed = await event("a")
    await route_all(router)
    await event("a")  # not routed in time: nobody wants it any more
    await switch(owner, active=False)
    await event("a")
    await route_all(router)
    assert await owner.fetchval(HELD) == 1
    await switch(owner, **{column: "b"})
    await switch(owner, active=True)
    second = await event("b")
    await event("a")
    await route_all(router)
    assert await pairs(owner) == {(routed, subscription), (second, subscription)}
    await switch(owner, **{column: "a"})
    again = await event("a")
    await route_all(router)
    assert await pairs(owner) == {(one, subscription) for one in (routed, second, again)}
    assert await owner.fetchval(HELD) == 0
    assert await broken_invariants(open_store) == {}


# ── The clock ─────────────────────────────────────────────────────────────────────────────────


async def test_a_clock_set_back_loses_no_event_of_an_eligible_subscription(
    owner: Any, router: Router, open_store: OpenStore, clock: Clock
) -> None:
    subscription = await a_subscription(owner)
    await clock.shift(7200)
    events = [await an_event(owner)]
    await switch(owner, active=False)
    await clock.shift(-3600)
    await switch(owner, active=True)
    events.append(await an_event(owner))
    await route_all(router)
    await switch(owner, active=False)
    await switch(owner, active=True)
    events.append(await an_event(owner))
    await route_all(router)
    assert await pairs(owner) == {(event, subscription) for event in events}
    rows = await owner.fetch(
        "SELECT eligible_from, eligible_until FROM subscription_eligibility ORDER BY id"
    )
    assert all(row[0] < row[1] for row in rows)
    await clock.shift(3700)
    assert await broken_invariants(open_store) == {}


# ── What check says ───────────────────────────────────────────────────────────────────────────


async def test_check_says_who_is_owed_nothing(
    owner: Any, router: Router, open_store: OpenStore
) -> None:
    await a_subscription(owner)
    await an_event(owner)
    await a_subscription(owner, verified=False)
    await switch(owner, active=False)
    await route_all(router)
    store = store_of(ObserverStore, await open_store("observer"))
    notes = [finding.note for finding in await check(store, margin=0.0) if finding.note]
    assert notes == [
        "2 subscriptions are disabled or unverified now and owed nothing; "
        "1 deliveries are held until they are enabled again"
    ]


# ── Against a model ───────────────────────────────────────────────────────────────────────────


class Model:
    """What a subscription is owed, in a few lines: intervals by the order of what happened."""

    def __init__(self) -> None:
        self.moment = 0
        self.state = {"active": True, "verified": True, "event_type": "a", "tenant": ""}
        self.intervals: list[tuple[str, str, int, int | None]] = [("a", "", 0, None)]
        self.events: dict[int, tuple[str, str, int]] = {}
        self.had: set[int] = set()

    def on(self) -> bool:
        return bool(self.state["active"] and self.state["verified"])

    def change(self, column: str, value: object) -> None:
        self.moment += 1
        was = self.on()
        moved = column in ("event_type", "tenant") and self.state[column] != value
        self.state[column] = value
        if was and (moved or not self.on()):
            self.intervals[-1] = (*self.intervals[-1][:3], self.moment)
        if moved:
            self.intervals = []
        if self.on() and (moved or not was):
            self.intervals.append(
                (str(self.state["event_type"]), str(self.state["tenant"]), self.moment, None)
            )

    def publish(self, event: int, event_type: str, tenant: str) -> None:
        self.moment += 1
        self.events[event] = (event_type, tenant, self.moment)

    def route(self) -> set[int]:
        """Everything that it has or is owed now."""
        if self.on():
            self.had |= {
                event
                for event, (event_type, tenant, moment) in self.events.items()
                for kind, whose, since, until in self.intervals
                if (kind, whose) == (event_type, tenant)
                and since <= moment
                and (until is None or moment < until)
            }
        return self.had


@pytest.mark.parametrize("buckets", [1, 4])
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_in_whatever_order_the_sagas_are_those_of_the_intervals(
    owner: Any, router: Router, open_store: OpenStore, seed: int, buckets: int
) -> None:
    chance = random.Random(seed)
    model = Model()
    subscription = await a_subscription(owner, event_type="a")
    for _ in range(70):
        match chance.randrange(10):
            case 0 | 1 | 2 | 3:
                kind, whose = chance.choice("aab"), chance.choice(("", "", "t"))
                event = await an_event(
                    owner, event_type=kind, tenant=whose, bucket=chance.randrange(buckets)
                )
                model.publish(event, kind, whose)
            case 4 | 5:
                column = chance.choice(("active", "active", "verified"))
                value = not model.state[column]
                await switch(owner, **{column: value})
                model.change(column, value)
            case 6 if chance.random() < 0.4:
                column = chance.choice(("event_type", "tenant"))
                text = chance.choice({"event_type": ("a", "b"), "tenant": ("", "t")}[column])
                await switch(owner, **{column: text})
                model.change(column, text)
            case 7 | 8:
                await route_all(router)
                wanted = {(event, subscription) for event in model.route()}
                assert await pairs(owner) == wanted
                assert await broken_invariants(open_store) == {}
    for column in ("active", "verified"):
        if not model.state[column]:
            await switch(owner, **{column: True})
            model.change(column, True)
    await route_all(router)
    assert await pairs(owner) == {(event, subscription) for event in model.route()}
    assert await owner.fetchval(HELD) == 0
    assert await broken_invariants(open_store) == {}


# ── The history ───────────────────────────────────────────────────────────────────────────────


async def history(owner: Any) -> list[tuple[str, str, datetime, datetime]]:
    rows = await owner.fetch(
        "SELECT tenant, pattern, eligible_from, eligible_until FROM subscription_eligibility "
        "ORDER BY id"
    )
    return [tuple(row) for row in rows]


async def test_every_interval_that_ended_is_kept_with_its_type_and_tenant(
    owner: Any, server: Server
) -> None:
    number = await a_subscription(owner)

    async def row() -> Any:
        return await owner.fetchrow(
            "SELECT eligible_from, eligible_until FROM subscriptions WHERE id = $1", number
        )

    first = (await row())[0]
    await switch(owner, active=False)
    ended = (await row())[1]
    assert await history(owner) == [("", "order.paid", first, ended)]
    await switch(owner, verified=False)  # off already
    await switch(owner, active=True)
    assert tuple(await row()) == (first, ended)
    await switch(owner, verified=True)
    second, until = await row()
    assert second > ended and until is None
    await switch(owner, event_type="order.sent", tenant="t")
    third = (await row())[0]
    await owner.execute("DELETE FROM subscription_secrets")
    await owner.execute("DELETE FROM subscriptions")
    kept = await history(owner)
    assert kept[1] == ("", "order.paid", second, third)
    assert kept[2][:3] == ("t", "order.sent", third) and len(kept) == 3


async def test_nobody_sets_the_end_of_eligibility_by_hand(owner: Any, clock: Clock) -> None:
    await a_subscription(owner)
    now = await clock.now()
    await switch(owner, eligible_until=now, eligible_first=now)
    found = await owner.fetchrow(
        "SELECT eligible_until, eligible_first, eligible_from FROM subscriptions"
    )
    assert found[0] is None and found[1] == found[2] < now


async def test_what_went_by_while_a_subscription_was_off_is_counted_with_its_first_and_last(
    owner: Any, open_store: OpenStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer = store_of(ObserverStore, await open_store("observer"))
    subscription = await a_subscription(owner)
    await an_event(owner)
    assert await observer.missed(subscription) is None
    await clock.shift(10)
    await switch(owner, active=False)
    await clock.shift(20)
    first = await an_event(owner)
    await an_event(owner, tenant="another")
    await an_event(owner, event_type="another.type")
    missing = await observer.missed(subscription)
    assert missing is not None and (missing.count, missing.more) == (1, False)
    await clock.shift(30)
    last = await an_event(owner)
    await clock.shift(40)
    await switch(owner, active=True)
    await clock.shift(50)
    await an_event(owner)
    missed = await observer.missed(subscription)
    assert missed is not None and (missed.count, missed.more) == (2, False)
    times = "SELECT created_at FROM events WHERE id = $1"
    assert missed.first_at == await owner.fetchval(times, first)
    assert missed.last_at == await owner.fetchval(times, last)
    monkeypatch.setattr("surehook.store.observer.LOOK", 2)
    bounded = await observer.missed(subscription)
    assert bounded is not None and (bounded.count, bounded.more) == (1, True)
