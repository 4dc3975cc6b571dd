"""Slots: how many more requests a worker may begin, per lane. Pure.

A worker has `concurrency` slots, of which it keeps an eighth for endpoints that have hardly
answered yet, and half as many again for EXPRESS jobs; the orchestrator never creates more of
either. So whatever hangs, there is a slot for a tenant with little at work and for a new endpoint.

A request that has lasted for SLOW_SECONDS costs little more than its socket: it leaves its slot to
others, up to half of `slow` such requests (and as many of EXPRESS jobs); those beyond that keep
their slots. Requests to endpoints that were slow lately have the other half of `slow`. What was set
aside has an eighth of `concurrency`.

Memory for payloads is kept as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from surehook.model.records import Lane

LANES = len(Lane)


@dataclass(frozen=True, slots=True)
class Room:
    """For so many jobs, with so much payload, of these lanes."""

    lanes: tuple[int, int]
    count: int
    payload_bytes: int


def express_slots(concurrency: int) -> int:
    return max(concurrency // 2, 1)


def unproven_slots(concurrency: int) -> int:
    return max(concurrency // 8, 1)


def most_at_once(concurrency: int, slow: int) -> int:
    """However many endpoints hang, no more requests than this are under way."""
    aside = unproven_slots(concurrency)
    return concurrency + express_slots(concurrency) + aside + 2 * (slow - slow // 2) + slow // 2


class Slots:
    def __init__(self, concurrency: int, slow: int, memory: int) -> None:
        self.concurrency = concurrency
        self.most = most_at_once(concurrency, slow)
        self._express = express_slots(concurrency)
        self._unproven_kept = concurrency // 8
        self._unproven = self._aside = unproven_slots(concurrency)
        self._slow = slow // 2
        self._lasting_max = slow - slow // 2
        self._memory = memory
        self._under_way = [0] * LANES  # but for those that have lasted
        self._lasting = 0
        self._lasting_express = 0
        self._bytes = 0
        self._bytes_that_hang = 0  # but for those of EXPRESS and BULK

    def begin(self, lane: int, payload_bytes: int) -> None:
        self._under_way[lane] += 1
        self._count_bytes(lane, payload_bytes)

    def age(self, lane: int) -> None:
        """The request has lasted for long."""
        self._lasts(lane, 1)

    def end(self, lane: int, payload_bytes: int, *, aged: bool) -> None:
        if aged:
            self._lasts(lane, -1)
        self._under_way[lane] -= 1
        self._count_bytes(lane, -payload_bytes)

    def _lasts(self, lane: int, count: int) -> None:
        if lane >= Lane.SLOW:
            return  # they have their own slots
        self._under_way[lane] -= count
        if lane == Lane.EXPRESS:
            self._lasting_express += count
        else:
            self._lasting += count

    def _count_bytes(self, lane: int, payload_bytes: int) -> None:
        self._bytes += payload_bytes
        if lane >= Lane.UNPROVEN:
            self._bytes_that_hang += payload_bytes

    @property
    def express_free(self) -> int:
        kept = max(self._lasting_express - self._lasting_max, 0)
        return self._express - self._under_way[Lane.EXPRESS] - kept

    def rescue_room(self, silent: int) -> tuple[Room, int]:
        """For jobs that wait in BULK while all of it hangs: half of what EXPRESS has left; and how
        many of those may be of endpoints that may hang as well. `silent`: such are under way.
        These are tried a few at a time: meanwhile it turns out who hangs."""
        payload_bytes = self._memory - self._bytes
        count = self.express_free // 2 if payload_bytes > 0 else 0
        most = self._lasting_max // 4
        probes = min(most - self._lasting_express - silent, max(most // 8, 1))
        return Room((Lane.BULK, Lane.BULK), max(count, 0), payload_bytes), max(probes, 0)

    @property
    def _free(self) -> int:
        """Of those that are not EXPRESS's."""
        kept = max(self._lasting - self._lasting_max, 0)
        return self.concurrency - self._under_way[Lane.BULK] - self._under_way[Lane.UNPROVEN] - kept

    @property
    def bulk_max(self) -> int:
        return self.concurrency - self._unproven_kept

    @property
    def bulk_free(self) -> int:
        """What is not kept for others; what they do not use of it stays theirs."""
        return self._free - max(self._unproven_kept - self._under_way[Lane.UNPROVEN], 0)

    @property
    def memory_short(self) -> bool:
        """What is left is kept for EXPRESS jobs."""
        return self._bytes >= self._memory - self._memory // 4

    def rooms(self) -> list[Room]:
        """How many of each lane, each as if the others got nothing; none where there is none."""
        memory = self._memory - self._bytes
        bulk_memory = memory - self._memory // 4
        hanging_memory = min(bulk_memory, self._memory // 2 - self._bytes_that_hang)
        unproven = min(self._free, self._unproven - self._under_way[Lane.UNPROVEN])
        return [
            Room((lane, lane), count if payload_bytes > 0 else 0, payload_bytes)
            for lane, count, payload_bytes in (
                (Lane.EXPRESS, self.express_free, memory),
                (Lane.BULK, self.bulk_free, bulk_memory),
                (Lane.UNPROVEN, unproven, hanging_memory),
                (Lane.SLOW, self._slow - self._under_way[Lane.SLOW], hanging_memory),
                (Lane.ASIDE, self._aside - self._under_way[Lane.ASIDE], hanging_memory),
            )
        ]

    def questions(self, *, busy: bool) -> list[Room]:
        """What to ask the database for, in order. Where one question gets less than it asks for,
        nothing waits in its lanes.

        Usually hardly anything waits: one question for all lanes, for no more than each has room
        for. `busy`: there was more last time; then as much as there is room for, and what may hang
        apart from the others.
        """
        rooms = self.rooms()
        if not busy and (everything := _together(rooms)) is not None:
            return [everything]
        return _fewest(rooms[: Lane.UNPROVEN]) + _fewest(rooms[Lane.UNPROVEN :])


def _fewest(rooms: list[Room]) -> list[Room]:
    """One question for all of these, unless that would get the first one much less."""
    together = _together(rooms)
    if together is not None and together.count >= rooms[0].count // 4:
        return [together]
    return [room for room in rooms if room.count > 0]


def _together(rooms: list[Room]) -> Room | None:
    """The lanes from the first to the last, for no more than each has room for."""
    count = min(room.count for room in rooms)
    if count <= 0:
        return None
    lanes = (rooms[0].lanes[0], rooms[-1].lanes[1])
    return Room(lanes, count, min(room.payload_bytes for room in rooms))
