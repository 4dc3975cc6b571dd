"""Ingest: durable before acknowledged, one commit for many, idempotent by key."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support import OpenStore, dialects, servers
from support.pipeline import facts
from support.rows import an_event
from support.servers import Server
from support.waiting import PATIENCE, until
from surehook.actions.heldkeys import Busy, KeyHeld
from surehook.actions.ingest import Ingest, KeyTaken
from surehook.errors import DatabaseUnreachable, UsageError
from surehook.model.records import NewEvent, StoredEvent
from surehook.observe import crashpoints
from surehook.store import store_of
from surehook.store.database import LockHeld
from surehook.store.hints import Channel, Hints
from surehook.store.ingest import IngestStore


class CountingStore:
    """Counts statements; the real ones run."""

    def __init__(self, store: IngestStore) -> None:
        self._store: Any = store
        self.inserts: list[int] = []
        self.keys: list[list[str]] = []

    async def insert(self, events: Any, buckets: Any) -> Any:
        self.inserts.append(len(events))
        return await self._store.insert(events, buckets)

    async def insert_keyed(self, events: Any, *more: Any) -> Any:
        self.inserts.append(len(events))
        self.keys.append([event.external_id for event in events])
        return await self._store.insert_keyed(events, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
async def store(open_store: OpenStore) -> Any:
    return CountingStore(store_of(IngestStore, await open_store("ingest")))


@pytest.fixture
def ingest(store: Any, buckets: int) -> Ingest:
    return Ingest(store, Hints(), buckets)


@pytest.fixture
async def disarmed() -> AsyncIterator[None]:
    yield
    crashpoints.disarm()


@asynccontextmanager
async def holding(ingest: Ingest, url: str, *keys: str) -> AsyncIterator[None]:
    """While a transaction has written these keys; in the end it is undone."""
    async with servers.connected(url) as holder:
        transaction = holder.transaction()
        await transaction.start()
        for key in keys:
            await holder.execute(
                "INSERT INTO events (event_type, payload, external_id, bucket) "
                "VALUES ('order.paid', '{}', $1, $2)",
                key,
                ingest._bucket_of(an_order(0, key)),
            )
        try:
            yield
        finally:
            await transaction.rollback()


def an_order(number: int, external_id: str | None = None, tenant: str = "") -> NewEvent:
    return NewEvent("order.paid", f'{{"n":  {number}}}', tenant, external_id)


@pytest.mark.parametrize("buckets", [1, 4])
async def test_concurrent_publishes_share_few_inserts_and_each_gets_its_own_event(
    owner: Any, store: Any, ingest: Ingest, buckets: int
) -> None:
    answers = await asyncio.gather(*(ingest.publish(an_order(n)) for n in range(1200)))
    assert len({answer.id for answer in answers}) == 1200
    assert len(store.inserts) <= 4
    rows = await owner.fetch("SELECT id, payload, bucket FROM events")
    stored = {row[0]: row[1] for row in rows}
    assert all(stored[a.id] == f'{{"n":  {n}}}' for n, a in enumerate(answers))
    assert Counter(row[2] for row in rows) == dict.fromkeys(range(buckets), 1200 // buckets)


@pytest.mark.parametrize("external_id", [None, "key"])
async def test_who_publishes_again_as_soon_as_answered_is_answered_again(
    ingest: Ingest, external_id: str | None
) -> None:
    """The writer has just found nobody waiting when the next one comes."""
    async with asyncio.timeout(PATIENCE):
        for number in range(20):
            key = external_id and f"{external_id}-{number}"
            assert (await ingest.publish(an_order(number, key))).id


async def test_a_publish_is_acknowledged_only_when_it_is_committed(
    owner: Any, ingest: Ingest, disarmed: None
) -> None:
    seen: list[int] = []

    async def look() -> None:
        seen.append(await owner.fetchval("SELECT count(*) FROM events"))

    crashpoints.arm("ingest.after_insert", look)
    await ingest.publish(an_order(1))
    await ingest.publish(an_order(2, "key"))
    assert seen == [1, 2]  # visible to another session before the answer


@pytest.mark.parametrize("buckets", [1, 4])
async def test_the_same_key_and_content_gives_the_first_event(
    owner: Any, ingest: Ingest, buckets: int
) -> None:
    first = await ingest.publish(an_order(1, "key"))
    again = await ingest.publish(an_order(1, "key"))
    at_once = await asyncio.gather(*(ingest.publish(an_order(1, "key")) for _ in range(50)))
    assert not first.duplicate
    assert {(a.id, a.created_at, a.duplicate) for a in (again, *at_once)} == {
        (first.id, first.created_at, True)
    }
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


async def test_a_new_key_published_many_times_at_once_is_stored_once(
    owner: Any, ingest: Ingest
) -> None:
    answers = await asyncio.gather(*(ingest.publish(an_order(1, "key")) for _ in range(50)))
    assert len({answer.id for answer in answers}) == 1
    assert sum(not answer.duplicate for answer in answers) == 1
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_key_with_other_content_is_refused_and_fails_nobody_else(
    owner: Any, ingest: Ingest, buckets: int
) -> None:
    await ingest.publish(an_order(1, "key-7"))
    answers = await ingest.publish_all([an_order(n, f"key-{n}") for n in range(20)])
    assert isinstance(answers[7], KeyTaken)
    assert all(isinstance(a, StoredEvent) for n, a in enumerate(answers) if n != 7)
    assert await owner.fetchval("SELECT count(*) FROM events") == 20


async def test_other_spacing_or_another_type_is_other_content(ingest: Ingest) -> None:
    await ingest.publish(NewEvent("order.paid", '{"a":1}', "", "key"))
    for other in (
        NewEvent("order.paid", '{"a": 1}', "", "key"),
        NewEvent("order.sent", '{"a":1}', "", "key"),
    ):
        with pytest.raises(KeyTaken):
            await ingest.publish(other)


async def test_two_contents_of_one_key_at_the_same_moment_store_one(
    owner: Any, ingest: Ingest
) -> None:
    answers = await ingest.publish_all([an_order(n, "key") for n in range(10)])
    assert sum(isinstance(answer, StoredEvent) for answer in answers) == 1
    assert sum(isinstance(answer, KeyTaken) for answer in answers) == 9
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


async def test_tenants_have_keys_of_their_own(ingest: Ingest) -> None:
    one = await ingest.publish(an_order(1, "key", "one"))
    two = await ingest.publish(an_order(2, "key", "two"))
    assert one.id != two.id and not two.duplicate


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_key_held_by_an_open_transaction_delays_nobody_else(
    database_url: str, ingest: Ingest, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holding(ingest, database_url, "held"):
        # However long the held key is waited for, it is longer than the plain events need.
        plain_done, insert_keyed = asyncio.Event(), ingest._store.insert_keyed

        async def stuck(*arguments: Any) -> Any:
            try:
                return await insert_keyed(*arguments)
            except LockHeld:
                await plain_done.wait()
                raise

        monkeypatch.setattr(ingest._store, "insert_keyed", stuck)
        keyed = [ingest.publish(an_order(n, f"free-{n}")) for n in range(50)]
        held = asyncio.ensure_future(ingest.publish(an_order(0, "held")))
        plain = await asyncio.gather(*(ingest.publish(an_order(n)) for n in range(50)))
        plain_done.set()
        answers = await asyncio.gather(*keyed)
        with pytest.raises(KeyHeld, match="transaction that is still open"):
            await held
    assert len({a.id for a in (*plain, *answers)}) == 100
    assert not (await ingest.publish(an_order(0, "held"))).duplicate


@pytest.mark.parametrize("number", [1, 9])
async def test_who_waits_for_held_keys_holds_up_no_other_key(
    database_url: str, ingest: Ingest, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the events without one: nine waits are more than there are connections."""
    monkeypatch.setattr("surehook.actions.heldkeys.HELD_SECONDS_MAX", 100.0)
    keys = [f"held-{n}" for n in range(number)]
    async with holding(ingest, database_url, *keys):
        waiting = [asyncio.ensure_future(ingest.publish(an_order(0, key))) for key in keys]
        for round in range(3):  # in their batch, and while they wait
            free = [an_order(n, f"free-{round}-{n}") for n in range(20)]
            answers = await ingest.publish_all([*free, *(an_order(n) for n in range(20))])
            assert all(isinstance(answer, StoredEvent) for answer in answers)
            assert not any(one.done() for one in waiting)
    assert not any(answer.duplicate for answer in await asyncio.gather(*waiting))


