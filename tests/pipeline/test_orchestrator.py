"""Orchestrator: one job per attempt, one effect per result, caps exact, nobody starved."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from support import Configure, OpenStore, dialects, servers
from support.clock import Clock
from support.pipeline import DELIVERED, UNFINISHED, FakeSender, broken_invariants, running
from support.rows import a_job, a_saga, a_subscription, an_event, many_sagas
from support.waiting import until, until_row
from surehook.delivery import Outcome, Request
from surehook.model.error_codes import ErrorCode
from surehook.model.records import Lane, SagaId, Share
from surehook.model.retry import Policy
from surehook.model.states import Attempt, JobResult, JobStatus, SagaStatus, decide
from surehook.observe import crashpoints
from surehook.pipeline.orchestrator import PERMANENT, POLL_MAX_SECONDS, WALK_SECONDS, Orchestrator
from surehook.store import store_of
from surehook.store.hints import Channel, Hints
from surehook.store.logins import DatabaseAccess
from surehook.store.orchestrator import NO_CAPS, Caps, OrchestratorStore

POLICY = Policy(max_attempts=5, base_delay_seconds=30, max_delay_seconds=3600)
ACTIVE = "SELECT count(*) FROM webhook_delivery_jobs WHERE status IN ('Pending', 'Leased')"
Make = Callable[..., Awaitable[Orchestrator]]


@pytest.fixture
def orchestrator(open_store: OpenStore, buckets: int) -> Make:
    async def make(caps: Caps = NO_CAPS, **how: Any) -> Orchestrator:
        store = store_of(OrchestratorStore, await open_store("orchestrator"), caps)
        return Orchestrator(store, Hints(), range(buckets), policy=POLICY, **how)

    return make


@pytest.fixture(autouse=True)
async def disarmed() -> AsyncIterator[None]:
    yield
    crashpoints.disarm()


async def sagas_for(
    owner: Any,
    subscription_id: int,
    count: int,
    *,
    status: SagaStatus = SagaStatus.PENDING,
    age: float = 10,
    event_type: str = "other",
    buckets: int = 1,
) -> list[int]:
    """Sagas that have been due for `age` seconds, all of one event each."""
    return await many_sagas(
        owner,
        subscription_id,
        count,
        status=status,
        due_ago=age,
        event_type=event_type,
        buckets=range(buckets),
    )


async def jobs_per_subscription(owner: Any) -> dict[int, int]:
    rows = await owner.fetch(
        "SELECT subscription_id, count(*) FROM webhook_delivery_jobs GROUP BY 1"
    )
    return {row[0]: row[1] for row in rows}


async def end_jobs(owner: Any, status: str = "Completed") -> None:
    await owner.execute(
        "UPDATE webhook_delivery_jobs SET status = 'Leased', lease_token = 1 "
        "WHERE status = 'Pending'"
    )
    await owner.execute(
        "UPDATE webhook_delivery_jobs SET status = $1, finished_at = surehook_now(), "
        "error_code = CASE $1::job_status WHEN 'Failed' THEN 'HTTP_5XX' END "
        "WHERE status = 'Leased'",
        status,
    )


# ── Create ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_due_saga_gets_the_job_of_its_attempt_and_is_in_progress(
    owner: Any, orchestrator: Make, buckets: int
) -> None:
    subscription = await a_subscription(owner)
    await sagas_for(owner, subscription, 8, buckets=buckets)
    await sagas_for(owner, subscription, 8, buckets=buckets, status=SagaStatus.PENDING_RETRY)
    later = await sagas_for(owner, subscription, 4, age=-60, status=SagaStatus.PENDING_RETRY)
    await (await orchestrator()).step()
    rows = await owner.fetch(
        "SELECT s.id, s.status, j.status FROM webhook_delivery_sagas s "
        "LEFT JOIN webhook_delivery_jobs j ON j.saga_id = s.id AND j.bucket = s.bucket "
        "AND j.attempt_at = s.next_attempt_at AND j.event_id = s.event_id"
    )
    assert Counter((row[1], row[2]) for row in rows if row[0] not in later) == {
        ("InProgress", "Pending"): 16
    }
    assert {(row[1], row[2]) for row in rows if row[0] in later} == {("PendingRetry", None)}
    assert len(rows) == 20


@pytest.mark.parametrize("ended", [False, True])
async def test_a_crash_between_the_job_and_the_sagas_start_is_repaired(
    owner: Any, orchestrator: Make, ended: bool
) -> None:
    subscription = await a_subscription(owner)
    await sagas_for(owner, subscription, 20)
    broken = await orchestrator()
    crashpoints.arm("orchestrator.after_create", crashpoints.crash)
    with pytest.raises(crashpoints.Crash):
        await broken.step()
    assert await owner.fetchval(ACTIVE) == 20
    assert (
        await owner.fetchval("SELECT count(*) FROM webhook_delivery_sagas WHERE status = 'Pending'")
        == 20
    )
    crashpoints.disarm()
    if ended:
        await end_jobs(owner)  # delivered, and the result hinted and dropped meanwhile
    another = await orchestrator()
    await another.step()
    if not ended:
        await end_jobs(owner)
    await until(lambda: _stepped(another, owner))
    assert await jobs_per_subscription(owner) == {subscription: 20}


async def test_a_full_cap_of_jobs_whose_sagas_were_never_started_is_repaired(
    owner: Any, orchestrator: Make
) -> None:
    """The cap is used up by exactly those jobs: their end makes room for the repair."""
    subscription = await a_subscription(owner, concurrency_cap=5)
    await sagas_for(owner, subscription, 30)
    broken = await orchestrator()
    crashpoints.arm("orchestrator.after_create", crashpoints.crash)
    with pytest.raises(crashpoints.Crash):
        await broken.step()
    crashpoints.disarm()
    another = await orchestrator()

    async def work() -> bool:
        await end_jobs(owner)
        return await _stepped(another, owner)

    await until(work)
    assert await jobs_per_subscription(owner) == {subscription: 30}


async def _stepped(orchestrator: Orchestrator, owner: Any) -> bool:
    await orchestrator.step()
    return bool(await owner.fetchval(UNFINISHED) == 0)


async def until_created(each: Orchestrator, owner: Any, count: str, wanted: int) -> None:
    """Steps until at least so many have been created: some looks are due only every so often."""

    async def created() -> bool:
        await each.step()
        return bool(await owner.fetchval(count) >= wanted)

    await until(created)


async def test_two_orchestrators_create_one_job_per_attempt(owner: Any, orchestrator: Make) -> None:
    subscriptions = [await a_subscription(owner, concurrency_cap=1000) for _ in range(5)]
    for subscription in subscriptions:
        await sagas_for(owner, subscription, 100)
    both = [await orchestrator(), await orchestrator()]
    for _ in range(10):
        await asyncio.gather(*(each.step() for each in both))
    assert await jobs_per_subscription(owner) == dict.fromkeys(subscriptions, 100)


# ── Apply ─────────────────────────────────────────────────────────────────────────────────────

CODES: tuple[ErrorCode | None, ...] = (
    ErrorCode.HTTP_5XX,
    ErrorCode.GONE,
    ErrorCode.SUBSCRIPTION_INACTIVE,
    ErrorCode.BLOCKED_ADDRESS,
    ErrorCode.LEASE_EXPIRED,
)


@pytest.mark.parametrize(
    "policy",
    [POLICY, Policy(max_attempts=100, base_delay_seconds=0.001, max_delay_seconds=6 * 3600)],
)
async def test_bulk_apply_decides_what_states_decides_row_by_row(
    owner: Any, open_store: OpenStore, clock: Clock, policy: Policy
) -> None:
    overrides: list[tuple[int | None, float | None]] = [
        (None, None),
        (1, None),
        (3, 0.5),
        (None, 7200.0),
        (60, 2.0),
    ]
    subscriptions = {
        await a_subscription(owner, max_attempts=most, base_delay_seconds=base): (most, base)
        for most, base in overrides
    }
    cases = [
        (subscription, saga, count, job, code, retry_after)
        for subscription in subscriptions
        for saga in SagaStatus
        for count in (0, 1, 2, 3, 4, 5, 39, 40, 41, 59, 1000)
        for job in JobStatus
        for code in (CODES if job is JobStatus.FAILED else (None,))
        for retry_after in ((None, 0, 10, 86_400) if code is ErrorCode.HTTP_5XX else (None,))
    ]
    first = await owner.fetchval("SELECT coalesce(max(id), 0) + 1 FROM webhook_delivery_sagas")
    ids = range(first, first + len(cases))
    now = await clock.now()
    await dialects.without_guards(owner)  # active jobs of finished sagas are among the cases
    await owner.executemany(
        "INSERT INTO webhook_delivery_sagas (id, event_id, subscription_id, status, "
        "attempt_count, final_error_code, next_attempt_at, updated_at) "
        "VALUES ($1, $1, $2, $3, $4, 'BEFORE', $5, $5)",
        [(i, c[0], c[1], c[2], now) for i, c in zip(ids, cases, strict=True)],
    )
    await owner.executemany(
        "INSERT INTO webhook_delivery_jobs (id, saga_id, event_id, subscription_id, status, "
        "attempt_at, error_code, retry_after) VALUES ($1, $1, $1, $2, $3, $4, $5, $6)",
        [(i, c[0], c[3], now, c[4], c[5]) for i, c in zip(ids, cases, strict=True)],
    )
    before = {row["id"]: row for row in await owner.fetch("SELECT * FROM webhook_delivery_sagas")}
    store = store_of(OrchestratorStore, await open_store("orchestrator"))
    applied = {int(r.saga_id): r for r in await store.apply_results(0, ids, policy, PERMANENT)}
    after = {row["id"]: row for row in await owner.fetch("SELECT * FROM webhook_delivery_sagas")}
    for saga_id, case in zip(ids, cases, strict=True):
        subscription, status, count, job, code, retry_after = case
        most, base = subscriptions[subscription]
        own = Policy(
            most or policy.max_attempts,
            base or policy.base_delay_seconds,
            policy.max_delay_seconds,
        )
        result = JobResult(job, code, bool(code and code.permanent), retry_after)
        change = decide(Attempt(status, count), result, own)
        row, old = after[saga_id], before[saga_id]
        if change is None:
            assert row == old and saga_id not in applied, case
            continue
        assert row["status"] == change.target == applied[SagaId(saga_id)].status, case
        counted = applied[SagaId(saga_id)].attempt_count
        assert row["attempt_count"] == change.attempt_count == counted, case
        assert row["final_error_code"] == (change.final_error_code or "BEFORE"), case
        if change.target is SagaStatus.PENDING_RETRY:
            delay = (row["next_attempt_at"] - row["updated_at"]).total_seconds()
            assert delay == pytest.approx(change.delay_seconds, abs=2e-6), case
            assert row["next_attempt_at"] > old["next_attempt_at"], case
        else:
            assert row["next_attempt_at"] == old["next_attempt_at"], case


async def test_the_next_attempt_never_goes_back_even_if_the_clock_does(
    owner: Any, orchestrator: Make, clock: Clock
) -> None:
    saga_id = await a_saga(owner, status=SagaStatus.IN_PROGRESS)
    before = await owner.fetchval("SELECT next_attempt_at FROM webhook_delivery_sagas")
    await end_jobs(owner, "Failed")
    await clock.shift(-3600)
    await (await orchestrator()).step()
    row = await owner.fetchrow(
        "SELECT status, next_attempt_at FROM webhook_delivery_sagas WHERE id = $1", saga_id
    )
    assert row[0] == "PendingRetry"
    assert (row[1] - before).total_seconds() == pytest.approx(1e-6)


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_result_is_applied_once_by_however_many_orchestrators(
    owner: Any, open_store: OpenStore, buckets: int
) -> None:
    subscription = await a_subscription(owner)
    ids = [
        await a_saga(
            owner, subscription_id=subscription, status=SagaStatus.IN_PROGRESS, bucket=n % buckets
        )
        for n in range(60)
    ]
    await end_jobs(owner, "Failed")
    stores = [store_of(OrchestratorStore, await open_store("orchestrator")) for _ in range(4)]
    answers = await asyncio.gather(
        *(
            store.apply_results(bucket, random.sample(ids, len(ids)), POLICY, PERMANENT)
            for store in stores * 3
            for bucket in range(buckets)
        )
    )
    assert sorted(r.saga_id for applied in answers for r in applied) == sorted(ids)
    assert await owner.fetchval("SELECT sum(attempt_count) FROM webhook_delivery_sagas") == 60


async def test_a_result_of_an_earlier_attempt_is_not_applied_again(
    owner: Any, orchestrator: Make, clock: Clock
) -> None:
    saga_id = await a_saga(owner, status=SagaStatus.PENDING_RETRY)
    await a_job(owner, saga_id=saga_id)
    await owner.execute("UPDATE webhook_delivery_sagas SET status = 'InProgress'")
    each = await orchestrator()
    each.heard(Channel.RESULTS, 0, [saga_id])
    await each.step()
    row = await owner.fetchrow("SELECT status, attempt_count FROM webhook_delivery_sagas")
    assert tuple(row) == ("InProgress", 1)


async def test_the_walk_finds_results_without_any_hint_and_beyond_one_page(
    owner: Any, orchestrator: Make
) -> None:
    subscription = await a_subscription(owner, concurrency_cap=1000)
    await sagas_for(owner, subscription, 300)
    each = await orchestrator(batch=50)
    for _ in range(10):
        await each.step()
    await end_jobs(owner)
    await until(lambda: _stepped(each, owner))


# ── The delay before InProgress ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("hints", ["in process", "notify", "none"])
async def test_results_that_come_before_in_progress_are_not_lost(
    owner: Any,
    configure: Configure,
    access: DatabaseAccess,
    open_store: OpenStore,
    database_url: str,
    hints: str,
) -> None:
    """Jobs are leased, sent and reported while their sagas still wait to become InProgress."""
    early = 0

    async def delay() -> None:
        nonlocal early
        sagas = "SELECT count(*) FROM webhook_delivery_sagas WHERE status = 'Pending'"
        waiting = await watcher.fetchval(sagas)
        await until_row(watcher, ACTIVE, wanted=0)  # every job has ended …
        assert await watcher.fetchval(sagas) == waiting  # … and no saga has begun
        early += 1

    crashpoints.arm("orchestrator.after_create", delay)
    for event_type in map("type-{}".format, range(10)):
        subscription = await a_subscription(owner, event_type=event_type)
        await sagas_for(owner, subscription, 30, event_type=event_type)
    config = configure({"orchestrator.batch": 100})
    async with AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(servers.connected(database_url))
        if hints == "in process":
            await stack.enter_async_context(running(config, access, ["orchestrator", "worker"]))
        else:
            for name in ("worker", "orchestrator"):
                process = await stack.enter_async_context(running(config, access, [name]))
                if hints == "none":
                    process.hints.send_outward(None)
        await until_row(owner, UNFINISHED, wanted=0)
    assert early >= 3
    assert await broken_invariants(open_store) == {}


# ── Limits ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("buckets", "size"), [(1, 300), (4, 300)])
async def test_four_orchestrators_never_exceed_a_cap_of_ten(
    owner: Any,
    configure: Configure,
    access: DatabaseAccess,
    database_url: str,
    buckets: int,
    size: int,
) -> None:
    subscriptions = [await a_subscription(owner, concurrency_cap=10) for _ in range(2)]
    for subscription in subscriptions:
        await sagas_for(owner, subscription, size, buckets=buckets)
    most = 0
    looks = 0
    done = asyncio.Event()

    async def watch() -> None:
        nonlocal most, looks
        async with servers.connected(database_url) as watcher:
            while not done.is_set():
                counts = await watcher.fetch(f"{ACTIVE} GROUP BY subscription_id")
                most = max([most, *(row[0] for row in counts)])
                looks += 1

    async def slow(_: Request) -> Outcome:
        await asyncio.sleep(random.uniform(0, 0.02))
        return DELIVERED

    sender = FakeSender(slow)
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(running(configure(), access, ["orchestrator"]))
        await stack.enter_async_context(running(configure(), access, ["worker"], sender))
        watching = [asyncio.ensure_future(watch()) for _ in range(2)]
        await until_row(owner, UNFINISHED, wanted=0)
        done.set()
        await asyncio.gather(*watching)
    assert looks > 100
    assert most == 10
    assert sender.most_at_once <= 20


async def test_a_change_of_the_cap_takes_effect(owner: Any, orchestrator: Make) -> None:
    subscription = await a_subscription(owner, concurrency_cap=3)
    await sagas_for(owner, subscription, 50)
    each = await orchestrator()
    await each.step()
    assert await owner.fetchval(ACTIVE) == 3
    await owner.execute("UPDATE subscriptions SET concurrency_cap = NULL")
    for _ in range(3):
        await each.step()
    assert await owner.fetchval(ACTIVE) == 32


async def test_a_lowered_ceiling_takes_effect_on_subscriptions_that_exist(
    owner: Any, orchestrator: Make, clock: Clock
) -> None:
    await clock.stop()
    await sagas_for(owner, await a_subscription(owner, concurrency_cap=100_000), 100)
    each = await orchestrator(Caps(default=32, most=40))
    for _ in range(3):
        await each.step()
    assert await owner.fetchval(ACTIVE) == 40
    lower = await orchestrator(Caps(default=32, most=40, rate=2))
    await end_jobs(owner)
    for _ in range(3):
        await lower.step()  # at first one, then what the time since allows
    assert await owner.fetchval(ACTIVE) == 1
    await clock.shift(10)
    for _ in range(3):
        await lower.step()
    assert await owner.fetchval(ACTIVE) == 3


async def test_a_new_subscription_begins_slowly_and_gets_its_cap_when_it_answers(
    owner: Any, orchestrator: Make
) -> None:
    subscription = await a_subscription(owner)
    await sagas_for(owner, subscription, 60)
    each = await orchestrator(Caps(first_ramp=2))
    seen = []
    for _ in range(3):
        for _ in range(3):
            await each.step()
        seen.append(await owner.fetchval(ACTIVE))
        await end_jobs(owner)
        sagas = await owner.fetch("SELECT id FROM webhook_delivery_sagas")
        each.heard(Channel.RESULTS, 0, [row[0] for row in sagas])
        await each.step()
    assert seen == [2, 8, 32]


async def test_an_endpoint_that_hangs_gets_one_request_at_a_time_until_it_answers(
    owner: Any, orchestrator: Make, clock: Clock
) -> None:
    subscription = await a_subscription(owner)
    sagas = await sagas_for(owner, subscription, 32)
    each = await orchestrator()
    state = "SELECT slow, ramp FROM orchestrator_subscriptions"
    await each.step()
    # Nothing has ended yet, but everybody can see that it hangs.
    await owner.execute(
        "UPDATE webhook_delivery_jobs SET status = 'Leased', lease_token = 1, "
        "started_at = surehook_now()"
    )
    await clock.shift(5)

    async def known_to_be_slow() -> bool:
        await each.step()
        return tuple(await owner.fetchrow(state)) == (True, 0)

    await until(known_to_be_slow)
    await end_jobs(owner, "Failed")
    each.heard(Channel.RESULTS, 0, sagas)
    await each.step()
    assert tuple(await owner.fetchrow(state)) == (True, 1)
    sagas += await sagas_for(owner, subscription, 20)
    another = await orchestrator()
    for _ in range(3):
        await another.step()
    rows = await owner.fetch(
        "SELECT lane, count(*) FROM webhook_delivery_jobs WHERE status = 'Pending' GROUP BY lane"
    )
    assert [tuple(row) for row in rows] == [(Lane.SLOW, 1)]
    await end_jobs(owner)
    another.heard(Channel.RESULTS, 0, sagas)
    await another.step()
    assert tuple(await owner.fetchrow(state)) == (False, 4)


async def test_what_hangs_is_bounded_as_a_whole_and_leaves_places_to_other_tenants(
    owner: Any, orchestrator: Make
) -> None:
    for number in range(60):
        subscription = await a_subscription(owner, tenant=f"hog-{number % 3}")
        await sagas_for(owner, subscription, 5)
        await owner.execute(
            "INSERT INTO orchestrator_subscriptions (subscription_id, slow, ramp) "
            "VALUES ($1, true, 1)",
            subscription,
        )
    each = await orchestrator(slots=64, slow_slots=64)
    await until_created(each, owner, ACTIVE, 20)
    for _ in range(10):
        await each.step()
    assert await owner.fetchval(ACTIVE) <= 32
    other = await a_subscription(owner, tenant="other")
    await sagas_for(owner, other, 3)
    await owner.execute(
        "INSERT INTO orchestrator_subscriptions (subscription_id, slow) VALUES ($1, true)", other
    )
    await until_created(each, owner, f"{ACTIVE} AND subscription_id = {other}", 1)


async def test_the_number_of_open_jobs_is_bounded(
    owner: Any, orchestrator: Make, buckets: int
) -> None:
    for _ in range(10):
        await sagas_for(owner, await a_subscription(owner), 20)
    each = await orchestrator(open_jobs=30 * buckets)  # each bucket has its part
    for _ in range(20):
        await each.step()
    assert await owner.fetchval(ACTIVE) == 18  # two thirds of what is not kept
    await end_jobs(owner)
    await each.step()
    assert await owner.fetchval(ACTIVE) <= 18
    for _ in range(5):
        await each.step()
    assert await owner.fetchval(ACTIVE) == 18


async def test_a_rate_limit_is_kept_over_time(owner: Any, orchestrator: Make, clock: Clock) -> None:
    """At first one, then what the time since allows, and never more than a second's worth."""
    await clock.stop()
    await sagas_for(owner, await a_subscription(owner, rate_limit_per_second=5), 100)
    await sagas_for(owner, await a_subscription(owner, rate_limit_per_second=0.5), 100)
    total = "SELECT count(*) FROM webhook_delivery_jobs GROUP BY subscription_id ORDER BY 1"
    both = [await orchestrator(Caps(default=1000)) for _ in range(2)]

    async def created() -> list[int]:
        for _ in range(4):
            await asyncio.gather(*(each.step() for each in both))
        return [row[0] for row in await owner.fetch(total)]

    assert await created() == [1, 1]
    await clock.shift(1)
    assert await created() == [1, 6]
    await clock.shift(1)
    assert await created() == [2, 11]
    await clock.shift(60)
    assert await created() == [3, 16]


