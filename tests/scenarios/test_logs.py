"""One delivery followed by its correlation_id through the logs of separate processes."""

from __future__ import annotations

from typing import Any

from support.clock import Clock
from support.pipeline import ALL, UNFINISHED
from support.processes import children, environment
from support.receiver import Answer, Receiver
from support.rows import a_subscription
from support.waiting import LEASE_SECONDS, until_row
from surehook.delivery.signature import new_shared_secret
from surehook.store.logins import DatabaseAccess

ALWAYS = {"time", "level", "event", "correlation_id", "delivery_status"}
OF_A_SAGA = ALWAYS | {"saga_id"}
OF_A_JOB = OF_A_SAGA | {"job_id"}
OF_A_LEASE = OF_A_JOB | {"error_code", "lease_expiration", "worker_id"}
FIELDS = {
    "event.accepted": ALWAYS,
    "saga.created": OF_A_SAGA,
    "job.created": OF_A_JOB,
    "delivery.attempted": OF_A_LEASE,
    "saga.completed": OF_A_JOB,
    "saga.retrying": OF_A_JOB | {"error_code"},
    "saga.dead_lettered": OF_A_JOB | {"error_code"},
    "lease.expired": OF_A_LEASE,
    "dead_letter.written": OF_A_LEASE,
    "dead_letter.requeued": OF_A_SAGA,
}


async def test_a_delivery_is_followed_from_event_to_completed_and_through_death_and_requeue(
    owner: Any, access: DatabaseAccess, clock: Clock
) -> None:
    secret = new_shared_secret().reveal()
    async with Receiver() as receiver:
        receiver.script("/dies", Answer(status=503), Answer(status=500), Answer())
        good = await a_subscription(owner, callback_url=f"{receiver.url}/good", secret=secret)
        dies = await a_subscription(owner, callback_url=f"{receiver.url}/dies", secret=secret)
        env = environment(
            access,
            retry_base_delay="20ms",
            retry_max_attempts=2,
        )
        with children() as start:
            running = {name: start(["serve", name], env) for name in ALL if name != "worker"}
            publisher = start(["publish", "1"], env)
            assert await publisher.exit() == 0
            # The first worker is killed with the lease in its hands: a line for the cleaner.
            await until_row(owner, "SELECT count(*) FROM webhook_delivery_jobs", wanted=2)
            armed = {**env, "SUREHOOK_TEST_CRASHPOINT": "worker.after_lease=kill"}
            await start(["serve", "worker"], armed).exit()
            await clock.shift(LEASE_SECONDS)
            running["worker"] = start(["serve", "worker"], env)
            await until_row(owner, "SELECT count(*) FROM dead_letters", wanted=1)
            letter = await owner.fetchval("SELECT id FROM dead_letters")
            requeuer = start(["requeue", str(letter)], env)
            assert await requeuer.exit() == 0
            await until_row(owner, "SELECT count(*) FROM webhook_delivery_sagas", wanted=3)
            await until_row(owner, UNFINISHED, wanted=0)
            for child in running.values():
                await child.stop()
            logs = {**running, "publisher": publisher, "requeuer": requeuer}
            lines = [line for child in logs.values() for line in child.lines()]
            text = "".join(child.text() for child in logs.values())
            told = {name: {line["event"] for line in child.lines()} for name, child in logs.items()}

    event_id = await owner.fetchval("SELECT id FROM events")
    sagas = {
        (row[0], row[1] > 0): row[2]
        for row in await owner.fetch(
            "SELECT subscription_id, requeued_from, id FROM webhook_delivery_sagas"
        )
    }
    followed = [line for line in lines if line.get("correlation_id") == f"evt_{event_id}"]

    def story(saga_id: int) -> list[tuple[str, str]]:
        own = [line for line in followed if line.get("saga_id") == saga_id]
        own.sort(key=lambda line: line["time"])
        return [(line["event"], line["delivery_status"]) for line in own]

    attempt = ("delivery.attempted", "InProgress")
    created = [("saga.created", "Pending"), ("job.created", "InProgress")]
    expired = ("lease.expired", "InProgress")
    assert [e["event"] for e in followed if "saga_id" not in e] == ["event.accepted"]
    assert sorted(story(sagas[good, False])) == sorted(
        [*created, expired, attempt, ("saga.completed", "Completed")]
    )
    assert sorted(story(sagas[dies, False])) == sorted(
        [
            *created,
            expired,
            attempt,
            ("saga.retrying", "PendingRetry"),
            ("job.created", "InProgress"),
            attempt,
            ("saga.dead_lettered", "DeadLettered"),
            ("dead_letter.written", "DeadLettered"),
        ]
    )
    assert sorted(story(sagas[dies, True])) == sorted(
        [
            ("dead_letter.requeued", "Pending"),
            ("job.created", "InProgress"),
            attempt,
            ("saga.completed", "Completed"),
        ]
    )
    assert told["router"] & FIELDS.keys() == {"saga.created"}
    assert told["cleaner"] & FIELDS.keys() == {"lease.expired"}
    assert told["deadletters"] & FIELDS.keys() == {"dead_letter.written"}

    jobs = {row[0] for row in await owner.fetch("SELECT id FROM webhook_delivery_jobs")}
    for line in followed:
        assert FIELDS[line["event"]] <= line.keys(), line
        assert line.get("job_id", next(iter(jobs))) in jobs, line
        if "worker_id" in line:
            assert line["worker_id"] and line["lease_expiration"], line
    installation = await owner.fetchval(
        "SELECT value FROM schema_settings WHERE name = 'installation'"
    )
    assert {line["installation"] for line in lines} == {installation}
    assert secret not in text and secret.removeprefix("whsec_") not in text
    assert "v1," not in text and '"n"' not in text and '\\"n\\"' not in text
