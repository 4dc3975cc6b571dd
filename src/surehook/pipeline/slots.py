"""Slots: how many more requests a worker may begin, per lane. Pure.

A worker has `concurrency` slots. A request that has lasted for SLOW_SECONDS costs little more than
its socket: it leaves its slot to others (up to half of `slow` such requests; those beyond that keep
their slots; EXPRESS requests never do). Requests to endpoints that were slow lately have the other
half of `slow`.

Of the slots, a quarter is kept for EXPRESS jobs and an eighth for endpoints that have hardly
answered yet; the orchestrator never creates more of either. So whatever hangs, there is a slot for
whoever has little under way, and for whoever is new. Memory for payloads is kept as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from surehook.records import Lane

LANES = len(Lane)


@dataclass(frozen=True, slots=True)
class Room:
    """For so many jobs, with so much payload, of these lanes."""

    lanes: tuple[int, int]
    count: int
    payload_bytes: int


class Slots:
    def __init__(self, concurrency: int, slow: int, memory: int) -> None:
        self.concurrency = concurrency
        self._express_kept = concurrency // 4
        self._unproven_kept = concurrency // 8
        self._unproven_max = max(concurrency // 8, 1)
        self._slow_max = slow // 2
        self._aged_max = slow - slow // 2
        self._memory = memory
        self._under_way = [0] * LANES  # but for those that have lasted
        self._aged = 0
        self._bytes = 0
        self._bytes_that_hang = 0  # of UNPROVEN and SLOW

    def begin(self, lane: int, payload_bytes: int) -> None:
        self._under_way[lane] += 1
        self._count_bytes(lane, payload_bytes)

    def age(self, lane: int) -> None:
        """The request has lasted for long."""
        if lane == Lane.SLOW:
            return
        self._under_way[lane] -= 1
        if lane != Lane.EXPRESS:
            self._aged += 1

    def end(self, lane: int, payload_bytes: int, *, aged: bool) -> None:
        if not aged or lane == Lane.SLOW:
            self._under_way[lane] -= 1
        elif lane != Lane.EXPRESS:
            self._aged -= 1
        self._count_bytes(lane, -payload_bytes)

    def _count_bytes(self, lane: int, payload_bytes: int) -> None:
        self._bytes += payload_bytes
        if lane >= Lane.UNPROVEN:
            self._bytes_that_hang += payload_bytes

    @property
    def free(self) -> int:
        """For EXPRESS jobs: all that nobody holds."""
        held = sum(self._under_way) - self._under_way[Lane.SLOW]
        return self.concurrency - held - max(self._aged - self._aged_max, 0)

    @property
    def bulk_max(self) -> int:
        return self.concurrency - self._express_kept - self._unproven_kept

    @property
    def bulk_free(self) -> int:
        """What is not kept for others."""
        # What the others do not use of what is kept for them stays theirs.
        express = max(self._express_kept - self._under_way[Lane.EXPRESS], 0)
        new = max(self._unproven_kept - self._under_way[Lane.UNPROVEN], 0)
        return self.free - express - new

    @property
    def memory_full(self) -> bool:
        return self._bytes >= self._memory

    @property
    def memory_short(self) -> bool:
        """What is left is kept for EXPRESS jobs."""
        return self._bytes >= self._memory - self._memory // 4

    def rooms(self) -> list[Room]:
        """How many of each lane, each as if the others got nothing; none where there is none."""
        free, memory = self.free, self._memory - self._bytes
        express = max(self._express_kept - self._under_way[Lane.EXPRESS], 0)
        bulk = self.bulk_free
        bulk_memory = memory - self._memory // 4
        hanging_memory = min(bulk_memory, self._memory // 2 - self._bytes_that_hang)
        unproven = min(free - express, self._unproven_max - self._under_way[Lane.UNPROVEN])
        slow = self._slow_max - self._under_way[Lane.SLOW]
        return [
            Room((lane, lane), count if payload_bytes > 0 else 0, payload_bytes)
            for lane, count, payload_bytes in (
                (Lane.EXPRESS, free, memory),
                (Lane.BULK, bulk, bulk_memory),
                (Lane.UNPROVEN, unproven, hanging_memory),
                (Lane.SLOW, slow, hanging_memory),
            )
        ]

    def questions(self, *, busy: bool) -> list[Room]:
        """What to ask the database for, in order. Where one question gets less than it asks for,
        nothing waits in its lanes.

        Usually hardly anything waits: one question for all lanes, for no more than each has room
        for. `busy`: there was more last time; then as much as there is room for, in two questions.
        """
        express, bulk, unproven, slow = self.rooms()
        all_lanes = _together(express, bulk, unproven, slow)
        if all_lanes is not None and not busy:
            return [all_lanes]
        first = _together(express, bulk) or (express if express.count > 0 else None)
        return [room for room in (first, unproven, slow) if room is not None and room.count > 0]


def _together(*rooms: Room) -> Room | None:
    """The lanes from the first to the last, for no more than each has room for."""
    count = min(room.count for room in rooms)
    if count <= 0:
        return None
    lanes = (rooms[0].lanes[0], rooms[-1].lanes[1])
    return Room(lanes, count, min(room.payload_bytes for room in rooms))