async def test_a_clock_that_is_set_back_does_not_hold_up_a_limited_subscription(
    owner: Any, orchestrator: Make, clock: Clock
) -> None:
    await clock.stop()
    limited = await a_subscription(owner, rate_limit_per_second=0.5)
    each = await orchestrator(Caps(default=1000))
    for _ in range(2):
        await sagas_for(owner, limited, 10)
        await each.step()
        await clock.shift(-3600)
    assert await owner.fetchval("SELECT count(*) FROM webhook_delivery_jobs") == 2


# ── Fairness ──────────────────────────────────────────────────────────────────────────────────


async def test_backlogs_of_blocked_subscriptions_do_not_hide_the_others(
    owner: Any, orchestrator: Make
) -> None:
    for _ in range(3):
        blocked = await a_subscription(owner, concurrency_cap=1)
        await sagas_for(owner, blocked, 400, age=100)
    small = [await a_subscription(owner) for _ in range(5)]
    each = await orchestrator(batch=100)
    for _ in range(3):
        await each.step()
    assert await owner.fetchval(ACTIVE) == 3
    for subscription in small:
        await sagas_for(owner, subscription, 3, age=1)
    await each.step()
    counts = await jobs_per_subscription(owner)
    assert [counts.get(subscription) for subscription in small] == [3] * 5


