"""The same external_id from many sides at once, and then with another body."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

from faults.scenario import Bound, Figures, Scenario
from faults.world import EVENT_TYPE, World
from support.http import Client, Reply, read_reply

CLIENTS = 50
IDS, SHORT_IDS = 1_000, 60
STATUSES = (200, 202)


@dataclass
class Answers:
    """What all clients were told about one external_id."""

    events: set[int] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)


class SameId(Scenario):
    name = "same-id"
    fault = f"{CLIENTS} concurrent posts of each external id; then another body with the same id"
    bounds = (
        Bound("external ids", at_least=IDS, short=SHORT_IDS),
        Bound("ids with several events", at_most=0),
        Bound("ids not stored exactly once", at_most=0),
        Bound("other answers than 200 and 202", at_most=0),
        Bound("other bodies answered 409", exactly=IDS, short=SHORT_IDS),
    )

    async def run(self, world: World) -> Figures:
        await world.open()
        await world.start_everything()
        await world.subscribe("a", "b")
        tags = [f"same-{number:04}" for number in range(IDS if world.long else SHORT_IDS)]
        clients = [Keeping(world, number) for number in range(CLIENTS)]
        answers = {tag: Answers() for tag in tags}
        conflicts = 0
        for tag in tags:
            world.ledger.offer(tag, world.owed())
            await asyncio.gather(*(self._post(world, one, tag, answers[tag]) for one in clients))
            reply = await clients[0].post(_body(tag, "another body"))
            conflicts += reply.status == 409
        for client in clients:
            client.close()
        await world.settle()
        return {
            **await world.figures(),
            "external ids": len(tags),
            "ids with several events": sum(len(one.events) != 1 for one in answers.values()),
            "ids not stored exactly once": sum(one.statuses[202] != 1 for one in answers.values()),
            "other answers than 200 and 202": sum(
                count
                for one in answers.values()
                for status, count in one.statuses.items()
                if status not in STATUSES
            ),
            "other bodies answered 409": conflicts,
        }

    async def _post(self, world: World, client: Keeping, tag: str, answers: Answers) -> None:
        reply = await client.post(_body(tag))
        answers.statuses[reply.status] += 1
        if reply.status in STATUSES:
            world.ledger.acknowledge(tag, time.monotonic())
            answers.events.add(int(reply.json()["id"]))


def _body(tag: str, note: str = "") -> dict[str, object]:
    payload = {"tag": tag, "note": note} if note else {"tag": tag}
    return {"event_type": EVENT_TYPE, "external_id": tag, "payload": payload}


class Keeping:
    """A client that keeps its connection."""

    def __init__(self, world: World, number: int) -> None:
        addresses = world.addresses()
        self._client = Client(addresses[number % len(addresses)], world.key)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: object) -> Reply:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._client.host, self._client.port)
        reader, writer = self._streams
        writer.write(self._client.request("POST", "/v1/events", body))
        return await read_reply(reader, "POST")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
