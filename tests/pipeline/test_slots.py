"""Slots: whatever hangs, there is one for whoever has little under way."""

from __future__ import annotations

import random

import pytest

from surehook.model.records import Lane
from surehook.pipeline.slots import Slots, most_at_once

MEMORY = 64 * 2**20


def counts(slots: Slots) -> list[int]:
    return [room.count for room in slots.rooms()]


def filled(slots: Slots, lane: Lane, payload_bytes: int = 0) -> int:
    """As many of this lane as there is room for; none of them ends."""
    begun = 0
    while slots.rooms()[lane].count > 0:
        slots.begin(lane, payload_bytes)
        begun += 1
    return begun


def test_express_has_slots_of_its_own_and_bulk_leaves_an_eighth_to_the_unproven() -> None:
    slots = Slots(256, 256, MEMORY)
    assert counts(slots) == [128, 224, 32, 128, 32]
    assert filled(slots, Lane.BULK) == 224
    assert counts(slots) == [128, 0, 32, 128, 32]
    assert filled(slots, Lane.UNPROVEN) == 32
    assert counts(slots) == [128, 0, 0, 128, 32]
    assert filled(slots, Lane.SLOW) == 128
    assert filled(slots, Lane.ASIDE) == 32
    assert filled(slots, Lane.EXPRESS) == 128
    assert counts(slots) == [0, 0, 0, 0, 0]


def test_a_request_that_lasts_leaves_its_slot_until_there_are_too_many_of_those() -> None:
    slots = Slots(8, 16, MEMORY)
    for begun in (7, 7, 1, 0):
        assert filled(slots, Lane.BULK) == begun
        for _ in range(begun):
            slots.age(Lane.BULK)
    assert counts(slots) == [4, 0, 1, 8, 1]  # eight of the fifteen left their slots
    for _ in range(15):
        slots.end(Lane.BULK, 0, aged=True)
    assert counts(slots) == [4, 7, 1, 8, 1]


def test_express_requests_that_last_are_counted_apart() -> None:
    slots = Slots(8, 8, MEMORY)
    for begun in (4, 4, 0):
        assert filled(slots, Lane.EXPRESS) == begun
        for _ in range(begun):
            slots.age(Lane.EXPRESS)
    assert counts(slots) == [0, 7, 1, 4, 1]
    for _ in range(8):
        slots.end(Lane.EXPRESS, 0, aged=True)
    assert counts(slots) == [4, 7, 1, 4, 1]


def test_however_much_hangs_no_more_is_under_way_than_was_promised() -> None:
    for concurrency, slow in ((1, 8), (8, 8), (32, 100), (256, 256)):
        slots = Slots(concurrency, slow, MEMORY)
        begun = 0
        for _ in range(20):
            for lane in Lane:
                count = filled(slots, lane)
                begun += count
                for _ in range(count):
                    slots.age(lane)
        assert begun <= most_at_once(concurrency, slow)


@pytest.mark.parametrize("concurrency", [1, 2, 3, 4, 5, 256])
def test_every_lane_gets_its_turn_with_however_few_slots(concurrency: int) -> None:
    assert min(counts(Slots(concurrency, 8, MEMORY))) >= 1


def test_what_hangs_leaves_memory_to_the_others() -> None:
    slots = Slots(256, 256, MEMORY)
    megabyte = 2**20
    assert filled(slots, Lane.SLOW, megabyte) == 32
    assert slots.rooms()[Lane.UNPROVEN].count == slots.rooms()[Lane.ASIDE].count == 0
    assert filled(slots, Lane.BULK, megabyte) == 16
    assert slots.memory_short
    assert filled(slots, Lane.EXPRESS, megabyte) == 16


def test_a_question_for_several_lanes_never_gets_more_of_one_than_there_is_room_for() -> None:
    generator = random.Random(1)
    for _ in range(300):
        slots = Slots(generator.randint(1, 64), generator.randint(8, 64), 1000)
        under_way: list[tuple[Lane, int, bool]] = []
        for _ in range(200):
            if under_way and generator.random() < 0.4:
                lane, size, aged = under_way.pop(generator.randrange(len(under_way)))
                slots.end(lane, size, aged=aged)
            elif under_way and generator.random() < 0.2:
                lane, size, aged = under_way.pop(generator.randrange(len(under_way)))
                if not aged:
                    slots.age(lane)
                under_way.append((lane, size, True))
            rooms = slots.rooms()
            questions = slots.questions(busy=generator.random() < 0.5)
            for question in questions:
                first, last = question.lanes
                for room in rooms[first : last + 1]:
                    assert 0 < question.count <= room.count
                    assert 0 < question.payload_bytes <= room.payload_bytes
            if rooms[Lane.EXPRESS].count > 0:
                assert questions[0].lanes[0] == Lane.EXPRESS
            if questions:
                question = generator.choice(questions)
                lane = Lane(generator.randint(*question.lanes))
                size = generator.randint(0, 50)
                slots.begin(lane, size)
                under_way.append((lane, size, False))


def test_an_idle_worker_asks_once_for_all_lanes_and_a_busy_one_for_as_much_as_it_can_take() -> None:
    slots = Slots(256, 256, MEMORY)
    assert [(one.lanes, one.count) for one in slots.questions(busy=False)] == [((0, 4), 32)]
    assert [(one.lanes, one.count) for one in slots.questions(busy=True)] == [
        ((0, 1), 128),
        ((2, 4), 32),
    ]
    filled(slots, Lane.BULK)
    assert [one.lanes for one in slots.questions(busy=False)] == [(0, 0), (2, 4)]
    filled(slots, Lane.UNPROVEN)
    assert [one.lanes for one in slots.questions(busy=False)] == [(0, 0), (3, 3), (4, 4)]
