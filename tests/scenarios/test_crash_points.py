"""The whole pipeline, killed once at every gap between two commits, then started again."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from support import OpenStore
from support.clock import Clock
from support.pipeline import ALL, UNFINISHED, broken_invariants
from support.processes import children, environment
from support.receiver import Answer, Receiver
from support.rows import a_saga, a_subscription, an_event
from support.waiting import LEASE_SECONDS, until, until_row
from surehook.model.states import SagaStatus
from surehook.observe.facts import POINTS
from surehook.store.logins import DatabaseAccess

EVENTS = 30
ATTEMPTS = 2
# Every event of its own, one from before, and a requeue of every death.
FIRST_DEATHS = (
    "SELECT count(*) FROM dead_letters d JOIN webhook_delivery_sagas s "
    "ON s.id = d.saga_id AND s.bucket = d.bucket WHERE s.requeued_from = 0"
)
ALL_DEATHS = "SELECT count(*) FROM dead_letters"


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_this_point_loses_and_doubles_nothing(
    point: str, owner: Any, access: DatabaseAccess, clock: Clock, open_store: OpenStore
) -> None:
    await _killed_and_started_again(point, owner, access, clock, open_store)


@pytest.mark.parametrize(
    "point", ["router.after_insert", "orchestrator.after_create", "worker.after_send"]
)
@pytest.mark.parametrize("buckets", [4])
async def test_a_kill_loses_and_doubles_nothing_in_any_bucket(
    point: str, owner: Any, access: DatabaseAccess, clock: Clock, open_store: OpenStore
) -> None:
    await _killed_and_started_again(point, owner, access, clock, open_store)


async def _killed_and_started_again(
    point: str, owner: Any, access: DatabaseAccess, clock: Clock, open_store: OpenStore
) -> None:
    async with Receiver() as receiver:
        receiver.script("/fails", Answer(status=503))
        good = await a_subscription(owner, callback_url=f"{receiver.url}/good")
        bad = await a_subscription(owner, callback_url=f"{receiver.url}/fails")
        await _a_job_whose_worker_vanished(owner, good)
        settings = {"retry_base_delay": "30ms", "retry_max_attempts": ATTEMPTS}
        unarmed = environment(access, **settings)
        armed = {**unarmed, "SUREHOOK_TEST_CRASHPOINT": f"{point}=kill"}
        with children() as start:
            child = start(["whole", str(EVENTS)], armed)

            async def dead_or_all_dead_letters() -> bool:
                return child.ended or bool(await owner.fetchval(FIRST_DEATHS) == EVENTS + 1)

            await until(dead_or_all_dead_letters)
            await child.started(len(ALL))
            child.tell(signal.SIGUSR1)  # whoever has not met its point yet meets it in a requeue
            assert await child.exit() == -signal.SIGKILL, child.text()[-3000:]

            await clock.shift(LEASE_SECONDS)  # what it held is free again
            child = start(["whole", str(EVENTS)], unarmed)
            await until_row(owner, FIRST_DEATHS, wanted=EVENTS + 1)
            await child.started(len(ALL))
            child.tell(signal.SIGUSR1)
            await until_row(owner, ALL_DEATHS, wanted=2 * (EVENTS + 1))
            await until_row(owner, UNFINISHED, wanted=0)
            await child.stop()

    assert await broken_invariants(open_store) == {}
    counts = await owner.fetch(
        "SELECT s.subscription_id, s.requeued_from > 0 AS again, s.status, s.attempt_count, "
        "count(*) FROM webhook_delivery_sagas s GROUP BY 1, 2, 3, 4 ORDER BY 1, 2"
    )
    assert [tuple(row) for row in counts] == [
        (good, False, "Completed", 1, EVENTS + 1),
        (bad, False, "DeadLettered", ATTEMPTS, EVENTS + 1),
        (bad, True, "DeadLettered", ATTEMPTS, EVENTS + 1),
    ]
    jobs, resets = await owner.fetchrow(
        "SELECT count(*), sum(lease_resets) FROM webhook_delivery_jobs"
    )
    assert jobs == (EVENTS + 1) * (1 + 2 * ATTEMPTS)
    # One POST per job; a kill may cost or save one for each lease that it cut off.
    assert jobs - 1 <= receiver.count <= jobs + resets


async def _a_job_whose_worker_vanished(owner: Any, subscription_id: int) -> None:
    """Work for the cleaner: an event that was leased once, long ago."""
    event_id = await an_event(owner, external_id="stranded")
    saga_id = await a_saga(
        owner, event_id=event_id, subscription_id=subscription_id, status=SagaStatus.IN_PROGRESS
    )
    await owner.execute(
        "UPDATE webhook_delivery_jobs SET status = 'Leased', lease_token = 1, worker_id = 'gone', "
        "lease_until = surehook_now() - interval '1 second' WHERE saga_id = $1",
        saga_id,
    )
