"""POST /v1/events and its batch: durable before it is acknowledged, once per key, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from support.api import NewKey, OpenApi
from support.http import Client
from support.rows import a_saga, an_event, many_deliveries
from surehook.model.states import SagaStatus

EVENT = {"event_type": "order.paid", "payload": {"order": 1}}


async def test_an_event_is_durable_when_it_is_acknowledged(client: Client, owner: Any) -> None:
    reply = await client.post("/v1/events", EVENT)
    row = await owner.fetchrow("SELECT id, created_at, payload, event_type, tenant FROM events")
    assert reply.status == 202
    shown = reply.json()
    assert shown == {"id": row["id"], "created_at": shown["created_at"], "duplicate": False}
    assert datetime.fromisoformat(shown["created_at"]) == row["created_at"]
    assert len(shown["created_at"]) == len("2026-11-15T20:55:01.123456Z")
    assert (row["payload"], row["event_type"], row["tenant"]) == ('{"order":1}', "order.paid", "")


ODD = [
    b'{ "a" : 1.0,\r\n"a":2 }',
    rb'"\u0000\ud83d\ude00"',
    b"1e400",
    b"9" * 5000,
    "“ünïcödé” \U0001f600\uffff".encode().join([b'"', b'"']),
    b"[" * 30 + b"]" * 30,
]


async def test_payloads_are_stored_and_shown_byte_for_byte(client: Client, owner: Any) -> None:
    for payload in ODD:
        body = b'{"event_type":"odd","payload": ' + payload + b" }"
        reply = await client.post("/v1/events", body)
        assert reply.status == 202, reply.body
        number = reply.json()["id"]
        stored = await owner.fetchval("SELECT payload::text FROM events WHERE id = $1", number)
        assert stored.encode() == payload
        shown = await client.get(f"/v1/events/{number}")
        assert b'"payload":' + payload + b"," in shown.body


async def test_the_same_key_again_is_answered_with_the_first_event(
    client: Client, owner: Any
) -> None:
    first = await client.post("/v1/events", {**EVENT, "external_id": "k1"})
    again = await client.post("/v1/events", EVENT, idempotency_key="k1")
    assert (first.status, again.status) == (202, 200)
    assert again.json() == {**first.json(), "duplicate": True}
    assert await owner.fetchval("SELECT count(*) FROM events") == 1


async def test_the_same_key_with_other_content_is_a_conflict(client: Client) -> None:
    await client.post("/v1/events", {**EVENT, "external_id": "k1"})
    reply = await client.post("/v1/events", {**EVENT, "payload": 2, "external_id": "k1"})
    assert (reply.status, reply.json()["field"]) == (409, "external_id")
    elsewhere = await client.post(
        "/v1/events", {**EVENT, "payload": 2, "external_id": "k1", "tenant": "acme"}
    )
    assert elsewhere.status == 202


async def test_two_different_keys_in_one_request_are_refused(client: Client) -> None:
    reply = await client.post("/v1/events", {**EVENT, "external_id": "a"}, idempotency_key="b")
    assert (reply.status, reply.json()["field"]) == (422, "external_id")
    bad = await client.post("/v1/events", EVENT, idempotency_key="x" * 256)
    assert (bad.status, bad.json()["field"]) == (422, "Idempotency-Key")


async def test_a_batch_answers_each_event(client: Client, owner: Any) -> None:
    await client.post("/v1/events", {**EVENT, "external_id": "there"})
    events = [
        EVENT,
        {**EVENT, "external_id": "there"},
        {**EVENT, "payload": "other", "external_id": "there"},
        {**EVENT, "external_id": "new"},
        {**EVENT, "external_id": "new"},
    ]
    reply = await client.post("/v1/events/batch", {"events": events})
    results = reply.json()["results"]
    assert (reply.status, [one["status"] for one in results]) == (200, [202, 200, 409, 202, 200])
    assert results[2]["error"]["field"] == "external_id"
    assert results[3]["id"] == results[4]["id"]
    assert await owner.fetchval("SELECT count(*) FROM events") == 3


async def test_each_result_of_a_batch_is_that_of_its_own_event(client: Client, owner: Any) -> None:
    keys = {number: f"k{999 - number}" for number in range(1000) if number % 3 == 0}
    events = [{**EVENT, "payload": n, "external_id": keys.get(n)} for n in range(1000)]
    reply = await client.post("/v1/events/batch", {"events": events})
    answered = {one["id"]: n for n, one in enumerate(reply.json()["results"])}
    rows = await owner.fetch("SELECT id, payload::text AS payload, external_id FROM events")
    assert {row["id"]: int(row["payload"]) for row in rows} == answered
    assert {int(r["payload"]): r["external_id"] for r in rows if r["external_id"]} == keys


async def test_a_batch_with_one_wrong_event_stores_nothing(client: Client, owner: Any) -> None:
    events = [EVENT, EVENT, {**EVENT, "event_type": "not this"}]
    reply = await client.post("/v1/events/batch", {"events": events})
    assert (reply.status, reply.json()["field"]) == (422, "events/2/event_type")
    assert await owner.fetchval("SELECT count(*) FROM events") == 0


async def test_a_batch_has_at_most_a_thousand_events(client: Client) -> None:
    assert (await client.post("/v1/events/batch", {"events": [EVENT] * 1000})).status == 200
    for number in (0, 1001):
        reply = await client.post("/v1/events/batch", {"events": [EVENT] * number})
        assert (reply.status, reply.json()["field"]) == (422, "events")


async def test_large_payloads_are_refused_and_those_at_the_limit_taken(open_api: OpenApi) -> None:
    client = await open_api({"api.payload_max": 2000, "api.batch_max": 10_000})
    at_limit = {**EVENT, "payload": "x" * 1998}
    assert (await client.post("/v1/events", at_limit)).status == 202
    assert (await client.post("/v1/events", {**EVENT, "payload": "x" * 1999})).status == 413
    assert (await client.post("/v1/events", {**EVENT, "payload": "x" * 100_000})).status == 413
    batch = await client.post("/v1/events/batch", {"events": [at_limit] * 6})
    assert (batch.status, batch.json()["field"]) == (413, "body")


async def test_a_chunked_body_is_taken_and_its_size_limited(open_api: OpenApi) -> None:
    client = await open_api({"api.payload_max": 2000})
    for size, status in ((1000, 202), (8000, 413)):
        body = b'{"event_type":"a","payload":"' + b"x" * size + b'"}'
        chunks = [body[at : at + 700] for at in range(0, len(body), 700)]
        framed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        reply = await client.ask("POST", "/v1/events", framed, {"transfer-encoding": "chunked"})
        assert reply.status == status


async def test_many_at_once_share_commits_and_are_all_stored(client: Client, owner: Any) -> None:
    replies = await asyncio.gather(
        *(client.post("/v1/events", {**EVENT, "external_id": f"k{n % 40}"}) for n in range(80))
    )
    assert sorted(reply.status for reply in replies) == [200] * 40 + [202] * 40
    assert await owner.fetchval("SELECT count(*) FROM events") == 40


async def test_a_key_of_a_tenant_writes_only_that_tenant(
    client: Client, new_key: NewKey, owner: Any
) -> None:
    bound = client.with_key(await new_key("ingest", tenant="acme"))
    assert (await bound.post("/v1/events", EVENT)).status == 202
    assert (await bound.post("/v1/events", {**EVENT, "tenant": "acme"})).status == 202
    for other in ("", "globex"):
        reply = await bound.post("/v1/events", {**EVENT, "tenant": other})
        assert (reply.status, reply.json()["field"]) == (403, "tenant")
    batch = await bound.post("/v1/events/batch", {"events": [EVENT, {**EVENT, "tenant": "x"}]})
    assert batch.status == 403
    assert await owner.fetch("SELECT DISTINCT tenant FROM events") == [("acme",)]


async def test_an_event_is_shown_with_its_deliveries(client: Client, owner: Any) -> None:
    event_id = await an_event(owner, payload='{"a": 1}', tenant="acme", external_id="k")
    saga_id = await a_saga(owner, event_id=event_id, status=SagaStatus.PENDING_RETRY)
    shown = (await client.get(f"/v1/events/{event_id}")).json()
    assert (shown["payload"], shown["tenant"], shown["external_id"]) == ({"a": 1}, "acme", "k")
    (delivery,) = shown["deliveries"]
    assert (delivery["id"], delivery["status"]) == (saga_id, "PendingRetry")
    assert (delivery["attempt_count"], delivery["requeued_from"]) == (1, None)
    assert (await client.get("/v1/events/999")).status == 404


@pytest.mark.parametrize("buckets", [4])
async def test_events_of_every_bucket_are_found(client: Client, owner: Any) -> None:
    numbers = []
    for number in range(8):
        reply = await client.post("/v1/events", {**EVENT, "external_id": f"k{number}"})
        numbers.append(reply.json()["id"])
    found = await asyncio.gather(*(client.get(f"/v1/events/{number}") for number in numbers))
    assert {reply.status for reply in found} == {200}
    assert await owner.fetchval("SELECT count(DISTINCT bucket) FROM events") > 1


@asynccontextmanager
async def held(owner: Any, external_id: str) -> AsyncIterator[None]:
    """Someone's transaction has written an event with this key and goes on."""
    transaction = owner.transaction()
    await transaction.start()
    await an_event(owner, external_id=external_id)
    try:
        yield
    finally:
        await transaction.rollback()


