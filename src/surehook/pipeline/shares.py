"""Shares: who gets how many of the places for open jobs, and in which lane. Pure.

Whatever hangs keeps the jobs that it has, so a fair order alone does not help the others: they need
room that no one else can take. Each tenant may hold at most ALPHA times of what is *free*: one that
takes all it can leaves a third, two leave a fifth, and there is always something left for the next,
with nothing reserved while none asks. The same rule bounds the jobs of endpoints that have hardly
answered yet and of those that are slow, each as a whole. What workers set aside counts no longer.

A tenant with little to do and little under way goes by EXPRESS. Those jobs are so few in all that
each worker has a slot for every one of them (see slots.py). A tenant with more to do goes by BULK,
where it may have to wait behind others; while those hang, it goes by EXPRESS too. A tenant that is
alone goes by BULK.

While much hangs, any tenant may hang next: each gets one place of EXPRESS at a time until it has
shown that it answers, and those that have requests which last leave the most of it to the others.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from surehook.model.records import Lane, Share, WaitingSubscription
from surehook.pipeline.slots import express_slots, unproven_slots

# A tenant may hold so many times the free places.
ALPHA = 2
# Endpoints that may hang get at most one part in so many of a batch's places.
PART = 4
# At most one part in so many of all places is kept from BULK and SLOW.
KEPT_PART = 8
# With fewer places than this the rule above would give no tenant any.
LEAST = 4
# Requests that have been under way for long have left their lanes: EXPRESS, BULK and UNPROVEN.
LASTING_EXPRESS = len(Lane)
LASTING = LASTING_EXPRESS + 1
LANES = LASTING + 1
# What hangs, or may do so.
HANGING = (Lane.SLOW, LASTING_EXPRESS, LASTING)

# Much hangs when more requests of EXPRESS last than one part in so many of those that may.
MUCH = 4

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many jobs may be open at once, over all tenants."""

    open_jobs: int
    express: int
    unproven: int
    slow: int
    lasting_express: int  # these leave their places

    @property
    def kept(self) -> int:
        """Of open_jobs, for EXPRESS and UNPROVEN."""
        return min(self.express, self.open_jobs // KEPT_PART)

    @classmethod
    def of(cls, open_jobs: int, slots: int, slow_slots: int, buckets: int = 1) -> Limits:
        """For one of so many buckets, from the slots of a worker.

        EXPRESS jobs fit into the slots that a worker keeps for them, and no more jobs that may hang
        are open than a worker can have under way, nor take more than a quarter of all places.
        """
        most = open_jobs // 4
        parts = (
            open_jobs,
            min(express_slots(slots), most),
            min(unproven_slots(slots), most),
            min(slow_slots // 2, most),
            slow_slots // 2,
        )
        return cls(*(max(part // buckets, LEAST) for part in parts))


class OpenJobs:
    """How many jobs are open, by tenant and lane: counted now and then, reckoned on between.

    Other orchestrators create and end jobs too: it may be off until the next count.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * LANES)
        self.of_lane = [0] * LANES
        self.total = 0

    def counted(self, rows: Iterable[tuple[str, int, int]]) -> None:
        self._counts.clear()
        self.of_lane = [0] * LANES
        self.total = 0
        for tenant, lane, count in rows:
            self.add(tenant, lane, count)

    def add(self, tenant: str, lane: int, count: int) -> None:
        """`count` may be negative; no number ever is."""
        own = self._counts[tenant]
        count = max(count, -own[lane])
        own[lane] += count
        self.of_lane[lane] += count
        self.total += count

    def of_tenant(self, tenant: str, lane: int | None = None) -> int:
        own = self._counts.get(tenant)
        if own is None:
            return 0
        return sum(own) if lane is None else own[lane]


@dataclass(slots=True)
class Plan:
    shares: list[Share]
    cut: bool  # someone got less than it asked for because of what is open already


def much_hangs(open_jobs: OpenJobs, limits: Limits, *, bulk_flows: bool) -> bool:
    return not bulk_flows or open_jobs.of_lane[LASTING_EXPRESS] * MUCH > limits.lasting_express


def plan(
    waiting: Sequence[WaitingSubscription],
    room: int,
    open_jobs: OpenJobs,
    limits: Limits,
    first_ramp: int = 0,
    *,
    bulk_flows: bool = True,
    queued: Collection[str] = (),
    answering: Collection[str] = (),
) -> Plan:
    """Who gets how many of `room` places, now. A subscription that is new has `first_ramp`.
    `queued`: tenants that may have more to do than was counted. `answering`: tenants that have
    answered since much hangs."""
    return _Planning(room, open_jobs, limits, first_ramp, bulk_flows, queued, answering).made_for(
        waiting
    )


class _Planning:
    def __init__(
        self,
        room: int,
        open_jobs: OpenJobs,
        limits: Limits,
        first_ramp: int,
        bulk_flows: bool,
        queued: Collection[str],
        answering: Collection[str],
    ) -> None:
        self._room = room
        self._bulk_flows = bulk_flows
        self._much_hangs = much_hangs(open_jobs, limits, bulk_flows=bulk_flows)
        self._queued = queued
        self._answering = answering
        self._open = open_jobs
        self._limits = limits
        self._first_ramp = first_ramp
        self._new = OpenJobs()  # what has been given so far
        self._made = Plan([], False)

    def made_for(self, waiting: Iterable[WaitingSubscription]) -> Plan:
        kinds: dict[Lane, list[WaitingSubscription]] = {
            Lane.SLOW: [],
            Lane.UNPROVEN: [],
            Lane.BULK: [],
        }
        for item in waiting:
            kinds[self._lane(item)].append(item)
        order = list(kinds)
        if self._room < PART * len(kinds):
            random.shuffle(order)  # with hardly any room the first one gets it
        for lane in order:
            if kinds[lane] and self._room > 0:
                self._share_out(lane, kinds[lane])
        return self._made

    def _lane(self, item: WaitingSubscription) -> Lane:
        if item.slow:
            return Lane.SLOW
        return Lane.UNPROVEN if self._ramp(item) else Lane.BULK

    def _ramp(self, item: WaitingSubscription) -> int:
        return self._first_ramp if item.ramp is None else item.ramp

    def _demand(self, item: WaitingSubscription) -> int:
        wanted = item.due or self._room  # 0 = not counted
        return min(wanted, self._ramp(item) or wanted)

    def _share_out(self, lane: Lane, items: Sequence[WaitingSubscription]) -> None:
        """Shares in one lane; for BULK in that or in EXPRESS."""
        tenants: dict[str, dict[int, int]] = {}
        ramps: dict[int, int] = {}
        due: Counter[str] = Counter()  # as far as it was counted
        for item in random.sample(items, len(items)):
            due[item.tenant] += item.due
            tenants.setdefault(item.tenant, {})[item.subscription_id] = self._demand(item)
            ramps[item.subscription_id] = self._ramp(item)
        asked = {tenant: sum(own.values()) for tenant, own in tenants.items()}
        lanes = (Lane.BULK, Lane.EXPRESS) if lane is Lane.BULK else (lane,)
        allowed = {
            tenant: min(count, max(self._allowed(tenant, one) for one in lanes))
            for tenant, count in asked.items()
        }
        room = self._room if lane is Lane.BULK else min(max(self._room // PART, 1), self._room)
        for tenant, fair in split(room, {t: n for t, n in allowed.items() if n}).items():
            own_lane = lane
            if lane is Lane.BULK and not self._by_bulk(tenant, due[tenant], len(tenants) == 1):
                own_lane = Lane.EXPRESS
            # Once more: others have got something meanwhile.
            places = min(fair, self._allowed(tenant, own_lane))
            self._new.add(tenant, own_lane, places)
            self._room -= places
            self._made.cut |= places < asked[tenant]
            self._made.shares += (
                Share(number, share, own_lane, ramps[number])
                for number, share in split(places, tenants[tenant]).items()
                if share
            )
        self._made.cut |= len(allowed) > sum(1 for count in allowed.values() if count)

    def _by_bulk(self, tenant: str, due: int, only_one: bool) -> bool:
        elsewhere = self._held(tenant) - self._held(tenant, Lane.EXPRESS)
        much = max(due, 2 * elsewhere) >= self._limits.express or tenant in self._queued
        # Others may keep it waiting there: those whose requests last hold slots as well.
        no_others = all(
            self._held(lane=lane) == self._held(tenant, lane) for lane in (Lane.BULK, LASTING)
        )
        return (much and self._bulk_flows) or (no_others and (much or only_one))

    def _allowed(self, tenant: str, lane: Lane) -> int:
        """How many more this tenant may have in this lane."""
        limits = self._limits
        held = self._held(tenant)
        # Tenants that come one after the other each take a part of what is free, until a part of
        # it is nothing: what is kept for those with little to do and for new ones stays.
        kept = limits.kept if lane in (Lane.BULK, Lane.SLOW) else 0
        places = allowance(held, limits.open_jobs - kept - self._held())
        if lane is Lane.BULK:
            return places
        if lane is Lane.EXPRESS:
            return min(places, self._express_allowed(tenant, held))
        most = limits.slow if lane is Lane.SLOW else limits.unproven
        unused = most - self._held(lane=lane)
        own = self._held(tenant, lane)
        hangs = self._hangs(tenant)
        if not own and (lane is Lane.SLOW or not hangs):
            return min(places, max(allowance(0, unused), min(unused, 1)))
        # The last places are for tenants that have none yet. When much hangs already, and some of
        # it is this tenant's, its new endpoints have to wait.
        hanging = sum(self._held(lane=each) for each in HANGING)
        if lane is Lane.UNPROVEN and hangs and hanging >= limits.slow:
            return 0
        return min(places, allowance(own, unused - most // PART))

    def _express_allowed(self, tenant: str, held: int) -> int:
        limits = self._limits
        under_way, lasting = self._held(lane=Lane.EXPRESS), self._held(lane=LASTING_EXPRESS)
        free = limits.express - under_way - max(lasting - limits.lasting_express, 0)
        share = allowance(held, free, alpha=1)
        if not self._much_hangs:
            return share
        answers, hangs = tenant in self._answering, self._hangs(tenant) > 0
        if hangs and not answers:
            free = limits.express // 2 - under_way - lasting
        one = min(max(free, 0), 1) if self._held(tenant, Lane.EXPRESS) == 0 else 0
        return max(share, one) if answers and not hangs else one

    def _hangs(self, tenant: str) -> int:
        """How many requests of this tenant last, or may do so."""
        return sum(self._held(tenant, lane) for lane in HANGING)

    def _held(self, tenant: str | None = None, lane: int | None = None) -> int:
        if tenant is not None:
            return self._open.of_tenant(tenant, lane) + self._new.of_tenant(tenant, lane)
        if lane is not None:
            return self._open.of_lane[lane] + self._new.of_lane[lane]
        return self._open.total + self._new.total


def allowance(held: int, free: int, alpha: int = ALPHA) -> int:
    """How many more one may take that holds so many: afterwards it has at most `alpha` times of
    what is free then."""
    return max((alpha * free - held) // (1 + alpha), 0)


def split(room: int, demand: dict[K, int]) -> dict[K, int]:
    """Max-min fair: none gets more than it asks for, what it leaves is shared by the others.

    With fewer places than askers, the first askers get one each: callers shuffle them.
    """
    askers: Iterable[K] = demand
    if room >= len(demand):
        askers = sorted(demand, key=lambda key: demand[key])
    shares: dict[K, int] = {}
    left = len(demand)
    for key in askers:
        shares[key] = min(demand[key], max(room // left, 1), room)
        room -= shares[key]
        left -= 1
    return shares
