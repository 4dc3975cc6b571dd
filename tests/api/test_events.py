"""POST /v1/events: stored before it is acknowledged, once per key, byte for byte."""

from __future__ import annotations

from typing import Any

from support.http import Client


async def test_an_event_is_durable_when_it_is_acknowledged(client: Client, owner: Any) -> None:
    reply = await client.post("/v1/events", {"event_type": "order.paid", "payload": {"a": 1}})
    assert reply.status == 202, reply.body
    row = await owner.fetchrow("SELECT id, payload, event_type FROM events")
    assert reply.json()["id"] == row["id"]
    assert (row["payload"], row["event_type"]) == ('{"a":1}', "order.paid")
    assert reply.json()["duplicate"] is False
