"""Ingest: an application's events, durable before they are acknowledged.

Role    event_ingest_writer
Reads   events
Writes  INSERT events
Never   updates an event, makes a saga, looks inside a payload

Requests that wait at the same moment share one INSERT and one commit. Events with a key go in an
INSERT of their own. If someone's open transaction holds one of the keys, that one is found by
halves and waited for elsewhere (heldkeys.py), so it holds up no other event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count

from surehook import observe
from surehook.actions.heldkeys import Busy, HeldKeys, KeyHeld, Waiting, fail
from surehook.errors import Declined, UsageError
from surehook.model import rules
from surehook.model.records import NewEvent, StoredEvent, correlation_id
from surehook.observe import crashpoints
from surehook.store.database import LockHeld, ValueRejected
from surehook.store.hints import Channel, Hints
from surehook.store.ingest import IngestStore, Key, key_of

BATCH_MAX = 500
# Commits under way at once, and how many must wait for a second one to be worth it.
WRITERS_MAX = 2
WORTH_A_WRITER = 16
BATCH_CHARACTERS = 8 * 2**20
# What waits for a commit; beyond this, refuse instead of growing.
WAITING_MAX = 10_000
WAITING_CHARACTERS = 64 * 2**20
# Seconds that a batch waits for keys which others are writing just now: another process's commit is
# waited for, an open transaction is not. Then its parts, while the key that is held is looked for.
BATCH_PATIENCE = 0.05
SEARCH_PATIENCE = 0.005


class KeyTaken(Declined):
    """The external_id already belongs to another event."""


class EventRefused(UsageError):
    """The event is not valid: its payload is not JSON, or a text is too long."""


class Ingest:
    """Stores events for any number of callers at once."""

    def __init__(self, store: IngestStore, hints: Hints, buckets: int = 1) -> None:
        self._store = store
        self._hints = hints
        self._buckets = buckets
        self._next = count()
        self._queues: dict[bool, _Queue] = {False: _Queue(), True: _Queue()}
        self._writers = {False: 0, True: 0}  # at work
        self._held = HeldKeys(self._write_held)
        self._tasks: set[asyncio.Task[None]] = set()

    async def publish(self, event: NewEvent) -> StoredEvent:
        """Returns once the event is durable; the same key and content again: the first one.

        Raises KeyTaken for a key with other content, EventRefused for a wrong event, Busy or
        DatabaseUnreachable when the event may not be stored: the caller tries again, with a key
        safely.
        """
        ticket = self.submit(event)
        try:
            return await ticket.stored
        except asyncio.CancelledError:
            ticket.give_up()
            raise

    def submit(self, event: NewEvent) -> Ticket:
        """The same without waiting: the ticket's future becomes what `publish` returns."""
        keyed = event.external_id is not None
        queue = self._queues[keyed]
        if queue.full:
            raise Busy("Too many events wait to be stored.", "Try again in a moment.")
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[StoredEvent] = loop.create_future()
        place = queue.append((event, stored))
        if self._another_writer(keyed):
            self._writers[keyed] += 1
            task = loop.create_task(self._write(keyed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return Ticket(stored, queue, place, self._held.futures)

    def _another_writer(self, keyed: bool) -> bool:
        """One always; a second one only for a batch that is worth its own commit. Events
        with a key have one, so that no two of ours wait for each other's keys."""
        active = self._writers[keyed]
        return not active or (
            not keyed and active < WRITERS_MAX and len(self._queues[keyed]) >= WORTH_A_WRITER
        )

    async def publish_all(
        self, events: Sequence[NewEvent], submitted: Callable[[Ticket], None] = lambda _: None
    ) -> list[StoredEvent | KeyTaken | KeyHeld]:
        """Each event's answer, in order; what one event's key meets never fails the others."""
        tickets = []
        try:
            for event in events:
                tickets.append(self.submit(event))
                submitted(tickets[-1])
            waits = (ticket.stored for ticket in tickets)
            answers = await asyncio.gather(*waits, return_exceptions=True)
        except BaseException:
            for ticket in tickets:
                ticket.stored.cancel()
                ticket.give_up()
            raise
        found: list[StoredEvent | KeyTaken | KeyHeld] = []
        for answer in answers:
            if not isinstance(answer, (StoredEvent, KeyTaken, KeyHeld)):
                raise answer
            found.append(answer)
        return found

    async def _write(self, keyed: bool) -> None:
        """Write until no event waits. What arrives during a commit shares the next one."""
        queue = self._queues[keyed]
        try:
            while queue:
                await self._write_batch(queue.take(), keyed)
        finally:
            # In the same breath as the look at the empty queue: who submits next sees it.
            self._writers[keyed] -= 1

    async def _write_batch(self, batch: list[Waiting], keyed: bool) -> None:
        try:
            if keyed:
                await self._write_keyed(batch)
            else:
                await self._write_plain(batch)
        except BaseException as error:
            fail(batch, error)
            if not isinstance(error, Exception):
                raise

    async def _write_plain(self, batch: list[Waiting]) -> None:
        events = [event for event, _ in batch]
        buckets = [next(self._next) % self._buckets for _ in events]
        await crashpoints.here("ingest.before_insert")
        try:
            rows = await self._store.insert(events, buckets)
        except LockHeld:  # no key: somebody has locked the table itself
            raise Busy("The table of events is locked.", "Try again in a moment.") from None
        except ValueRejected as refused:
            if len(batch) == 1:
                raise EventRefused(f"The event was refused: {refused}.") from None
            # Halves: the wrong one ends alone, the others are stored.
            middle = len(batch) // 2
            for half in (batch[:middle], batch[middle:]):
                await self._write_apart(partial(self._write_plain, half), half)
            return
        await crashpoints.here("ingest.after_insert")
        for (_, stored), (event_id, created_at) in zip(batch, rows, strict=True):
            _answer(stored, StoredEvent(event_id, created_at, False))
        self._tell(buckets)

    async def _write_keyed(self, batch: list[Waiting]) -> None:
        groups: dict[Key, list[Waiting]] = {}
        for item in batch:
            groups.setdefault(key_of(item[0]), []).append(item)
        for key in [key for key in groups if key in self._held]:
            self._held.add(key, groups.pop(key))
        if groups:
            await self._write_groups(list(groups.values()), BATCH_PATIENCE)

    async def _write_groups(
        self, groups: list[list[Waiting]], patience: float = SEARCH_PATIENCE
    ) -> None:
        """The events of some keys; a held key or a wrong event is found and ends alone."""
        try:
            await self._insert_groups(groups, patience)
        except (LockHeld, EventRefused) as error:
            if len(groups) > 1:
                middle = len(groups) // 2
                for half in (groups[:middle], groups[middle:]):
                    items = [item for group in half for item in group]
                    await self._write_apart(partial(self._write_groups, half), items)
            elif isinstance(error, LockHeld):
                self._held.add(key_of(groups[0][0][0]), groups[0])
            else:
                raise

    async def _insert_groups(self, groups: list[list[Waiting]], patience: float) -> None:
        """Each of the groups has one key. May raise LockHeld or EventRefused: nothing is stored."""
        events = [group[0][0] for group in groups]
        buckets = [self._bucket_of(event) for event in events]
        await crashpoints.here("ingest.before_insert")
        try:
            created = await self._store.insert_keyed(events, buckets, patience)
        except ValueRejected as refused:
            raise EventRefused(f"The event was refused: {refused}.") from None
        await crashpoints.here("ingest.after_insert")
        repeated = [
            group[0][0] for group in groups if len(group) > 1 or key_of(group[0][0]) not in created
        ]
        found = {}
        if repeated:
            found = await self._store.find_keyed(repeated, [self._bucket_of(e) for e in repeated])
        for group in groups:
            key = key_of(group[0][0])
            for number, (event, stored) in enumerate(group):
                if number == 0 and key in created:
                    _answer(stored, StoredEvent(*created[key], False))
                else:
                    _answer_repeated(event, stored, found[key])
        self._tell(buckets)

    async def _write_held(self, group: list[Waiting]) -> None:
        await self._insert_groups([group], SEARCH_PATIENCE)

    async def _write_apart(self, write: Callable[[], Awaitable[None]], part: list[Waiting]) -> None:
        """Write a part of a batch; what goes wrong fails that part only."""
        try:
            await write()
        except Exception as error:
            fail(part, error)

    def _bucket_of(self, event: NewEvent) -> int:
        """A fixed hash of the key, so that repetitions meet."""
        assert event.external_id is not None
        return rules.key_hash(event.tenant, event.external_id) % self._buckets

    def _tell(self, buckets: list[int]) -> None:
        for bucket in set(buckets):
            self._hints.hint(Channel.EVENTS, bucket)


class Ticket:
    """A place in the queue and, in the end, the answer."""

    __slots__ = ("_held", "_place", "_queue", "stored")

    def __init__(
        self,
        stored: asyncio.Future[StoredEvent],
        queue: _Queue,
        place: int,
        held: set[asyncio.Future[StoredEvent]],
    ) -> None:
        self.stored = stored
        self._queue = queue
        self._place = place
        self._held = held

    def give_up(self) -> None:
        """Nobody waits for it any more: if it is still in the queue, it is not stored."""
        self._queue.remove(self._place)
        if not self.stored.done():
            held = self.stored in self._held  # it waits for its key
            error = KeyHeld() if held else Busy("The database did not answer in time.")
            self.stored.set_exception(error)


class _Queue:
    """Events that wait, in order, bounded in number and size."""

    def __init__(self) -> None:
        self._waiting: dict[int, Waiting] = {}
        self._characters = 0
        self._places = count()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) >= WAITING_MAX or self._characters >= WAITING_CHARACTERS

    def append(self, item: Waiting) -> int:
        place = next(self._places)
        self._waiting[place] = item
        self._characters += len(item[0].payload)
        return place

    def remove(self, place: int) -> None:
        item = self._waiting.pop(place, None)
        if item is not None:
            self._characters -= len(item[0].payload)

    def take(self) -> list[Waiting]:
        """The next batch: at least one."""
        batch: list[Waiting] = []
        characters = 0
        for place, item in self._waiting.items():
            characters += len(item[0].payload)
            if batch and (len(batch) == BATCH_MAX or characters > BATCH_CHARACTERS):
                characters -= len(item[0].payload)
                break
            batch.append(item)
            last = place
        if len(batch) == len(self._waiting):
            self._waiting.clear()
        else:
            for place in range(next(iter(self._waiting)), last + 1):
                self._waiting.pop(place, None)
        self._characters -= characters
        return batch


def _answer(stored: asyncio.Future[StoredEvent], answer: StoredEvent) -> None:
    observe.emit(
        "event.repeated" if answer.duplicate else "event.accepted",
        correlation_id=correlation_id(answer.id),
        delivery_status="Accepted",
    )
    if not stored.done():  # the caller may have gone
        stored.set_result(answer)


def _answer_repeated(
    event: NewEvent,
    stored: asyncio.Future[StoredEvent],
    found: tuple[int, object, str, str],
) -> None:
    event_id, created_at, event_type, payload = found
    if (event.event_type, event.payload) == (event_type, payload):
        _answer(stored, StoredEvent(event_id, created_at, True))  # type: ignore[arg-type]
    elif not stored.done():
        stored.set_exception(
            KeyTaken(
                f"external_id {event.external_id!r} already belongs to event {event_id}, which has "
                "different content."
            )
        )