async def test_a_backlog_that_fills_every_batch_does_not_hide_the_others(
    owner: Any, orchestrator: Make
) -> None:
    """Its cap is so large that it alone could take all the room each time."""
    greedy = await a_subscription(owner, concurrency_cap=100_000, tenant="greedy")
    await sagas_for(owner, greedy, 3000, age=100)
    modest = await a_subscription(owner, tenant="modest")
    await sagas_for(owner, modest, 10, age=1)
    each = await orchestrator(batch=100, open_jobs=100_000)
    for _ in range(3):
        await each.step()
    assert (await jobs_per_subscription(owner)).get(modest) == 10


async def test_more_blocked_subscriptions_than_one_look_around_takes_in(
    owner: Any, orchestrator: Make
) -> None:
    await owner.execute(
        "INSERT INTO subscriptions (event_type, callback_url, verified, concurrency_cap) "
        "SELECT 'order.paid', 'https://receiver.example/', true, 1 FROM generate_series(1, 450)"
    )
    await owner.execute(
        "INSERT INTO webhook_delivery_sagas (event_id, subscription_id, next_attempt_at) "
        "SELECT e, s.id, surehook_now() - interval '1 hour' "
        "FROM subscriptions s, generate_series(1, 3) AS e ORDER BY e, s.id"
    )
    each = await orchestrator(batch=100, open_jobs=10_000)
    await until_created(each, owner, ACTIVE, 450)
    assert await owner.fetchval(ACTIVE) == 450
    last = await a_subscription(owner)
    await sagas_for(owner, last, 3, age=1)
    await until_created(each, owner, f"{ACTIVE} AND subscription_id = {last}", 3)


