"""The database goes away under load: 503 in time, no false acknowledgement, and back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from support import Configure, servers
from support.api import FLAGS, OpenApi, serving
from support.gate import Gate
from support.http import Client, Reply
from support.waiting import in_time, until
from surehook.store.logins import DatabaseAccess

CLIENTS = 16
TOLD_SECONDS = 2.0
# As they are when nobody says otherwise.
IMPATIENT = {"api.answer_timeout": "1500ms", "database.connect_timeout": "5s"}


@pytest.fixture
async def gate(access: DatabaseAccess) -> AsyncIterator[Gate]:
    async with Gate(access.url) as gate:
        yield gate


@pytest.fixture
async def gated(configure: Configure, access: DatabaseAccess, gate: Gate) -> AsyncIterator[Client]:
    """The API behind the gate."""
    environment = {"SUREHOOK_DATABASE_URL": gate.url}
    config = configure({**FLAGS, **IMPATIENT, "database.statement_timeout": 3}, environment)
    async with serving(config, DatabaseAccess(gate.url, access.role_secret)) as client:
        try:
            yield client
        finally:
            await gate.open()


async def a_key(client: Client) -> str:
    """Tried again, as a client does: on a slow machine an impatient API may answer 503."""

    async def made() -> str | None:
        reply = await client.post("/v1/keys", {"name": "a", "scopes": ["read"]})
        return reply.json()["key"] if reply.status == 201 else None

    key: str = await until(made)
    return key


class Load:
    """Clients that publish without pause, each event under a key of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopped = False
        self.acknowledged: list[int] = []
        self.refused = 0
        self.wrong: list[Reply] = []

    async def run(self) -> None:
        await asyncio.gather(*(self._publish(number) for number in range(CLIENTS)))

    async def _publish(self, number: int) -> None:
        turn = 0
        while not self._stopped:
            turn += 1
            key = f"{number}-{turn}" if number % 2 else None
            body = {"event_type": "load", "payload": turn, "external_id": key}
            reply = await in_time(self._client.post("/v1/events", body), TOLD_SECONDS)
            if reply.status == 202:
                self.acknowledged.append(reply.json()["id"])
            elif reply.status == 503 and int(reply.headers["retry-after"]) > 0:
                self.refused += 1
                await asyncio.sleep(0.02)
            else:
                self.wrong.append(reply)

    def stop(self) -> None:
        self._stopped = True


@pytest.mark.parametrize("how", ["shut", "silence"])
async def test_a_lost_database_is_told_in_two_seconds_and_nothing_is_falsely_acknowledged(
    gated: Client, gate: Gate, owner: Any, how: str
) -> None:
    load = Load(gated)
    work = asyncio.ensure_future(load.run())
    await until(lambda: len(load.acknowledged) > 50)
    leave: Callable[[], None] = getattr(gate, how)
    leave()
    await until(lambda: load.refused > CLIENTS)
    told = len(load.acknowledged)
    await until(lambda: load.refused > 3 * CLIENTS)
    assert len(load.acknowledged) - told <= CLIENTS  # what was committed just before
    await gate.open()
    await until(lambda: len(load.acknowledged) > told + 50)
    load.stop()
    await work
    stored = {row["id"] for row in await owner.fetch("SELECT id FROM events")}
    assert set(load.acknowledged) <= stored
    assert load.wrong == []


@pytest.mark.parametrize("how", ["shut", "silence"])
async def test_every_other_route_says_503_while_the_database_is_away(
    gated: Client, gate: Gate, how: str
) -> None:
    user = gated.with_key(await a_key(gated))
    getattr(gate, how)()
    asked = [gated.get("/v1/events"), gated.get("/v1/deliveries/1"), user.get("/v1/events")]
    asked += [gated.post("/v1/keys", {"name": "b", "scopes": ["read"]})]
    asked += [gated.post("/v1/dead-letters/1/requeue"), gated.get("/v1/subscriptions")]
    # These may take many seconds, but not to find out that they cannot begin.
    asked += [gated.post("/v1/dead-letters/requeue", {"all": True})]
    asked += [gated.post("/v1/subscriptions/1/test")]
    asked += [gated.post("/v1/subscriptions/1/verify?wait=10")]
    asked += [gated.post("/v1/events/batch", {"events": [{"event_type": "a", "payload": 1}]})]
    asked += [gated.get("/readyz"), gated.get("/metrics")]
    replies = await asyncio.gather(*(in_time(asking, TOLD_SECONDS) for asking in asked))
    assert [reply.status for reply in replies] == [503] * 11 + [200]
    assert all("retry-after" in reply.headers for reply in replies[:10])
    assert b"surehook_facts_total" in replies[-1].body
    assert replies[-2].json()["checks"]["database"] != "ok"
    assert (await gated.get("/healthz")).status == 200
    await gate.open()

    async def recovered() -> bool:
        return (await gated.get("/readyz")).status == 200

    async def let_in() -> bool:
        return (await user.get("/v1/events")).status == 200

    await until(recovered)
    await until(let_in)


async def test_a_key_that_was_found_late_leaves_its_request_the_less_time(
    open_api: OpenApi, owner: Any, database_url: str
) -> None:
    client = await open_api(IMPATIENT)
    made = await a_key(client)
    await owner.execute("BEGIN; LOCK TABLE events")
    async with servers.connected(database_url) as other:
        await other.execute("BEGIN; LOCK TABLE api_keys")
        asking = client.with_key(made).get("/v1/events")
        asked = asyncio.ensure_future(in_time(asking, TOLD_SECONDS))
        await asyncio.sleep(1.0)
        await other.execute("ROLLBACK")
    reply = await asked
    await owner.execute("ROLLBACK")
    assert reply.status == 503
