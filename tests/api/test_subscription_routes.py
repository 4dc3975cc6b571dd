"""Subscriptions over HTTP: created once, changed in part, proved, tested, their secret rotated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from support import Configure
from support.api import FLAGS, OpenApi, serving
from support.http import Client
from support.receiver import Answer, Receiver
from support.rows import a_job, a_saga, an_event
from support.waiting import LEASE_SECONDS
from surehook.delivery.secrets import Sealer
from surehook.model.records import HEADERS_CONTEXT
from surehook.model.states import JobStatus
from surehook.receive import verify
from surehook.store.logins import DatabaseAccess

NEW = {"event_type": "order.paid", "callback_url": "https://shop.example.com/hooks"}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


async def test_a_subscription_is_created_once_per_key_and_its_secret_shown_once(
    client: Client,
) -> None:
    body = {
        **NEW,
        "tenant": "acme",
        "description": "ledger",
        "max_attempts": 7,
        "custom_headers": {"x-token": "very secret", "x-a": "b"},
        "signature": "v1,v1a",
    }
    first = await client.post("/v1/subscriptions", body, idempotency_key="once")
    made = first.json()
    assert (first.status, made["secret"][:6], made["public_key"][:5]) == (201, "whsec_", "whpk_")
    assert (made["verified"], made["active"], made["verification"]) == (False, True, None)
    assert (made["custom_header_names"], made["max_attempts"]) == (["x-a", "x-token"], 7)
    again = await client.post("/v1/subscriptions", body, idempotency_key="once")
    assert (again.status, again.json()["id"]) == (200, made["id"])
    shown = await client.get(f"/v1/subscriptions/{made['id']}")
    listed = await client.get("/v1/subscriptions?tenant=acme&verified=false&active=true")
    for reply in (again, shown, listed):
        assert b"whsec_" not in reply.body and b"very secret" not in reply.body
    assert listed.json()["items"] == [shown.json()]
    assert (await client.get("/v1/subscriptions?verified=true")).json()["items"] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"event_type": "a b"}, "event_type"),
        ({"callback_url": "http://shop.example.com"}, "callback_url"),
        ({"callback_url": "https://127.0.0.1/x"}, "callback_url"),
        ({"callback_url": "https://" + "a" * 600}, "callback_url"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"base_delay_seconds": -1}, "base_delay_seconds"),
        ({"request_timeout_seconds": LEASE_SECONDS - 4}, "request_timeout_seconds"),
        ({"concurrency_cap": 0}, "concurrency_cap"),
        ({"concurrency_cap": 257}, "concurrency_cap"),
        ({"rate_limit_per_second": 0}, "rate_limit_per_second"),
        ({"custom_headers": {"webhook-id": "x"}}, "custom_headers"),
        ({"custom_headers": {"x": "a\r\nb: c"}}, "custom_headers"),
        ({"description": "x" * 1001}, "description"),
        ({"description": "a\u0000b"}, "description"),
        ({"signature": "v2"}, "signature"),
        ({"secret": "mine"}, "secret"),
        ({"verified": True}, "verified"),
        ({"tenant": "a\n"}, "tenant"),
    ],
)
async def test_a_wrong_setting_is_named(
    client: Client, owner: Any, change: dict[str, object], field: str
) -> None:
    reply = await client.post("/v1/subscriptions", {**NEW, **change})
    assert (reply.status, reply.json()["field"]) == (422, field), reply.body
    assert await owner.fetchval("SELECT count(*) FROM subscriptions") == 0


async def test_only_what_is_named_changes(client: Client) -> None:
    made = (await client.post("/v1/subscriptions", {**NEW, "max_attempts": 3})).json()
    path = f"/v1/subscriptions/{made['id']}"
    changed = (await client.ask("PATCH", path, {"active": False, "concurrency_cap": 2})).json()
    assert (changed["active"], changed["concurrency_cap"], changed["max_attempts"]) == (False, 2, 3)
    cleared = (await client.ask("PATCH", path, {"max_attempts": None})).json()
    assert (cleared["max_attempts"], cleared["concurrency_cap"]) == (None, 2)
    moved = (await client.ask("PATCH", path, {"callback_url": "https://other.example/"})).json()
    assert moved["callback_url"] == "https://other.example/"
    for wrong in ({"tenant": "x"}, {"verified": True}, {"secret": "x"}):
        reply = await client.ask("PATCH", path, wrong)
        assert (reply.status, reply.json()["field"]) == (422, next(iter(wrong)))
    assert (await client.ask("PATCH", "/v1/subscriptions/999", {})).status == 404


async def test_a_new_url_of_a_verified_subscription_is_staged(client: Client, owner: Any) -> None:
    made = (await client.post("/v1/subscriptions", NEW)).json()
    await owner.execute("UPDATE subscriptions SET verified = true")
    path = f"/v1/subscriptions/{made['id']}"
    moved = (await client.ask("PATCH", path, {"callback_url": "https://new.example/"})).json()
    assert (moved["callback_url"], moved["verified"]) == (NEW["callback_url"], True)
    assert moved["pending_callback_url"] == "https://new.example/"


async def test_headers_that_do_not_open_hide_no_others(client: Client, owner: Any) -> None:
    """Sealed with a key that this process does not have: their names are not known, that is all."""
    body = {**NEW, "custom_headers": {"x-token": "abc"}}
    known, foreign = [(await client.post("/v1/subscriptions", body)).json()["id"] for _ in "ab"]
    sealed = Sealer([b"another key of thirty-two bytes!"]).seal("[]", HEADERS_CONTEXT)
    await owner.execute(
        "UPDATE subscriptions SET custom_headers = $1 WHERE id = $2", sealed, foreign
    )
    listed = (await client.get("/v1/subscriptions")).json()["items"]
    names = {one["id"]: one["custom_header_names"] for one in listed}
    assert names == {known: ["x-token"], foreign: None}
    tested = (await client.post(f"/v1/subscriptions/{foreign}/test")).json()
    assert (tested["sent"], tested["error_code"]) == (False, "SECRET_UNAVAILABLE")
    assert "sealed with key" in tested["failure_detail"]


async def open_with(open_api: OpenApi, receiver: Receiver, *components: str) -> Client:
    flags = {"delivery.allow_networks": "127.0.0.0/8", "delivery.ca_file": str(receiver.ca_file)}
    return await open_api(flags, *components)


async def test_a_test_event_is_sent_signed_and_its_answer_shown(
    open_api: OpenApi, receiver: Receiver, owner: Any
) -> None:
    client = await open_with(open_api, receiver)
    receiver.script("/hook", Answer(status=204), Answer(status=500, body=b"sorry"))
    body = {**NEW, "callback_url": receiver.url + "/hook", "custom_headers": {"x-token": "abc"}}
    made = (await client.post("/v1/subscriptions", body)).json()
    path = f"/v1/subscriptions/{made['id']}/test"
    sent = (await client.post(path, b'{"payload": {"hello" : 1.0}}')).json()
    assert (sent["delivered"], sent["response_status"]) == (True, 204)
    assert (sent["callback_url"], sent["sent"]) == (receiver.url + "/hook", True)
    assert sent["milliseconds"] > 0
    request = receiver.requests[0]
    assert (request.body, request.headers["x-token"]) == (b'{"hello" : 1.0}', "abc")
    verify(request.headers, request.body, made["secret"])
    failed = (await client.post(path)).json()
    assert (failed["delivered"], failed["error_code"]) == (False, "HTTP_5XX")
    assert (failed["response_excerpt"], failed["failure_detail"]) == ("sorry", None)
    assert await owner.fetchval("SELECT count(*) FROM events") == 0
    assert (await client.post("/v1/subscriptions/999/test")).status == 404


async def test_an_endpoint_is_verified_by_the_code_that_its_challenge_carried(
    open_api: OpenApi, receiver: Receiver
) -> None:
    client = await open_with(open_api, receiver, "verifier")
    body = {**NEW, "callback_url": receiver.url + "/hook"}
    made = (await client.post("/v1/subscriptions", body)).json()
    path = f"/v1/subscriptions/{made['id']}/verify"
    asked = await client.post(f"{path}?wait=30", {})
    assert (asked.status, asked.json()["last_result"]) == (202, "not proved")
    code = msgspec.json.decode(receiver.requests[0].body)["code"]
    wrong = await client.post(path, {"code": "AAAA-AAAA-AAAA"})
    assert (wrong.status, wrong.json()["field"]) == (422, "code")
    right = await client.post(path, {"code": code})
    assert (right.status, right.json()["verified"]) == (200, True)
    assert right.json()["verification"]["verified_at"] is not None
    assert (await client.post("/v1/subscriptions/999/verify")).status == 404


async def test_the_key_pair_of_v1a_is_rotated_beside_the_shared_secret(client: Client) -> None:
    made = (await client.post("/v1/subscriptions", {**NEW, "signature": "v1,v1a"})).json()
    path = f"/v1/subscriptions/{made['id']}/rotate-secret"
    rotated = (await client.post(path, {"signature": "v1a"})).json()
    assert list(rotated) == ["old_secrets_expire_at", "public_key"]
    assert rotated["public_key"].startswith("whpk_")
    assert rotated["public_key"] != made["public_key"]
    given = await client.post(path, {"signature": "v1a", "secret": made["secret"]})
    assert (given.status, given.json()["field"]) == (422, "secret")


async def test_a_rotated_secret_is_shown_once_and_the_old_one_expires(client: Client) -> None:
    made = (await client.post("/v1/subscriptions", NEW)).json()
    path = f"/v1/subscriptions/{made['id']}/rotate-secret"
    first = (await client.post(path)).json()
    assert first["secret"].startswith("whsec_") and first["secret"] != made["secret"]
    assert first["old_secrets_expire_at"] > made["created_at"]
    for wrong, field in (({"overlap_seconds": -1}, "overlap_seconds"), ({"secret": "x"}, "secret")):
        reply = await client.post(path, wrong)
        assert (reply.status, reply.json()["field"]) == (422, field)
    assert (await client.post("/v1/subscriptions/999/rotate-secret")).status == 404


async def test_without_an_encryption_key_nothing_is_stored(
    configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    async with serving(configure(FLAGS), DatabaseAccess(access.url, access.role_secret)) as client:
        reply = await client.post("/v1/subscriptions", NEW)
    assert (reply.status, reply.json()["detail"][:24]) == (503, "SUREHOOK_ENCRYPTION_KEY ")
    assert await owner.fetchval("SELECT count(*) FROM subscriptions") == 0


async def test_a_change_with_if_match_is_made_only_from_the_version_that_was_read(
    client: Client,
) -> None:
    made = await client.post("/v1/subscriptions", NEW)
    path, tag = f"/v1/subscriptions/{made.json()['id']}", made.headers["etag"]
    assert tag == f'"{made.json()["version"]}"' == (await client.get(path)).headers["etag"]

    async def change(attempts: int, if_match: str) -> Any:
        return await client.ask("PATCH", path, {"max_attempts": attempts}, {"if-match": if_match})

    first = await change(3, tag)
    assert (first.status, first.json()["max_attempts"]) == (200, 3)
    assert first.headers["etag"] != tag
    for stale in (tag, f"W/{first.headers['etag']}", '"other"', f'"other", {tag}'):
        refused = await change(4, stale)
        assert (refused.status, refused.json()["field"]) == (412, "If-Match"), stale
    for wrong in ("3", '"3', ""):
        refused = await change(4, wrong)
        assert (refused.status, refused.json()["field"]) == (422, "If-Match"), wrong
    assert (await client.get(path)).json() == first.json()
    assert (await change(5, f"{tag}, {first.headers['etag']}")).status == 200
    assert (await change(6, "*")).json()["max_attempts"] == 6


async def test_a_change_of_what_is_not_there_is_not_found_whatever_if_match_says(
    client: Client,
) -> None:
    for tag in ("*", '"1"'):
        reply = await client.ask("PATCH", "/v1/subscriptions/99", {}, {"if-match": tag})
        assert reply.status == 404


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8443",
        "api.localhost",
        "printer.local",
        "db.svc.cluster.local",
        "metadata.google.internal",
        "metadata",
        "intranet",
        "10.1.2.3",
        "[::1]",
        "169.254.169.254",
    ],
)
async def test_a_host_that_can_never_be_delivered_to_is_refused_at_once(
    client: Client, open_api: OpenApi, host: str
) -> None:
    made = (await client.post("/v1/subscriptions", NEW)).json()
    url = {"callback_url": f"https://{host}/hooks"}
    for reply in (
        await client.post("/v1/subscriptions", {**NEW, **url}),
        await client.ask("PATCH", f"/v1/subscriptions/{made['id']}", url),
    ):
        assert (reply.status, reply.json()["field"]) == (422, "callback_url"), reply.body
    if not host[0].isdigit() and host[0] != "[":
        allowing = await open_api({"delivery.allow_networks": ["10.0.0.0/8"]})
        assert (await allowing.post("/v1/subscriptions", {**NEW, **url})).status == 201


async def test_only_an_operator_of_all_tenants_learns_addresses(
    open_api: OpenApi, owner: Any
) -> None:
    """In a test, in a verification, and in what is kept of both and of attempts."""
    client = await open_api(None, "verifier")
    made = (await client.post("/v1/subscriptions", {**NEW, "tenant": "acme"})).json()
    await owner.execute("UPDATE subscriptions SET callback_url = 'https://127.0.0.1/'")
    event = await an_event(owner, tenant="acme")
    saga = await a_saga(owner, event_id=event, subscription_id=made["id"])
    await a_job(owner, saga_id=saga, status=JobStatus.LEASED)
    await owner.execute(
        "UPDATE webhook_delivery_jobs SET status = 'Failed', error_code = 'BLOCKED_ADDRESS', "
        "finished_at = surehook_now(), failure_detail = '127.0.0.1 is loopback'"
    )
    path = f"/v1/subscriptions/{made['id']}"

    async def key(*scopes: str, tenant: str | None = None) -> Client:
        body = {"name": "k", "scopes": scopes, "tenant": tenant}
        return client.with_key((await client.post("/v1/keys", body)).json()["key"])

    async def told(by: Client) -> set[str]:
        listed = (await by.get("/v1/subscriptions")).json()["items"][0]
        attempt = (await by.get(f"/v1/deliveries/{saga}")).json()["attempts"][0]
        return {
            (await by.get(path)).json()["verification"]["last_reason"],
            listed["verification"]["last_reason"],
            attempt["failure_detail"],
        }

    async def told_at_once(by: Client) -> set[str]:
        tried = (await by.post(f"{path}/verify?wait=30")).json()["last_reason"]
        return {tried, (await by.post(f"{path}/test")).json()["failure_detail"]}

    bound = await key("admin", tenant="acme")
    assert await told_at_once(client) == {"127.0.0.1 is loopback"}
    assert await told_at_once(bound) == {"the address is loopback"}
    for by in (client, await key("operator", "read")):
        assert await told(by) == {"127.0.0.1 is loopback"}
    for by in (bound, await key("read"), await key("operator", "read", tenant="acme")):
        assert await told(by) == {"the address is loopback"}


@pytest.mark.parametrize("bound", [False, True], ids=["a key of every tenant", "a tenant's key"])
async def test_what_exceeds_the_operators_ceilings_is_refused_and_the_setting_is_named(
    open_api: OpenApi, bound: bool
) -> None:
    client = await open_api(
        {
            "limits.concurrency_cap": 40,
            "limits.rate": 50,
            "delivery.request_timeout": "15s",
            "limits.request_timeout": "20s",
        }
    )
    if bound:
        key = await client.post("/v1/keys", {"name": "t", "scopes": ["admin"], "tenant": "acme"})
        client = client.with_key(key.json()["key"])
    highest = {
        "concurrency_cap": 40,
        "rate_limit_per_second": 50,
        "request_timeout_seconds": 20,
    }
    made = await client.post("/v1/subscriptions", {**NEW, **highest})
    assert made.status == 201, made.body
    path = f"/v1/subscriptions/{made.json()['id']}"
    for field, setting in (
        ("concurrency_cap", "limits.concurrency_cap"),
        ("rate_limit_per_second", "limits.rate"),
        ("request_timeout_seconds", "limits.request_timeout"),
    ):
        too_much = {field: highest[field] + 1}
        for reply in (
            await client.post("/v1/subscriptions", {**NEW, **too_much}),
            await client.ask("PATCH", path, too_much),
        ):
            assert (reply.status, reply.json()["field"]) == (422, field), reply.body
            assert setting in reply.json()["detail"]


async def test_a_tenant_creates_as_many_subscriptions_as_the_operator_allows(
    open_api: OpenApi,
) -> None:
    client = await open_api({"limits.subscriptions": 3})
    made = await client.post("/v1/keys", {"name": "t", "scopes": ["admin"], "tenant": "acme"})
    own = client.with_key(made.json()["key"])
    replies = await asyncio.gather(*(own.post("/v1/subscriptions", NEW) for _ in range(3)))
    assert [reply.status for reply in replies] == [201] * 3
    refused = await own.post("/v1/subscriptions", NEW)
    assert (refused.status, refused.json()["field"]) == (422, "tenant"), refused.body
    assert "limits.subscriptions" in refused.json()["detail"]
    assert (await client.post("/v1/subscriptions", {**NEW, "tenant": "acme"})).status == 201
    assert (await client.post("/v1/subscriptions", {**NEW, "tenant": "other"})).status == 201
