"""Kept connections ended at the worst moments: what the database says is what arrived."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from support import OpenStore
from support.pipeline import ALL, UNFINISHED, broken_invariants
from support.processes import children, environment
from support.rows import a_subscription
from support.waiting import until_row
from support.worst_moments import CROSSING, STRICT, End, WorstReceiver
from surehook.store.logins import DatabaseAccess

SUBSCRIPTIONS = 4
ATTEMPTS = (
    "SELECT 'msg_' || i.value || '_' || s.event_id || '_' || s.subscription_id AS webhook_id, "
    "s.status, "
    "    s.attempt_count, j.id AS job_id, j.status AS job_status, j.error_code, j.lease_resets "
    "FROM webhook_delivery_sagas s LEFT JOIN webhook_delivery_jobs j "
    "    ON j.saga_id = s.id AND j.bucket = s.bucket "
    "JOIN schema_settings i ON i.name = 'installation'"
)


@dataclass(frozen=True)
class Attempts:
    """What the database says, by webhook-id."""

    counted: dict[str, int]
    """attempt_count of its saga"""
    succeeded: Counter[str]
    failed: Counter[str]
    codes: Counter[str | None]
    leases_lost: int

    @classmethod
    async def read(cls, owner: Any) -> Attempts:
        rows = await owner.fetch(ATTEMPTS)
        assert {row["status"] for row in rows} == {"Completed"}
        assert {row["job_status"] for row in rows} <= {"Completed", "Failed"}
        return cls(
            {row["webhook_id"]: row["attempt_count"] for row in rows},
            Counter(row["webhook_id"] for row in rows if row["job_status"] == "Completed"),
            Counter(row["webhook_id"] for row in rows if row["job_status"] == "Failed"),
            Counter(row["error_code"] for row in rows),
            sum(row["lease_resets"] for row in rows),
        )


async def _deliver(
    owner: Any, access: DatabaseAccess, buckets: int, endings: dict[str, End], messages: int
) -> tuple[WorstReceiver, Attempts]:
    """So many messages, delivered by a process of its own; it has ended when this returns."""
    with WorstReceiver(endings) as receiver:
        for number in range(SUBSCRIPTIONS):
            await a_subscription(owner, callback_url=f"{receiver.url}/{number}")
        # One payload in three is larger than two TLS records: its head arrives before its end.
        await owner.execute(
            "INSERT INTO events (event_type, payload, bucket) SELECT 'order.paid', "
            "    json_build_object('x', repeat('x', CASE n % 3 WHEN 0 THEN 40000 ELSE 9 END)), "
            "    n % $2 FROM generate_series(1, $1) AS n",
            messages // SUBSCRIPTIONS,
            buckets,
        )
        env = environment(
            access,
            retry_base_delay="20ms",
            retry_max_delay="40ms",
            retry_max_attempts=50,
            worker_concurrency=32,
            log_level="warning",
        )
        with children() as start:
            process = start(["serve", ",".join(ALL)], env)
            await until_row(
                owner,
                "SELECT count(*) FROM webhook_delivery_sagas",
                wanted=messages,
            )
            await until_row(owner, UNFINISHED, wanted=0)
            await process.stop()
    return receiver, await Attempts.read(owner)


async def test_a_thousand_kept_connections_ended_at_the_worst_moments_and_each_attempt_is_one_post(
    owner: Any, access: DatabaseAccess, open_store: OpenStore, buckets: int
) -> None:
    receiver, attempts = await _deliver(owner, access, buckets, STRICT, messages=1700)
    _show(receiver, attempts)
    assert receiver.endings.total() >= 1000
    assert min(receiver.endings[name] for name in STRICT) >= 60
    posts = Counter(post.webhook_id for post in receiver.posts)
    answered = Counter(post.webhook_id for post in receiver.posts if post.answered)
    assert posts == attempts.counted
    assert answered == attempts.succeeded
    assert posts - answered == attempts.failed
    assert set(attempts.codes) == {None, "PROTOCOL_ERROR"}
    assert attempts.leases_lost == 0
    assert await broken_invariants(open_store) == {}


async def test_a_reset_that_crosses_a_post_may_lose_it_but_never_doubles_one(
    owner: Any, access: DatabaseAccess, open_store: OpenStore, buckets: int
) -> None:
    """Bytes that meet a reset are thrown away by the kernel: such a POST is an attempt in the
    database, failed, that the receiver never saw. One reset can spoil one attempt, no more."""
    receiver, attempts = await _deliver(owner, access, buckets, CROSSING, messages=400)
    _show(receiver, attempts)
    assert receiver.endings.total() >= 150
    posts = Counter(post.webhook_id for post in receiver.posts)
    hidden = Counter(attempts.counted) - posts
    assert posts - Counter(attempts.counted) == Counter()
    assert hidden - attempts.failed == Counter()
    assert hidden.total() <= attempts.failed.total() <= receiver.endings.total()
    assert attempts.leases_lost == 0
    assert await broken_invariants(open_store) == {}


def _show(receiver: WorstReceiver, attempts: Attempts) -> None:
    print(
        f"\n{len(attempts.counted)} messages, {sum(attempts.counted.values())} attempts, "
        f"{len(receiver.posts)} POSTs, {receiver.endings.total()} connections ended; "
        f"{dict(attempts.codes)}"
    )
    for name, number in sorted(receiver.endings.items()):
        unanswered = sum(p.ending == name and not p.answered for p in receiver.posts)
        print(f"{number:6} {name} ({unanswered} POSTs unanswered)")
