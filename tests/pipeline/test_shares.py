"""Shares: nobody gets what others need, nothing is left unused that is wanted and allowed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surehook.model.records import Lane, SubscriptionId, WaitingSubscription
from surehook.pipeline.shares import (
    ALPHA,
    LASTING,
    LASTING_EXPRESS,
    LEAST,
    Limits,
    OpenJobs,
    allowance,
    plan,
    split,
)

PLENTY = Limits(
    open_jobs=1_000_000,
    express=1000,
    unproven=100_000,
    slow=100_000,
    lasting_express=1000,
)


@given(st.integers(0, 300), st.dictionaries(st.integers(0, 50), st.integers(1, 100)))
def test_split_gives_all_that_is_wanted_and_nobody_more_than_it_wants(
    room: int, demand: dict[int, int]
) -> None:
    shares = split(room, demand)
    assert shares.keys() == demand.keys()
    assert all(0 <= shares[key] <= demand[key] for key in demand)
    assert sum(shares.values()) == min(room, sum(demand.values()))


@given(st.integers(0, 300), st.dictionaries(st.integers(0, 50), st.integers(1, 100)))
def test_split_is_max_min_fair(room: int, demand: dict[int, int]) -> None:
    shares = split(room, demand)
    for key in demand:
        if shares[key] < demand[key]:  # unsatisfied: nobody has noticeably more
            assert all(shares[other] <= shares[key] + 1 for other in shares)


def waiting_subscriptions(
    **kinds: st.SearchStrategy[object],
) -> st.SearchStrategy[WaitingSubscription]:
    return st.builds(
        WaitingSubscription,
        st.integers(1, 10**6).map(SubscriptionId),
        st.sampled_from(["", "one", "two", "three"]),
        st.integers(0, 200),
        st.booleans(),
        **kinds,
    )


def several(
    kind: st.SearchStrategy[WaitingSubscription],
) -> st.SearchStrategy[list[WaitingSubscription]]:
    return st.lists(kind, unique_by=lambda item: item.subscription_id, max_size=40)


@given(several(waiting_subscriptions()), st.integers(1, 500))
@settings(max_examples=200)
def test_with_nothing_open_the_room_is_filled_and_tenants_are_treated_alike(
    items: list[WaitingSubscription], room: int
) -> None:
    made = plan(items, room, OpenJobs(), PLENTY)
    shares = {share.subscription_id: share.places for share in made.shares}
    wanted = {int(item.subscription_id): item.due or room for item in items}
    assert all(1 <= places <= wanted[key] for key, places in shares.items())
    assert sum(shares.values()) == min(room, sum(wanted.values()))
    got: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for item in items:
        got[item.tenant] += shares.get(item.subscription_id, 0)
        asked[item.tenant] += wanted[item.subscription_id]
    for tenant in asked:
        if got[tenant] < asked[tenant]:
            assert all(got[other] <= got[tenant] + 1 for other in asked)


kinds = waiting_subscriptions(
    slow=st.sampled_from([None, False, True]), ramp=st.sampled_from([None, 0, 1, 8])
)


@given(st.lists(st.tuples(several(kinds), st.integers(1, 500)), max_size=6), st.data())
@settings(max_examples=200)
def test_whatever_hangs_no_limit_is_exceeded_and_a_place_is_left(
    steps: list[tuple[list[WaitingSubscription], int]], data: st.DataObject
) -> None:
    """Jobs are created and never end."""
    limits = Limits(*(data.draw(st.integers(LEAST, 300)) for _ in range(5)))
    open_jobs = OpenJobs()
    for items, room in steps:
        tenants = {int(item.subscription_id): item for item in items}
        made = plan(items, room, open_jobs, limits, first_ramp=2)
        assert sum(share.places for share in made.shares) <= room
        for share in made.shares:
            item = tenants[share.subscription_id]
            assert share.lane is (
                Lane.SLOW if item.slow else Lane.UNPROVEN if item.ramp != 0 else share.lane
            )
            assert share.ramp == (2 if item.ramp is None else item.ramp)
            assert share.ramp == 0 or share.places <= share.ramp
            open_jobs.add(item.tenant, share.lane, share.places)
        assert open_jobs.total < limits.open_jobs
        assert open_jobs.of_lane[Lane.EXPRESS] < limits.express
        # Of these the last is for a tenant that has none yet.
        assert open_jobs.of_lane[Lane.SLOW] <= limits.slow
        assert open_jobs.of_lane[Lane.UNPROVEN] <= limits.unproven


def proven(number: int, tenant: str, due: int) -> WaitingSubscription:
    return WaitingSubscription(SubscriptionId(number), tenant, due, False)


def filled(tenants: int, limits: Limits) -> OpenJobs:
    """So many tenants have taken all that they can get."""
    open_jobs = OpenJobs()
    for _ in range(100):
        items = [proven(number, f"hog-{number}", 10_000) for number in range(1, tenants + 1)]
        for share in plan(items, 500, open_jobs, limits).shares:
            open_jobs.add(f"hog-{share.subscription_id}", share.lane, share.places)
    return open_jobs


def test_one_tenant_gets_two_thirds_and_a_hundred_leave_room_for_one_more() -> None:
    limits = Limits.of(open_jobs=4000, slots=256, slow_slots=256)
    assert filled(1, limits).total == (4000 - limits.kept) * ALPHA // (ALPHA + 1)
    for tenants in (1, 10, 100):
        full = filled(tenants, limits)
        made = plan([proven(0, "another", 10)], 500, full, limits)
        assert sum(share.places for share in made.shares) >= 1, tenants


@pytest.mark.parametrize("tenants", [10, 20, 100])
def test_tenants_that_come_one_after_the_other_leave_a_place_for_one_more(tenants: int) -> None:
    limits = Limits.of(open_jobs=400, slots=32, slow_slots=32)
    open_jobs = OpenJobs()
    for number in range(1, tenants + 1):
        tenant = f"hog-{number}"
        for share in plan([proven(number, tenant, 39)], 400, open_jobs, limits).shares:
            open_jobs.add(tenant, Lane.BULK, share.places)
    another = [proven(0, "another", 10)]
    made = plan(another, 400, open_jobs, limits, bulk_flows=False)
    assert sum(share.places for share in made.shares) >= 1


def test_a_tenant_with_little_under_way_goes_by_express_and_one_with_much_does_not() -> None:
    limits = Limits.of(open_jobs=4000, slots=256, slow_slots=256)
    open_jobs = OpenJobs()
    open_jobs.add("much", Lane.BULK, 500)
    made = plan([proven(1, "much", 300), proven(2, "little", 20)], 500, open_jobs, limits)
    assert {share.subscription_id: (share.lane, share.places) for share in made.shares} == {
        1: (Lane.BULK, 300),
        2: (Lane.EXPRESS, 20),
    }


def test_who_has_little_to_do_keeps_to_express_and_who_has_much_to_bulk_while_that_flows() -> None:
    limits = Limits.of(open_jobs=4000, slots=256, slow_slots=256)
    open_jobs = OpenJobs()

    def lanes(
        due: int,
        queued: Collection[str] = (),
        answering: Collection[str] = (),
        bulk_flows: bool = True,
    ) -> set[tuple[Lane, int]]:
        made = plan(
            [proven(1, "t", due)],
            500,
            open_jobs,
            limits,
            bulk_flows=bulk_flows,
            queued=queued,
            answering=answering,
        )
        return {(share.lane, share.places) for share in made.shares}

    assert lanes(100) == {(Lane.BULK, 100)}  # nobody else is there
    open_jobs.add("another", Lane.BULK, 10)
    assert lanes(100) == lanes(0) == {(Lane.EXPRESS, 64)}
    assert lanes(100, queued=["t"]) == {(Lane.BULK, 100)}
    assert lanes(400) == {(Lane.BULK, 400)}
    assert lanes(400, bulk_flows=False, answering=["t"]) == {(Lane.EXPRESS, 64)}
    open_jobs.counted([("t", Lane.BULK, 64)])
    assert lanes(100, bulk_flows=False) == {(Lane.BULK, 100)}  # what hangs is its own
    open_jobs.add("another", Lane.BULK, 10)
    assert lanes(100) == {(Lane.BULK, 100)}  # it has much under way


def test_many_tenants_with_a_little_each_are_not_held_up_by_the_size_of_express() -> None:
    limits = Limits.of(open_jobs=4000, slots=256, slow_slots=256)
    items = [proven(number, f"{number}", 5) for number in range(100)]
    queued = {item.tenant for item in items}
    made = plan(items, 500, OpenJobs(), limits, queued=queued)
    assert sum(share.places for share in made.shares) == 500


def test_express_requests_that_last_leave_their_places_until_there_are_too_many_of_those() -> None:
    limits = Limits.of(open_jobs=4000, slots=256, slow_slots=256)

    def places(lasting: int) -> int:
        open_jobs = OpenJobs()
        open_jobs.counted([("others", LASTING_EXPRESS, lasting), ("others", LASTING, 1)])
        made = plan(
            [proven(1, "t", 500)], 500, open_jobs, limits, bulk_flows=False, answering=["t"]
        )
        return sum(share.places for share in made.shares)

    assert [places(lasting) for lasting in (0, 128, 228, 256)] == [64, 64, 14, 0]


def test_express_jobs_are_never_more_than_the_slots_that_are_kept_for_them() -> None:
    limits = Limits.of(open_jobs=4000, slots=256, slow_slots=256)
    open_jobs = OpenJobs()
    for number in range(1000):
        for share in plan([proven(number, f"{number}", 1)], 500, open_jobs, limits).shares:
            open_jobs.add(f"{number}", share.lane, share.places)
    assert open_jobs.of_lane[Lane.EXPRESS] == 127


def test_a_tenant_whose_endpoints_hang_leaves_places_for_new_ones_of_others() -> None:
    """A hundred tenants with ten new subscriptions each, none of which ever answers."""
    limits = Limits.of(open_jobs=4000, slots=256, slow_slots=256)
    hogs = [
        WaitingSubscription(SubscriptionId(n), f"hog-{n % 100}", 5, False, False, 2)
        for n in range(1, 1001)
    ]
    open_jobs = OpenJobs()
    for _ in range(50):  # after each step it is known who hangs
        for share in plan(hogs, 500, open_jobs, limits).shares:
            open_jobs.add(f"hog-{share.subscription_id % 100}", LASTING, share.places)
        new = WaitingSubscription(SubscriptionId(0), "new", 5, False, None, None)
        places = {
            share.subscription_id: share.places
            for share in plan([*hogs, new], 500, open_jobs, limits, first_ramp=2).shares
        }
    assert places.get(0, 0) >= 1
    assert open_jobs.total <= limits.slow + limits.unproven + 2 * 100  # two of each tenant


def test_an_allowance_leaves_half_as_much_as_it_takes() -> None:
    assert allowance(0, 300) == 200
    assert allowance(200, 100) == 0
    assert allowance(0, 100) == 66
    assert allowance(500, 10) == 0


def test_hardly_any_room_goes_to_each_kind_in_turn() -> None:
    items = [
        proven(1, "a", 5),
        WaitingSubscription(SubscriptionId(2), "b", 5, False, True),
        WaitingSubscription(SubscriptionId(3), "c", 5, False, False, 2),
    ]
    random.seed(1)
    limits = Limits.of(open_jobs=4000, slots=256, slow_slots=256)
    got = {plan(items, 1, OpenJobs(), limits).shares[0].subscription_id for _ in range(100)}
    assert got == {1, 2, 3}


def test_open_jobs_that_others_end_are_never_fewer_than_none() -> None:
    open_jobs = OpenJobs()
    open_jobs.counted([("a", 1, 3), ("a", 3, 2), ("b", 1, 1)])
    open_jobs.add("a", 1, -5)
    open_jobs.add("c", 0, -1)
    assert (open_jobs.total, open_jobs.of_lane) == (3, [0, 1, 0, 2, 0, 0, 0])
    assert (open_jobs.of_tenant("a"), open_jobs.of_tenant("a", 3)) == (2, 2)


def test_while_much_hangs_each_tenant_gets_one_place_until_it_answers() -> None:
    limits = Limits.of(open_jobs=4000, slots=256, slow_slots=256)

    def places(own_lasting: int, *, answering: bool, bulk_flows: bool = True) -> int:
        open_jobs = OpenJobs()
        open_jobs.counted(
            [("others", LASTING_EXPRESS, 80), ("others", LASTING, 1), ("t", LASTING, own_lasting)]
        )
        made = plan(
            [proven(1, "t", 100), proven(2, "others", 100)],
            500,
            open_jobs,
            limits,
            bulk_flows=bulk_flows,
            answering={"t"} if answering else (),
        )
        return sum(share.places for share in made.shares if share.subscription_id == 1)

    for bulk_flows in (True, False):
        assert places(0, answering=False, bulk_flows=bulk_flows) == 1
        assert places(0, answering=True, bulk_flows=bulk_flows) == 64
        assert places(1, answering=True, bulk_flows=bulk_flows) == 1
        assert places(1, answering=False, bulk_flows=bulk_flows) == 0  # the others may need it


def test_a_hundred_tenants_that_hang_one_after_the_other_leave_a_place_for_one_more() -> None:
    """They answered until now. Each of their requests lasts, which is seen after each step."""
    limits = Limits.of(open_jobs=4000, slots=256, slow_slots=256)
    lasting: Counter[str] = Counter()
    for number in range(100):
        open_jobs = OpenJobs()
        open_jobs.counted(
            [("first", LASTING, 300), *((t, LASTING_EXPRESS, n) for t, n in lasting.items())]
        )
        hogs = [proven(n, f"hog-{n}", 100) for n in range(1, number + 2)]
        for share in plan(hogs, 500, open_jobs, limits, bulk_flows=False).shares:
            lasting[f"hog-{share.subscription_id}"] += share.places
    made = plan([proven(0, "another", 10)], 500, open_jobs, limits, bulk_flows=False)
    assert sum(share.places for share in made.shares) == 1