async def test_first_attempts_and_retries_do_not_starve_each_other(
    owner: Any, orchestrator: Make
) -> None:
    subscription = await a_subscription(owner)
    other = await a_subscription(owner)
    await sagas_for(owner, subscription, 600, status=SagaStatus.PENDING_RETRY, age=3600)
    first = await sagas_for(owner, subscription, 10, age=1)
    await sagas_for(owner, other, 600, age=3600)
    retries = await sagas_for(owner, other, 10, status=SagaStatus.PENDING_RETRY, age=1)
    await (await orchestrator()).step()
    started = {row[0] for row in await owner.fetch("SELECT saga_id FROM webhook_delivery_jobs")}
    assert started.issuperset(first) and started.issuperset(retries)
    assert len(started) == 64


async def test_an_idle_orchestrator_sleeps_until_the_next_saga_is_due(
    owner: Any, orchestrator: Make
) -> None:
    each = await orchestrator()
    before = time.monotonic()
    await each.step()
    rest = await each.step()
    # Not before the walk is due again, however long the steps took.
    assert time.monotonic() + rest >= before + WALK_SECONDS
    assert rest <= POLL_MAX_SECONDS
    await sagas_for(
        owner, await a_subscription(owner), 1, age=-0.3, status=SagaStatus.PENDING_RETRY
    )
    assert 0 < await each.step() <= 0.3
    await an_event(owner)


