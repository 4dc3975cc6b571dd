"""A worker that stands still past its leases (SIGSTOP) and then goes on (SIGCONT)."""

from __future__ import annotations

import asyncio
import signal

from faults.scenario import Bound, Figures, Scenario
from faults.world import LEASE_SECONDS, World
from support.receiver import Answer

STOPS, SHORT_STOPS = 6, 2
ANSWER_SECONDS = 0.5  # so that every worker has requests under way at any moment
PAST_LEASE_SECONDS = 5.0
LOOK_SECONDS = 0.25
# A later state has a larger number; a finished one never changes.
SAGA_RANKS = {"Pending": 0, "InProgress": 1, "PendingRetry": 1, "Completed": 2, "DeadLettered": 2}
JOB_RANKS = {"Pending": 0, "Leased": 0, "Completed": 1, "Failed": 1}
QUESTIONS = (
    ("SELECT id, status, attempt_count FROM webhook_delivery_sagas", SAGA_RANKS, 2),
    ("SELECT id, status, lease_resets FROM webhook_delivery_jobs", JOB_RANKS, 1),
)


class StoppedWorker(Scenario):
    name = "stopped"
    fault = "SIGSTOP of a worker past its lease, then SIGCONT"
    bounds = (
        Bound("stops", at_least=STOPS, short=SHORT_STOPS),
        Bound("most extra sends of one event", at_most=1),
        Bound("events sent again", at_least=1),
        Bound("states that moved backwards", at_most=0),
    )

    async def run(self, world: World) -> Figures:
        await world.open()
        await world.start_everything()
        await world.subscribe("a", "b")
        for name in ("a", "b"):
            world.behave(name, lambda _: Answer(delay=ANSWER_SECONDS))
        watch = States()
        stops = STOPS if world.long else SHORT_STOPS
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch.run(world))
            async with world.load(http=20, outbox=5):
                await world.offered(50)
                for _ in range(stops):
                    await self._stop(world)
            await world.settle()
            watching.cancel()
        extra = world.ledger.extra_sends()
        return {
            **await world.figures(),
            "stops": stops,
            "events sent again": len(extra),
            "most extra sends of one event": max(extra.values(), default=0),
            "states that moved backwards": watch.backwards,
        }

    async def _stop(self, world: World) -> None:
        worker = world.dice.choice(world.running("worker"))
        worker.send(signal.SIGSTOP)
        await asyncio.sleep(LEASE_SECONDS + PAST_LEASE_SECONDS)
        worker.send(signal.SIGCONT)
        await asyncio.sleep(2)


class States:
    """Looks at every delivery and attempt again and again."""

    def __init__(self) -> None:
        self.backwards = 0
        self._seen: list[dict[int, tuple[str, int]]] = [{} for _ in QUESTIONS]

    async def run(self, world: World) -> None:
        async with world.database.connect() as connection:
            while True:
                for (question, ranks, final), seen in zip(QUESTIONS, self._seen, strict=True):
                    for number, status, count in await connection.fetch(question):
                        before, counted = seen.get(number, (status, count))
                        finished = ranks[before] == final and before != status
                        if finished or ranks[status] < ranks[before] or count < counted:
                            self.backwards += 1
                        seen[number] = (status, count)
                await asyncio.sleep(LOOK_SECONDS)
