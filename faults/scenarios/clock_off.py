"""Every process has a wrong clock: an hour or a day, ahead or behind, and they disagree.

Two rounds of processes, so that each component meets all four. The endpoints ask for pauses, in
seconds and by date, and answer slowly: there is something to be too early with.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import signal
import time
from datetime import timedelta
from email.utils import formatdate

from faults import clocks
from faults.ledger import Pair
from faults.processes import Program
from faults.scenario import Bound, Figures, Scenario
from faults.sockets import sender_of
from faults.world import LEASE_SECONDS, World, everything
from support.http import Client
from support.receiver import Answer, ReceivedRequest
from support.waiting import until

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
OFFSETS = (HOUR, -HOUR, DAY, -DAY)
ROUNDS = 2
PROCESSES = ROUNDS * sum(everything().values())
EVENTS, SHORT_EVENTS = 300, 60  # in each round
PAUSE_SECONDS = 3
SLOW_SECONDS, SLOW_EVERY = 2.0, 10
LATE_SECONDS = 60  # whoever goes by a wrong clock is late by an hour at least
HELD, HELD_TYPE = "held", "faults.held"
DATABASE_TIME = {
    "postgresql": "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)",
    "mariadb": "SELECT UNIX_TIMESTAMP(SYSDATE(6)) + 0E0",
}


class ClockOff(Scenario):
    name = "clock"
    fault = "the clock of every process wrong by an hour or a day, ahead or behind"
    bounds = (
        Bound("processes with a wrong clock", exactly=PROCESSES),
        Bound("retries", at_least=ROUNDS * EVENTS, short=ROUNDS * SHORT_EVENTS),
        Bound("early attempts", at_most=0),
        Bound("early lease resets", at_most=0),
        Bound("webhook-timestamp off the database's", at_most=2, unit="s"),
        Bound("latest arrival", at_most=LATE_SECONDS, unit="s"),
    )

    def missing(self) -> str | None:
        return None if clocks.library() else clocks.MISSING

    async def run(self, world: World) -> Figures:
        await world.open()
        endpoints = Endpoints(world, await database_time(world) - time.monotonic())
        offsets = {name: world.dice.sample(OFFSETS, len(OFFSETS)) for name in everything()}
        first = [world.program(name) for name, count in everything().items() for _ in range(count)]
        set_clocks(first, offsets)
        await world.launch(first)
        await endpoints.open()
        async with world.load(http=4, outbox=1):
            await endpoints.put_to_the_test()
            second = [world.successor(one) for one in first]
            set_clocks(second, offsets)
            for half in ("-1", "-2"):  # of each component one goes on
                replaced = [one for one in first if one.name.endswith(half)]
                await asyncio.gather(*(one.terminate() for one in replaced))
                await world.launch([second[first.index(one)] for one in replaced])
            await endpoints.put_to_the_test()
        await world.settle()
        return {
            **await world.figures(),
            **endpoints.figures(),
            "processes with a wrong clock": sum(clocks.is_off(one) for one in world.programs),
        }


def set_clocks(programs: list[Program], offsets: dict[str, list[timedelta]]) -> None:
    """Each takes the next of its component."""
    for program in programs:
        program.env |= clocks.off_by(offsets[program.component].pop())


async def database_time(world: World) -> float:
    """Seconds since 1970."""
    async with world.database.connect() as connection:
        ask = getattr(connection, "native", None)
        if ask is None:
            return float(await connection.fetchval(DATABASE_TIME[world.engine]))
        return float((await ask(DATABASE_TIME[world.engine]))[0][0])


class Endpoints:
    """They ask for pauses and hold requests, and see who does not keep to that.

    `epoch`: the database's time when the monotonic clock was 0.
    """

    def __init__(self, world: World, epoch: float) -> None:
        self._world = world
        self._epoch = epoch
        self._not_before: dict[Pair, float] = {}  # by the monotonic clock
        self._killed: Program | None = None
        self._early_resets = 0

    async def open(self) -> None:
        await self._world.subscribe("plain", "slow", "seconds", "date")
        await self._world.subscribe(HELD, event_type=HELD_TYPE)
        slow = itertools.cycle([Answer(delay=SLOW_SECONDS), *[Answer()] * (SLOW_EVERY - 1)])
        self._world.behave("slow", lambda _: next(slow))
        self._world.behave("seconds", lambda request: self._pause("seconds", request))
        self._world.behave("date", lambda request: self._pause("date", request))
        self._world.behave(HELD, self._hold)

    # ── What they answer ──────────────────────────────────────────────────────────────────────

    def _pause(self, name: str, request: ReceivedRequest) -> Answer:
        """The first attempt of each event is refused."""
        pair = (json.loads(request.body)["tag"], name)
        if pair in self._not_before:
            return Answer()
        now = time.monotonic()
        if name == "seconds":
            self._not_before[pair] = now + PAUSE_SECONDS
            asked = str(PAUSE_SECONDS)
        else:
            date = math.ceil(now + self._epoch) + PAUSE_SECONDS
            self._not_before[pair] = date - self._epoch
            asked = formatdate(date, usegmt=True)
        return Answer(status=503, headers=(("retry-after", asked),))

    def _hold(self, request: ReceivedRequest) -> Answer:
        """The first worker that comes dies with the request."""
        if self._killed is not None:
            return Answer()
        workers = {one.pid: one for one in self._world.running("worker")}
        pid = sender_of(self._world.receiver, request, workers)
        assert pid is not None
        self._killed = workers[pid]
        self._killed.wanted = False
        os.kill(pid, signal.SIGKILL)
        return Answer(hang=True)

    # ── What is done with them ────────────────────────────────────────────────────────────────

    async def put_to_the_test(self) -> None:
        """Load for a while, during which no lease may be reset; then one that must be, in time."""
        world = self._world
        before = self._resets()
        await world.offered_more(EVENTS if world.long else SHORT_EVENTS)
        self._early_resets += self._resets() - before
        self._killed = None
        tag, began = f"{HELD}-{len(world.programs)}", time.monotonic()
        world.ledger.offer(tag, [HELD])
        await self._publish(tag)
        killed: Program = await until(lambda: self._killed)
        await killed.ended()
        killed.launch()
        await until(lambda: (tag, HELD) not in world.ledger.missing)
        self._early_resets += world.ledger.first_arrivals()[tag, HELD].at < began + LEASE_SECONDS

    async def _publish(self, tag: str) -> None:
        body = {"event_type": HELD_TYPE, "external_id": tag, "payload": {"tag": tag}}
        reply = await Client(self._world.addresses()[0], self._world.key).post("/v1/events", body)
        assert reply.status == 202, reply.body
        self._world.ledger.acknowledge(tag, time.monotonic())

    def _resets(self) -> int:
        cleaners = [one for one in self._world.programs if one.component == "cleaner"]
        return sum(1 for one in cleaners for _ in one.facts("lease.expired"))

    # ── What was seen ─────────────────────────────────────────────────────────────────────────

    def figures(self) -> dict[str, float]:
        arrivals = self._world.ledger.arrivals
        firsts = self._world.ledger.first_arrivals()
        return {
            "retries": sum(pair in firsts for pair in self._not_before),
            "early attempts": sum(
                firsts[pair].at < at for pair, at in self._not_before.items() if pair in firsts
            ),
            "early lease resets": self._early_resets,
            "webhook-timestamp off the database's": max(
                abs(one.at + self._epoch - one.webhook_timestamp) for one in arrivals
            ),
        }