async def test_a_saga_whose_earlier_job_is_still_active_waits_and_holds_up_no_other(
    owner: Any, open_store: OpenStore
) -> None:
    """Only a hand brings that about; two active jobs are refused, and it must not become a saga in
    progress without a job."""
    subscription_id = await a_subscription(owner)
    stuck, other = [await a_saga(owner, subscription_id=subscription_id) for _ in range(2)]
    stray = await a_job(owner, saga_id=stuck)
    await owner.execute(
        "UPDATE webhook_delivery_sagas SET status = 'InProgress' WHERE id = $1", stuck
    )
    await owner.execute(
        "UPDATE webhook_delivery_sagas SET status = 'PendingRetry', "
        "next_attempt_at = next_attempt_at + interval '1 microsecond' WHERE id = $1",
        stuck,
    )
    store = store_of(OrchestratorStore, await open_store("orchestrator"))

    async def create() -> list[int]:
        picked = await store.create_jobs(0, [Share(subscription_id, 5)], set())
        if picked:
            await store.start_sagas(0, picked)
        return [int(saga.saga_id) for saga in picked]

    assert await create() == [other]
    assert await create() == []
    await owner.execute(
        "UPDATE webhook_delivery_jobs SET status = 'Completed' WHERE id = $1", stray
    )
    assert await create() == [stuck]
    rows = await owner.fetch("SELECT status FROM webhook_delivery_sagas")
    assert [row[0] for row in rows] == ["InProgress", "InProgress"]
