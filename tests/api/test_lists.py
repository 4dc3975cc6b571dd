"""Lists: filters, pages that go on where the last ended, and problems that name the parameter."""

from __future__ import annotations

from typing import Any

import pytest

from support.http import Client
from support.rows import a_dead_letter, a_job, a_saga, a_subscription, an_event
from surehook.model.states import JobStatus, SagaStatus
from surehook.store import observer


async def pages(client: Client, path: str, limit: int) -> list[list[int]]:
    """The ids of each page, to the end."""
    listed, cursor = [], ""
    while True:
        joint = "&" if "?" in path else "?"
        reply = await client.get(f"{path}{joint}limit={limit}{cursor}")
        assert reply.status == 200, reply.body
        listed.append([item["id"] for item in reply.json()["items"]])
        if reply.json()["next"] is None:
            return listed
        cursor = f"&cursor={reply.json()['next']}"


async def test_pages_go_on_where_the_last_ended_whatever_is_added(
    client: Client, owner: Any
) -> None:
    numbers = [await an_event(owner) for _ in range(7)]
    first = (await client.get("/v1/events?limit=3")).json()
    assert [item["id"] for item in first["items"]] == numbers[:3:-1]
    await an_event(owner)
    rest = (await client.get(f"/v1/events?limit=3&cursor={first['next']}")).json()
    assert [item["id"] for item in rest["items"]] == numbers[3:0:-1]


async def test_events_of_the_same_moment_are_each_listed_once(client: Client, owner: Any) -> None:
    await owner.execute(
        "INSERT INTO events (event_type, payload, created_at) "
        "SELECT 'same', '1', '2026-01-01' FROM generate_series(1, 9)"
    )
    listed = await pages(client, "/v1/events", 4)
    assert [len(page) for page in listed] == [4, 4, 1]
    assert len({number for page in listed for number in page}) == 9


@pytest.mark.parametrize("buckets", [1, 4])
async def test_events_are_filtered(client: Client, owner: Any, buckets: int) -> None:
    wanted = await an_event(
        owner, event_type="a", tenant="acme", external_id="k", bucket=buckets - 1
    )
    await an_event(owner, event_type="b", tenant="acme")
    await an_event(owner, event_type="a", tenant="globex", external_id="k")
    for query in ("event_type=a&tenant=acme", "external_id=k&tenant=acme"):
        assert await pages(client, f"/v1/events?{query}", 10) == [[wanted]]
    assert len((await pages(client, "/v1/events?external_id=k", 10))[0]) == 2
    nothing = "/v1/events?created_until=2020-01-01T00:00:00Z"
    assert await pages(client, nothing, 10) == [[]]
    everything = "/v1/events?created_from=2020-01-01T00:00:00%2B01:00"
    assert len((await pages(client, everything, 10))[0]) == 3


@pytest.mark.parametrize("buckets", [1, 4])
async def test_deliveries_are_filtered(client: Client, owner: Any, buckets: int) -> None:
    acme = await a_subscription(owner, tenant="acme")
    other = await a_subscription(owner)
    event_id = await an_event(owner, event_type="special", bucket=buckets - 1)
    wanted = await a_saga(
        owner, subscription_id=acme, event_id=event_id, bucket=buckets - 1,
        status=SagaStatus.COMPLETED,
    )  # fmt: skip
    for status in (SagaStatus.PENDING, SagaStatus.IN_PROGRESS, SagaStatus.DEAD_LETTERED):
        await a_saga(owner, subscription_id=other, status=status)
    for query in (
        "tenant=acme",
        f"subscription_id={acme}",
        f"event_id={event_id}",
        "status=Completed",
        "event_type=special",
        f"tenant=acme&status=Completed&event_id={event_id}",
    ):
        assert await pages(client, f"/v1/deliveries?{query}", 10) == [[wanted]], query
    assert await pages(client, "/v1/deliveries?tenant=acme&status=Pending", 10) == [[]]
    assert [len(page) for page in await pages(client, "/v1/deliveries", 3)] == [3, 1]


async def test_a_delivery_is_shown_with_its_attempts(client: Client, owner: Any) -> None:
    saga_id = await a_saga(owner, status=SagaStatus.DEAD_LETTERED)
    assert (await client.get(f"/v1/deliveries/{saga_id}")).json()["dead_letter_id"] is None
    letter = await a_dead_letter(owner, saga_id=saga_id)
    shown = (await client.get(f"/v1/deliveries/{saga_id}")).json()
    (attempt,) = shown["attempts"]
    assert (shown["status"], shown["final_error_code"]) == ("DeadLettered", "HTTP_5XX")
    assert (attempt["status"], attempt["response_status"]) == ("Failed", 500)
    assert (attempt["error_code"], attempt["worker_id"]) == ("HTTP_5XX", "worker-1")
    assert shown["dead_letter_id"] == letter
    assert (await client.get("/v1/deliveries/999999")).status == 404