async def test_one_held_key_among_many_is_found_with_few_statements(
    database_url: str, store: Any, ingest: Ingest
) -> None:
    events = [an_order(n, f"key-{n}") for n in range(500)]
    async with holding(ingest, database_url, "key-123"):
        answers = await ingest.publish_all(events)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, KeyHeld)] == [123]
    assert len([keys for keys in store.keys if keys != ["key-123"]]) <= 20


async def test_an_event_that_comes_again_while_its_key_is_held_joins_no_batch(
    database_url: str, store: Any, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehook.actions.heldkeys.REMEMBERED_SECONDS", 1000.0)
    async with holding(ingest, database_url, "held"):
        with pytest.raises(KeyHeld):
            await ingest.publish(an_order(0, "held"))
        store.keys.clear()
        free = [an_order(n, f"free-{n}") for n in range(5)]
        answers = await ingest.publish_all([*free, an_order(0, "held"), an_order(0, "held")])
        assert [isinstance(answer, KeyHeld) for answer in answers] == [False] * 5 + [True] * 2
        assert [keys for keys in store.keys if keys != ["held"]] == [[e.external_id for e in free]]
    answers = await ingest.publish_all([an_order(0, "held"), an_order(1, "held")])
    assert isinstance(answers[0], StoredEvent) and not answers[0].duplicate
    assert isinstance(answers[1], KeyTaken)


async def test_so_many_held_keys_are_waited_for_and_no_more(
    database_url: str, owner: Any, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehook.actions.heldkeys.KEYS_MAX", 3)
    keys = [f"key-{n}" for n in range(20)]
    async with holding(ingest, database_url, *keys[:10]):
        answers = await ingest.publish_all([an_order(0, key) for key in keys])
        assert [isinstance(a, KeyHeld) for a in answers] == [True] * 10 + [False] * 10
    answers = await ingest.publish_all([an_order(0, key) for key in keys])
    assert all(isinstance(answer, StoredEvent) for answer in answers)
    assert await owner.fetchval("SELECT count(*) FROM events") == 20


async def test_an_event_whose_caller_left_while_its_key_was_held_is_not_stored(
    database_url: str, owner: Any, store: Any, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehook.actions.heldkeys.HELD_SECONDS_MAX", 100.0)
    async with holding(ingest, database_url, "held"):
        leaving = ingest.submit(an_order(1, "held"))
        staying = ingest.submit(an_order(2, "held"))
        await until(lambda: len(store.inserts) > 2)
        leaving.give_up()
        with pytest.raises(KeyHeld):
            await leaving.stored
        tried = len(store.inserts)
        await until(lambda: len(store.inserts) > tried)  # a try that was under way has ended
    assert not (await staying.stored).duplicate
    assert await owner.fetchval("SELECT payload FROM events") == an_order(2).payload


@pytest.mark.only_on("postgres", reason="elsewhere no statement has a patience of its own")
async def test_the_patience_of_one_statement_is_not_that_of_the_next(open_store: OpenStore) -> None:
    database: Any = await open_store("ingest")
    await store_of(IngestStore, database).insert_keyed([an_order(1, "key")], [0], 0.005)

    async def patience(session: Any) -> Any:
        return await session.connection.fetchval("SHOW lock_timeout")

    assert await database.run(patience) == "1s"


async def test_in_a_batch_a_held_key_fails_its_own_event_only(
    database_url: str, owner: Any, ingest: Ingest, buckets: int
) -> None:
    async with holding(ingest, database_url, "held"):
        keys = ["free-1", "held", None, "free-2"]
        events = [an_order(number, key) for number, key in enumerate(keys)]
        answers = await ingest.publish_all(events)
    assert [isinstance(answer, KeyHeld) for answer in answers] == [False, True, False, False]
    assert await owner.fetchval("SELECT count(*) FROM events") == 3


@pytest.mark.parametrize("count", [10, 500])
async def test_an_open_transaction_with_other_events_holds_up_no_key(
    database_url: str, store: Any, ingest: Ingest, count: int
) -> None:
    """Also while the table is so small that reading all of it would be cheap."""
    async with servers.connected(database_url) as holder:
        transaction = holder.transaction()
        await transaction.start()
        await an_event(holder)
        await an_event(holder, external_id="key-00")
        answers = await ingest.publish_all([an_order(n, f"key-{n}") for n in range(count)])
        await transaction.rollback()
    assert len({answer.id for answer in answers if isinstance(answer, StoredEvent)}) == count
    assert store.inserts == [count]  # and not each one alone


async def test_who_waits_for_a_held_key_learns_what_became_of_it(
    database_url: str, store: Any, ingest: Ingest
) -> None:
    for kept in (True, False):
        event, before = an_order(0, f"held-{kept}"), len(store.inserts)
        async with servers.connected(database_url) as holder:
            transaction = holder.transaction()
            await transaction.start()
            await an_event(
                holder,
                payload=event.payload,
                external_id=event.external_id,
                bucket=ingest._bucket_of(event),
            )
            asking = asyncio.ensure_future(ingest.publish(event))
            await until(lambda: len(store.inserts) > before)  # noqa: B023
            await (transaction.commit() if kept else transaction.rollback())
        assert (await asking).duplicate is kept


async def test_an_event_that_the_database_refuses_fails_nobody_else(
    owner: Any, ingest: Ingest, on_mysql: bool
) -> None:
    wrong = [
        NewEvent("x" * 101, "{}"),
        NewEvent("order.paid", "{}", tenant="t" * 101),
        NewEvent("order.paid", "{}", external_id="k" * 256),
    ]
    if not on_mysql:  # there a payload is a text: what is JSON we alone decide
        wrong += [
            NewEvent("order.paid", "{not json"),
            NewEvent("order.paid", "{", external_id="key"),
            NewEvent("order.paid", '"\x00"'),
        ]
    good = [an_order(1), an_order(2, "another")]
    answers = await asyncio.gather(
        *(ingest.publish(event) for event in (*wrong, *good)), return_exceptions=True
    )
    assert all(isinstance(answer, UsageError) for answer in answers[: len(wrong)]), answers
    assert all(isinstance(answer, StoredEvent) for answer in answers[len(wrong) :]), answers
    assert await owner.fetchval("SELECT count(*) FROM events") == len(good)


async def test_a_database_that_is_gone_gives_an_error_and_no_acknowledgement(
    owner: Any, server: Server, ingest: Ingest
) -> None:
    await ingest.publish(an_order(0))
    name = await owner.fetchval("SELECT current_database()")
    async with servers.out_of_reach(server, name):
        answers = await asyncio.gather(
            *(ingest.publish(an_order(n)) for n in range(20)),
            *(ingest.publish(an_order(n, f"key-{n}")) for n in range(20)),
            return_exceptions=True,
        )
        assert all(isinstance(answer, DatabaseUnreachable) for answer in answers), answers
        assert await owner.fetchval("SELECT count(*) FROM events") == 1
    assert (await ingest.publish(an_order(1))).id  # and it goes on


@pytest.mark.only_on("postgres", reason="MySQL waits for a table as long as a statement may take")
async def test_a_table_that_is_locked_for_long_is_no_fault_of_ours(
    owner: Any, ingest: Ingest
) -> None:
    async with dialects.nobody_writes_events(owner):
        with pytest.raises(Busy, match="is locked"):
            await ingest.publish(an_order(1))
    assert (await ingest.publish(an_order(1))).id


async def test_the_connection_cut_during_the_insert_acknowledges_nothing(
    owner: Any, ingest: Ingest, database_url: str
) -> None:
    async with dialects.nobody_writes_events(owner):
        publishing = asyncio.ensure_future(ingest.publish(an_order(1)))
        async with servers.connected(database_url) as other:
            await until(lambda: dialects.sessions(other, "ingest", waiting=True))
            await dialects.end_sessions(other, "ingest")
        with pytest.raises(DatabaseUnreachable):
            await publishing
    assert await owner.fetchval("SELECT count(*) FROM events") == 0


async def test_a_caller_that_leaves_does_not_disturb_the_others(owner: Any, ingest: Ingest) -> None:
    leaving = asyncio.ensure_future(ingest.publish(an_order(1)))
    staying = asyncio.ensure_future(ingest.publish(an_order(2)))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).id
    assert await owner.fetchval("SELECT count(*) FROM events") == 2


@pytest.mark.parametrize("buckets", [1, 4])
async def test_each_bucket_that_got_an_event_is_hinted_after_the_commit(
    owner: Any, store: Any, buckets: int
) -> None:
    hints = Hints()
    heard: list[int] = []
    hints.on(Channel.EVENTS, lambda bucket, _: heard.append(bucket))
    ingest = Ingest(store, hints, buckets)
    with facts() as reported:
        await asyncio.gather(*(ingest.publish(an_order(n)) for n in range(8)))
    assert set(heard) == set(range(buckets))
    accepted = [fields for name, fields in reported if name == "event.accepted"]
    assert len({fields["correlation_id"] for fields in accepted}) == 8
    assert {fields["delivery_status"] for fields in accepted} == {"Accepted"}
