"""Dead letters over HTTP: shown, requeued once, many at a time, or only counted."""

from __future__ import annotations

from typing import Any

from support.api import NewKey
from support.http import Client
from support.rows import a_dead_letter, a_saga, a_subscription
from surehook.model.states import SagaStatus


async def test_a_dead_letter_is_shown_with_its_payload(client: Client, owner: Any) -> None:
    letter = await a_dead_letter(owner)
    shown = (await client.get(f"/v1/dead-letters/{letter}")).json()
    assert (shown["id"], shown["payload"], shown["requeued_as"]) == (letter, {"order": 1}, None)
    assert (await client.get("/v1/dead-letters/999999")).status == 404


async def test_requeuing_twice_gives_the_same_delivery(client: Client, owner: Any) -> None:
    letter = await a_dead_letter(owner)
    first = await client.post(f"/v1/dead-letters/{letter}/requeue")
    again = await client.post(f"/v1/dead-letters/{letter}/requeue")
    assert (first.status, again.status) == (201, 200)
    assert first.json()["created"] and not again.json()["created"]
    assert first.json()["delivery_id"] == again.json()["delivery_id"]
    shown = (await client.get(f"/v1/dead-letters/{letter}")).json()
    assert shown["requeued_as"] == first.json()["delivery_id"]
    saga = (await client.get(f"/v1/deliveries/{shown['requeued_as']}")).json()
    assert (saga["status"], saga["requeued_from"]) == ("Pending", letter)


async def test_requeuing_to_an_inactive_subscription_is_a_conflict(
    client: Client, owner: Any
) -> None:
    subscription_id = await a_subscription(owner, active=False)
    saga_id = await a_saga(owner, subscription_id=subscription_id, status=SagaStatus.DEAD_LETTERED)
    letter = await a_dead_letter(owner, saga_id=saga_id)
    reply = await client.post(f"/v1/dead-letters/{letter}/requeue")
    assert (reply.status, reply.json()["type"]) == (409, "/problems/conflict")
    many = (await client.post("/v1/dead-letters/requeue", {"all": True})).json()
    assert (many["count"], many["skipped"]) == (0, [letter])
    assert (await client.post("/v1/dead-letters/999999/requeue")).status == 404


async def test_many_are_requeued_by_filter_after_a_dry_run(client: Client, owner: Any) -> None:
    subscription_id = await a_subscription(owner)
    letters = []
    for _ in range(3):
        saga_id = await a_saga(
            owner, subscription_id=subscription_id, status=SagaStatus.DEAD_LETTERED
        )
        letters.append(await a_dead_letter(owner, saga_id=saga_id))
    await a_dead_letter(owner)
    wanted = {"subscription_id": subscription_id, "limit": 2}
    dry = (await client.post("/v1/dead-letters/requeue", {**wanted, "dry_run": True})).json()
    assert dry == {"count": 2, "dead_letter_ids": letters[:2], "deliveries": [], "skipped": []}
    assert await owner.fetchval("SELECT count(*) FROM webhook_delivery_sagas") == 4
    done = (await client.post("/v1/dead-letters/requeue", wanted)).json()
    assert (done["count"], done["dead_letter_ids"]) == (2, letters[:2])
    rest = (await client.post("/v1/dead-letters/requeue", wanted)).json()
    assert [pair["dead_letter_id"] for pair in rest["deliveries"]] == letters[2:]


async def test_a_requeue_that_names_nothing_requeues_nothing(
    client: Client, new_key: NewKey, owner: Any
) -> None:
    letter = await a_dead_letter(owner)
    of_a_tenant = client.with_key(await new_key("operator", tenant=""))
    for asking in (client, of_a_tenant):
        for body in (None, {}, {"limit": 10}, {"dry_run": True}, {"all": False}):
            reply = await asking.post("/v1/dead-letters/requeue", body)
            assert (reply.status, reply.json()["field"]) == (422, "body")
            assert (
                'error_code, failed_from, failed_until, or "all": true.' in reply.json()["detail"]
            )
    assert await owner.fetchval("SELECT count(*) FROM webhook_delivery_sagas") == 1
    both = await client.post("/v1/dead-letters/requeue", {"all": True, "subscription_id": 1})
    assert (both.status, both.json()["field"]) == (422, "all")
    everything = await client.post("/v1/dead-letters/requeue", {"all": True})
    assert everything.json()["dead_letter_ids"] == [letter]


async def test_an_error_code_that_does_not_exist_is_refused_with_those_that_do(
    client: Client,
) -> None:
    for reply in (
        await client.get("/v1/dead-letters?error_code=HTTP_500"),
        await client.post("/v1/dead-letters/requeue", {"error_code": "HTTP_500"}),
    ):
        assert (reply.status, reply.json()["field"]) == (422, "error_code")
        assert "one of TIMEOUT, DNS_FAILED," in reply.json()["detail"]