async def test_a_key_in_an_open_transaction_is_named_and_can_be_sent_again(
    client: Client, owner: Any
) -> None:
    event, free = ({**EVENT, "external_id": key} for key in ("held", "free"))
    async with held(owner, "held"):
        alone = await client.post("/v1/events", event)
        together = await asyncio.gather(
            *(client.post("/v1/events", one) for one in (event, free, event))
        )
        assert together[1].status == 202
        for reply in (alone, together[0], together[2]):
            problem = reply.json()
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert problem["type"] == "/problems/external-id-held"
            assert problem["field"] == "external_id"
            assert "transaction" in problem["title"] and "still open" in problem["detail"]
    assert (await client.post("/v1/events", event)).status == 202


async def test_in_a_batch_a_key_in_an_open_transaction_fails_its_own_event_only(
    client: Client, owner: Any
) -> None:
    batch = [EVENT, *({**EVENT, "external_id": key} for key in ("one", "held", "two"))]
    async with held(owner, "held"):
        reply = await client.post("/v1/events/batch", {"events": batch})
        results = reply.json()["results"]
        assert (reply.status, [one["status"] for one in results]) == (200, [202, 202, 503, 202])
        assert results[2]["error"]["type"] == "/problems/external-id-held"
    again = (await client.post("/v1/events/batch", {"events": batch[1:]})).json()["results"]
    assert [one["status"] for one in again] == [200, 202, 200]


async def test_the_deliveries_of_an_event_come_in_pages_and_none_is_left_out(
    client: Client, owner: Any
) -> None:
    event, other = await an_event(owner), await an_event(owner)
    await many_deliveries(owner, other, 3)
    wanted = await many_deliveries(owner, event, 205)
    path = f"/v1/events/{event}"
    first = (await client.get(path)).json()
    assert (len(first["deliveries"]), first["payload"]) == (200, {"order": 1})
    second = (await client.get(f"{path}?cursor={first['next']}")).json()
    shown = [one["id"] for page in (first, second) for one in page["deliveries"]]
    assert (shown, second["next"]) == (wanted, None)
    ids, query = [], "?limit=100"
    while query:
        page = (await client.get(path + query)).json()
        ids += [one["id"] for one in page["deliveries"]]
        query = f"?limit=100&cursor={page['next']}" if page["next"] else ""
    assert ids == wanted
    listed = (await client.get(f"/v1/deliveries?event_id={event}&cursor={first['next']}")).json()
    assert [one["id"] for one in listed["items"]] == wanted[200:]
    assert (await client.get(f"{path}?limit=201")).status == 422
    assert (await client.get(f"{path}?cursor=x")).status == 422