# Status, response_excerpt and failure_detail: as stored, and the last two as they are shown.
TEXTS = {
    "both": ((200, "so much", "too much"), ("so much", "too much")),
    "an answer": ((503, "sorry", None), ("sorry", None)),
    "no answer": ((None, None, "refused"), (None, "refused")),
    "an older worker, no answer": ((None, "refused", None), (None, "refused")),
    "nothing": ((None, None, None), (None, None)),
}


@pytest.mark.parametrize(("stored", "shown"), TEXTS.values(), ids=TEXTS)
async def test_the_words_of_the_endpoint_and_ours_are_shown_apart(
    client: Client, owner: Any, stored: tuple[object, ...], shown: tuple[object, ...]
) -> None:
    saga_id = await a_saga(owner)
    await a_job(owner, saga_id=saga_id, status=JobStatus.LEASED)
    await owner.execute(
        "UPDATE webhook_delivery_jobs SET status = 'Failed', error_code = 'PROTOCOL_ERROR', "
        "finished_at = surehook_now(), response_status = $1, response_excerpt = $2, "
        "failure_detail = $3",
        *stored,
    )
    (attempt,) = (await client.get(f"/v1/deliveries/{saga_id}")).json()["attempts"]
    assert (attempt["response_excerpt"], attempt["failure_detail"]) == shown


async def test_dead_letters_are_filtered(client: Client, owner: Any) -> None:
    acme = await a_subscription(owner, tenant="acme")
    event_id = await an_event(owner, event_type="special", tenant="acme")
    saga_id = await a_saga(
        owner, subscription_id=acme, event_id=event_id, status=SagaStatus.DEAD_LETTERED,
        error_code="GONE",
    )  # fmt: skip
    wanted = await a_dead_letter(owner, saga_id=saga_id)
    other = await a_dead_letter(owner)
    for query in (
        "tenant=acme",
        f"subscription_id={acme}",
        "event_type=special",
        "error_code=GONE",
    ):
        assert await pages(client, f"/v1/dead-letters?{query}", 10) == [[wanted]], query
    assert await pages(client, "/v1/dead-letters?requeued=false", 1) == [[other], [wanted], []]
    assert await pages(client, "/v1/dead-letters?requeued=true", 10) == [[]]
    assert await pages(client, "/v1/dead-letters?failed_until=2020-01-01T00:00:00Z", 5) == [[]]


async def test_a_page_looks_at_no_more_than_its_window(
    client: Client, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rare match is found after pages that are empty, not by one that reads everything."""
    acme = await a_subscription(owner, tenant="acme")
    wanted = await a_saga(owner, subscription_id=acme)
    other = await a_subscription(owner)
    for _ in range(9):
        await a_saga(owner, subscription_id=other)
    monkeypatch.setattr(observer, "LOOK", 4)
    listed = await pages(client, "/v1/deliveries?tenant=acme", 2)
    assert listed == [[], [], [wanted]]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/events?limit=0", "limit"),
        ("/v1/events?limit=201", "limit"),
        ("/v1/events?limit=x", "limit"),
        ("/v1/events?cursor=%00", "cursor"),
        ("/v1/events?cursor=abc", "cursor"),
        ("/v1/events?cursor=W10", "cursor"),
        ("/v1/deliveries?cursor=WyJ4Il0", "cursor"),
        ("/v1/deliveries?cursor=Wy0xXQ", "cursor"),
        ("/v1/events?nonsense=1", "nonsense"),
        ("/v1/events?tenant=a&tenant=b", "query"),
        ("/v1/events?tenant=%ff", "query"),
        ("/v1/events?tenant=%00", "tenant"),
        ("/v1/events?created_from=yesterday", "created_from"),
        ("/v1/events?created_from=2026-01-01T00:00:00", "created_from"),
        ("/v1/events?created_from=0001-01-01T00:00:00Z", "created_from"),
        ("/v1/deliveries?status=Lost", "status"),
        ("/v1/deliveries?event_id=0", "event_id"),
        ("/v1/deliveries?event_id=9223372036854775808", "event_id"),
        ("/v1/dead-letters?requeued=perhaps", "requeued"),
        ("/v1/events/1?expand=1", "expand"),
        ("/v1/deliveries/1?expand=1", "query"),
    ],
)
async def test_a_wrong_parameter_is_named(client: Client, path: str, field: str) -> None:
    reply = await client.get(path)
    assert (reply.status, reply.json()["field"]) == (422, field), reply.body
    assert reply.headers["content-type"] == "application/problem+json"


async def test_a_value_that_is_none_of_a_few_is_refused_with_those_that_are(client: Client) -> None:
    listed = await client.get("/v1/deliveries?status=Faild")
    permitted = "Pending, InProgress, PendingRetry, Completed, DeadLettered"
    assert listed.json()["detail"] == f"Invalid enum value 'Faild': it is one of {permitted}."
    made = await client.post("/v1/keys", {"name": "a", "scopes": ["read", "write"]})
    assert made.json()["detail"].endswith("it is one of admin, ingest, operator, read.")
    assert (made.status, made.json()["field"]) == (422, "scopes/1")
