"""Rescue: who is sent although everything in BULK hangs."""

from __future__ import annotations

from surehook.model.records import JobId, SubscriptionId, WaitingJob
from surehook.pipeline.rescue import chosen
from surehook.pipeline.slots import Slots


def waiting(*subscriptions: int, tenant_hangs: bool = False) -> list[WaitingJob]:
    """One job per number, whose id is a hundred times the subscription and its place in the row."""
    return [
        WaitingJob(JobId(number * 100 + place), SubscriptionId(number), tenant_hangs)
        for place, number in enumerate(subscriptions)
    ]


def test_an_endpoint_that_answered_since_gets_all_that_there_is_room_for() -> None:
    jobs = waiting(1, 1, 1, 1)
    assert chosen(jobs, 3, 0, answered={1: 6.0}, since=5.0, busy={1}, trying=False) == [
        100,
        101,
        102,
    ]


def test_of_an_endpoint_that_has_not_answered_since_one_is_tried_at_a_time() -> None:
    jobs = waiting(1, 1, 2)
    assert chosen(jobs, 9, 9, answered={1: 4.0}, since=5.0, busy=(), trying=False) == [100, 202]
    assert chosen(jobs, 9, 9, answered={1: 4.0}, since=5.0, busy={1}, trying=False) == [202]


def test_those_come_first_of_whose_tenant_nothing_hangs_then_those_that_answered_last() -> None:
    jobs = waiting(1, tenant_hangs=True) + waiting(2, 3)
    answered = {1: 4.0, 2: 1.0, 3: 2.0}
    assert chosen(jobs, 9, 9, answered=answered, since=5.0, busy=(), trying=False) == [
        301,
        200,
        100,
    ]
    assert chosen(jobs, 9, 2, answered=answered, since=5.0, busy=(), trying=False) == [301, 200]


def test_when_no_more_may_be_tried_tenants_of_which_nothing_hangs_still_are_one_at_a_time() -> None:
    jobs = waiting(1, tenant_hangs=True) + waiting(2, 3)
    assert chosen(jobs, 9, 0, answered={3: 2.0}, since=5.0, busy=(), trying=False) == [301]
    assert chosen(jobs, 9, 0, answered={3: 2.0}, since=5.0, busy=(), trying=True) == []
    hanging = waiting(1, tenant_hangs=True)
    assert chosen(hanging, 9, 0, answered={}, since=5.0, busy=(), trying=False) == []


def test_what_may_hang_leaves_most_of_the_express_lane_to_others() -> None:
    slots = Slots(256, 256, 1 << 26)
    room, probes = slots.rescue_room(silent=0)
    assert (room.count, probes) == (64, 4)
    for silent in (31, 32, 40):
        assert slots.rescue_room(silent)[1] == max(32 - silent, 0)
