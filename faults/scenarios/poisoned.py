"""A job that kills its worker every time: the endpoint's request comes, and the worker dies."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from faults.scenario import Bound, Figures, Scenario
from faults.sockets import sender_of
from faults.world import LEASE_SECONDS, WORKER_CONCURRENCY, World
from support.http import Client
from support.receiver import Answer, ReceivedRequest
from support.waiting import until

LEASES = 6
EVENT_TYPE = "faults.poison"
TAG = "poison"
# Longer than anything else makes an event wait here, shorter than a lease.
DELAYED_SECONDS = 5.0


class Poisoned(Scenario):
    name = "poison"
    fault = "a job that kills its worker every time"
    bounds = (
        Bound("leases of the poisonous job", exactly=LEASES),
        Bound("dead letters with LEASE_EXPIRED", exactly=1),
        Bound("others delayed by the first kill", at_most=WORKER_CONCURRENCY),
        Bound("others delayed by later kills", at_most=0),
        Bound("latest arrival", at_most=LEASE_SECONDS + 5, unit="s"),
    )

    def __init__(self) -> None:
        self._kills: list[float] = []

    async def run(self, world: World) -> Figures:
        self._kills = []
        await world.open()
        await world.start_everything()
        await world.subscribe("a", "b")
        await world.subscribe(TAG, event_type=EVENT_TYPE, max_attempts=1)
        world.behave(TAG, lambda request: self._strike(world, request))
        async with world.load(http=30, outbox=10), asyncio.TaskGroup() as group:
            await world.offered(50)
            revival = group.create_task(self._revive(world))
            await self._publish(world)
            await until(lambda: self._dead_letters(world), LEASES * (LEASE_SECONDS + 15))
            await asyncio.sleep(2)
            revival.cancel()
        await world.settle()
        return {**await world.figures(), **self._figures(world, await self._dead_letters(world))}

    def _strike(self, world: World, request: ReceivedRequest) -> Answer:
        """Kill exactly the worker that has the job in flight."""
        workers = {one.pid: one for one in world.running("worker")}
        pid = sender_of(world.receiver, request, workers)
        if pid is not None:
            workers[pid].wanted = False
            os.kill(pid, signal.SIGKILL)
        self._kills.append(time.monotonic())
        return Answer(hang=True)

    async def _revive(self, world: World) -> None:
        """As whatever keeps processes alive does."""
        while True:
            for program in world.programs:
                if program.component == "worker" and not program.is_running:
                    program.launch()
            await asyncio.sleep(0.1)

    async def _publish(self, world: World) -> None:
        """It is not owed: nobody can deliver it."""
        world.ledger.offer(TAG, [TAG])
        body = {"event_type": EVENT_TYPE, "external_id": TAG, "payload": {"tag": TAG}}
        reply = await Client(world.addresses()[0], world.key).post("/v1/events", body)
        assert reply.status == 202, reply.body

    async def _dead_letters(self, world: World) -> int:
        reply = await Client(world.addresses()[0], world.key).get("/v1/dead-letters")
        found = reply.json()["items"] if reply.status == 200 else []
        return sum(one["final_error_code"] == "LEASE_EXPIRED" for one in found)

    def _figures(self, world: World, dead_letters: int) -> dict[str, float]:
        first = self._kills[0]
        late = [
            world.ledger.acknowledged[tag]
            for (tag, _), seconds in world.ledger.delays().items()
            if seconds > DELAYED_SECONDS
        ]
        return {
            "leases of the poisonous job": len(self._kills),
            "dead letters with LEASE_EXPIRED": dead_letters,
            "others delayed by the first kill": sum(at <= first for at in late),
            "others delayed by later kills": sum(at > first for at in late),
        }
