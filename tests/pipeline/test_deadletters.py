"""Dead letters: every death written down once, requeued at most once, nothing old touched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support import Configure, OpenStore, servers
from support.clock import Clock
from support.pipeline import facts, running
from support.rows import a_dead_letter, a_saga, a_subscription, an_event, many_sagas
from support.waiting import until_row
from surehook.actions.requeue import Requeue
from surehook.model.error_codes import ErrorCode
from surehook.model.records import Requeued
from surehook.model.resources.dead_letter import DeadLetterFilter
from surehook.model.states import SagaStatus
from surehook.pipeline.deadletters import DeadLetters
from surehook.store import store_of
from surehook.store.deadletters import DeadLetterStore
from surehook.store.hints import Channel, Hints
from surehook.store.logins import DatabaseAccess

PAYLOAD = '{"b": 1,  "a":[1.0, 2e3], "a": "é\\u0000"}'
DEAD = SagaStatus.DEAD_LETTERED


@pytest.fixture
async def store(open_store: OpenStore) -> DeadLetterStore:
    return store_of(DeadLetterStore, await open_store("deadletters"))


@pytest.fixture
def requeue(store: DeadLetterStore, buckets: int) -> Requeue:
    return Requeue(store, Hints(), range(buckets))


def sweeper(store: DeadLetterStore, buckets: int = 1) -> DeadLetters:
    return DeadLetters(store, Hints(), range(buckets))


async def swept(sweep: DeadLetters) -> None:
    """Whole rounds until it rests."""
    for _ in range(100):
        if await sweep.step() > 0:
            return
    raise AssertionError("the sweep never came to rest")


async def written(owner: Any) -> set[int]:
    rows = await owner.fetch("SELECT saga_id FROM dead_letters")
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0] for row in rows}


async def deaths(owner: Any, count: int, seconds_ago: float = 0, bucket: int = 0) -> set[int]:
    """Dead sagas in bulk, each of an event of its own."""
    return set(
        await many_sagas(owner, 1, count, status=DEAD, updated_ago=seconds_ago, buckets=[bucket])
    )


# ── The sweep ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_death_is_written_down_with_time_error_and_payload(
    owner: Any, store: DeadLetterStore, clock: Clock, buckets: int
) -> None:
    bucket = buckets - 1
    event = await an_event(owner, payload=PAYLOAD, bucket=bucket)
    saga_id = await a_saga(owner, event_id=event, status=DEAD, error_code="GONE", bucket=bucket)
    died = await owner.fetchval("SELECT updated_at FROM webhook_delivery_sagas")
    for status in SagaStatus:
        if status is not DEAD:
            await a_saga(owner, status=status, bucket=bucket)
    await clock.shift(30)
    with facts() as reported:
        await swept(sweeper(store, buckets))
        await swept(sweeper(store, buckets))
    row = await owner.fetchrow("SELECT * FROM dead_letters")
    assert await written(owner) == {saga_id}
    assert row["payload_snapshot"] == PAYLOAD
    assert (row["event_id"], row["final_error_code"], row["failed_at"], row["bucket"]) == (
        event,
        "GONE",
        died,
        bucket,
    )
    ((name, fields),) = reported
    assert name == "dead_letter.written" and fields["error_code"] == "GONE"


async def test_the_sweep_finds_all_in_pages_and_goes_on_from_there(
    owner: Any, store: DeadLetterStore
) -> None:
    known = await deaths(owner, 1200, seconds_ago=300)
    known |= await deaths(owner, 600, seconds_ago=100)
    sweep = sweeper(store)
    await swept(sweep)
    assert await written(owner) == known
    known |= await deaths(owner, 10)
    await swept(sweep)
    assert await written(owner) == known
    known |= await deaths(owner, 10)
    await swept(sweeper(store))  # another process, from the saved cursor
    assert await written(owner) == known


async def test_a_death_that_commits_late_is_found(
    owner: Any, store: DeadLetterStore, database_url: str
) -> None:
    """Its time lies before deaths that were written down already."""
    saga_id = await a_saga(owner, status=SagaStatus.IN_PROGRESS)
    sweep = sweeper(store)
    async with servers.connected(database_url) as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute(
            "UPDATE webhook_delivery_sagas SET status = 'DeadLettered', attempt_count = 1, "
            "updated_at = surehook_now() - interval '30 seconds' WHERE id = $1",
            saga_id,
        )
        early = await deaths(owner, 3)
        await swept(sweep)
        assert await written(owner) == early
        await transaction.commit()
    await swept(sweep)
    assert await written(owner) == early | {saga_id}


@pytest.mark.parametrize("restarted", [False, True])
async def test_deaths_after_the_clock_was_set_back_are_found(
    owner: Any, store: DeadLetterStore, clock: Clock, restarted: bool
) -> None:
    known = await deaths(owner, 5)
    sweep = sweeper(store)
    await swept(sweep)
    await clock.shift(-7200)
    if restarted:  # nobody swept while these died
        known |= await deaths(owner, 5, seconds_ago=1800)
        sweep = sweeper(store)
    for _ in range(3):
        known |= await deaths(owner, 5)
        sweep._sweeps[0].save_due = 0.0  # as if five seconds had passed
        await swept(sweep)
        await swept(sweep)
        assert await written(owner) == known
    await clock.shift(7200)  # and right again
    known |= await deaths(owner, 5)
    await swept(sweep)
    await swept(sweep)
    assert await written(owner) == known


async def test_an_idle_sweep_does_not_read_old_deaths_again_and_again(
    owner: Any, store: DeadLetterStore, clock: Clock
) -> None:
    await deaths(owner, 1200)
    sweep = sweeper(store)
    await swept(sweep)
    await clock.shift(600)
    sweep._sweeps[0].save_due = 0.0
    await swept(sweep)  # moves on to the present
    assert await sweep.step() > 0, "more than one page was read although nothing died"
    await sweep._begin(sweep._sweeps[0])
    after = sweep._sweeps[0].after
    assert after is not None
    assert await store.dead_sagas(0, after, 10) == ([], None, False)


async def test_a_hinted_death_is_written_at_once(
    owner: Any, configure: Configure, access: DatabaseAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sweep would find it only after this test has ended.
    monkeypatch.setattr(DeadLetters.__init__, "__defaults__", (600.0,))
    async with running(configure(), access, ["deadletters"]) as process:
        await until_row(owner, "SELECT count(*) > 0 FROM dead_letter_cursor")
        saga_id = await a_saga(owner, status=DEAD)
        process.hints.hint(Channel.DEATHS, 0, [saga_id, 10**9])
        await until_row(owner, "SELECT count(*) FROM dead_letters", wanted=1)


async def test_sweeps_side_by_side_write_each_death_once(owner: Any, open_store: OpenStore) -> None:
    known = await deaths(owner, 700)
    sweeps = [sweeper(store_of(DeadLetterStore, await open_store("deadletters"))) for _ in range(4)]
    await asyncio.gather(*(swept(sweep) for sweep in sweeps))
    assert await written(owner) == known


# ── Requeue ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_requeue_makes_a_new_saga_and_touches_nothing_old(
    owner: Any, requeue: Requeue, buckets: int
) -> None:
    bucket = buckets - 1
    letter = await a_dead_letter(owner, bucket=bucket)
    old = await owner.fetchrow("SELECT * FROM webhook_delivery_sagas")
    jobs = await owner.fetch("SELECT * FROM webhook_delivery_jobs")
    (answer,) = await requeue.by_id([letter])
    assert answer.created and answer.deliverable and answer.saga_id is not None
    new = await owner.fetchrow("SELECT * FROM webhook_delivery_sagas WHERE id = $1", answer.saga_id)
    assert (new["event_id"], new["subscription_id"], new["bucket"]) == (
        old["event_id"],
        old["subscription_id"],
        bucket,
    )
    assert (new["status"], new["attempt_count"], new["requeued_from"]) == ("Pending", 0, letter)
    assert new["next_attempt_at"] >= old["updated_at"]
    assert old == await owner.fetchrow(
        "SELECT * FROM webhook_delivery_sagas WHERE id = $1", old["id"]
    )
    assert jobs == await owner.fetch("SELECT * FROM webhook_delivery_jobs")


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_hundred_concurrent_requeues_give_one_new_saga(
    owner: Any, open_store: OpenStore, buckets: int
) -> None:
    letter = await a_dead_letter(owner, bucket=buckets - 1)
    old = await owner.fetchrow("SELECT * FROM webhook_delivery_sagas")
    several = [
        Requeue(store_of(DeadLetterStore, await open_store("deadletters")), Hints(), range(buckets))
        for _ in range(4)
    ]
    with facts() as reported:
        answers = await asyncio.gather(*(several[n % 4].by_id([letter]) for n in range(100)))
    assert len({answer.saga_id for (answer,) in answers}) == 1
    assert sum(answer.created for (answer,) in answers) == 1
    assert len([name for name, _ in reported if name == "dead_letter.requeued"]) == 1
    assert await owner.fetchval("SELECT count(*) FROM webhook_delivery_sagas") == 2
    assert old == await owner.fetchrow(
        "SELECT * FROM webhook_delivery_sagas WHERE id = $1", old["id"]
    )


@pytest.mark.parametrize("column", ["active", "verified"])
async def test_a_subscription_that_cannot_be_delivered_to_gets_no_new_saga(
    owner: Any, requeue: Requeue, column: str
) -> None:
    letter = await a_dead_letter(owner)
    await owner.execute(f"UPDATE subscriptions SET {column} = false")
    (answer,) = await requeue.by_id([letter])
    assert (answer.saga_id, answer.created, answer.deliverable) == (None, False, False)
    assert await owner.fetchval("SELECT count(*) FROM webhook_delivery_sagas") == 1
    await owner.execute(f"UPDATE subscriptions SET {column} = true")
    (answer,) = await requeue.by_id([letter])
    assert answer.created


async def test_a_requeued_one_tells_its_saga_also_when_it_can_no_longer_be_delivered(
    owner: Any, requeue: Requeue
) -> None:
    letter = await a_dead_letter(owner)
    (first,) = await requeue.by_id([letter])
    await owner.execute("UPDATE subscriptions SET active = false")
    (again,) = await requeue.by_id([letter])
    assert (again.saga_id, again.created, again.deliverable) == (first.saga_id, False, False)


async def test_an_unknown_dead_letter_is_missing_from_the_answer(
    owner: Any, requeue: Requeue
) -> None:
    letter = await a_dead_letter(owner)
    assert [a.dead_letter_id for a in await requeue.by_id([letter, 10**9])] == [letter]


async def test_every_part_of_the_filter_is_respected(
    owner: Any, requeue: Requeue, clock: Clock
) -> None:
    letters: dict[str, int] = {}
    subscriptions: dict[str, int] = {}
    for name, tenant, event_type, code in (
        ("plain", "", "a", "GONE"),
        ("tenant", "t", "a", "GONE"),
        ("type", "", "b", "GONE"),
        ("code", "", "a", "TIMEOUT"),
    ):
        subscriptions[name] = await a_subscription(owner, tenant=tenant, event_type=event_type)
        event = await an_event(owner, tenant=tenant, event_type=event_type)
        saga = await a_saga(
            owner,
            event_id=event,
            subscription_id=subscriptions[name],
            status=DEAD,
            error_code=code,
        )
        letters[name] = await a_dead_letter(owner, saga_id=saga)
    between = await clock.now()
    await clock.shift(60)
    late = await a_dead_letter(owner)
    everything = {*letters.values(), late}

    async def found(wanted: DeadLetterFilter) -> set[int]:
        ids = await requeue.matching(wanted, 100, dry_run=True)
        return {i for i in ids if isinstance(i, int)}

    assert await found(DeadLetterFilter()) == everything
    assert await found(DeadLetterFilter(tenant="t")) == {letters["tenant"]}
    assert await found(DeadLetterFilter(tenant="")) == everything - {letters["tenant"]}
    assert await found(DeadLetterFilter(subscription_id=subscriptions["type"])) == {letters["type"]}
    assert await found(DeadLetterFilter(event_type="b")) == {letters["type"]}
    assert await found(DeadLetterFilter(error_code=ErrorCode.TIMEOUT)) == {letters["code"]}
    assert await found(DeadLetterFilter(failed_from=between)) == {late}
    assert await found(DeadLetterFilter(failed_until=between)) == everything - {late}
    assert await found(DeadLetterFilter(event_type="a", error_code=ErrorCode.GONE, tenant="")) == {
        letters["plain"]
    }
    assert await found(DeadLetterFilter(tenant="nobody")) == set()
    assert (
        await owner.fetchval("SELECT count(*) FROM webhook_delivery_sagas WHERE requeued_from > 0")
        == 0
    ), "a dry run wrote something"


async def test_a_rare_filter_looks_at_a_bounded_number_per_statement(
    owner: Any, store: DeadLetterStore
) -> None:
    letters = [await a_dead_letter(owner) for _ in range(5)]
    rare = await a_saga(owner, status=DEAD, error_code="GONE")
    letters.append(await a_dead_letter(owner, saga_id=rare))
    wanted = DeadLetterFilter(error_code=ErrorCode.GONE)
    after_id: int | None = 0
    seen: list[tuple[list[int], int | None]] = []
    while after_id is not None:
        found, after_id = await store.find(0, wanted, after_id, 4)
        seen.append(([int(one) for one in found], after_id))
    assert seen == [([], letters[3]), ([letters[5]], letters[5]), ([], None)]


@pytest.mark.parametrize("buckets", [1, 4])
async def test_many_are_requeued_up_to_the_limit_and_none_twice(
    owner: Any, requeue: Requeue, buckets: int
) -> None:
    subscription = await a_subscription(owner)
    for bucket in range(buckets):
        for _ in range(24 // buckets):
            saga = await a_saga(owner, subscription_id=subscription, status=DEAD, bucket=bucket)
            await a_dead_letter(owner, saga_id=saga, bucket=bucket)
    wanted = DeadLetterFilter(subscription_id=subscription)
    dry = await requeue.matching(wanted, 10, dry_run=True)
    assert len(dry) == 10
    first = await requeue.matching(wanted, 10)
    assert {a.dead_letter_id for a in first if isinstance(a, Requeued)} == set(dry)
    second = await requeue.matching(wanted, 100)
    assert len(second) == 14
    assert await requeue.matching(wanted, 100) == []
    assert (
        await owner.fetchval(
            "SELECT count(DISTINCT requeued_from) FROM webhook_delivery_sagas "
            "WHERE requeued_from > 0"
        )
        == 24
    )


async def test_a_requeue_hints_the_orchestrator(owner: Any, store: DeadLetterStore) -> None:
    hints, heard = Hints(), list[int]()
    hints.on(Channel.SAGAS, lambda bucket, _: heard.append(bucket))
    letter = await a_dead_letter(owner)
    for _ in range(2):
        await Requeue(store, hints, [0]).by_id([letter])
    assert heard == [0]
