"""Who may do what: every route with every kind of wrong key, tenants apart, revocation, limits."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from support import OpenStore
from support.api import NewKey, OpenApi
from support.http import Client, Reply
from support.rows import a_dead_letter, a_saga, a_subscription, an_event
from support.waiting import until
from surehook.api import auth
from surehook.api.app import ROUTES
from surehook.api.problems import Problem
from surehook.api.routes import Route
from surehook.model.states import SagaStatus
from surehook.store.key_checks import KeyCheckStore

SECRET_TEXT = "only-acme-may-see-this"
GUARDED = [route for route in ROUTES if route.scope is not None]
SCOPES = ("ingest", "read", "operator")


def path_of(route: Route, number: int) -> str:
    return route.path.replace("{id}", str(number))


async def ask(client: Client, route: Route, number: int = 1) -> Reply:
    body = route.example if route.body is not None else None
    return await client.ask(route.method, path_of(route, number), body)


def shows_nothing(reply: Reply) -> bool:
    return SECRET_TEXT.encode() not in reply.body


async def things_of(owner: Any, tenant: str) -> dict[str, int]:
    """One of everything, all with a text that nobody else may see."""
    event_id = await an_event(
        owner, tenant=tenant, payload=f'"{SECRET_TEXT}"', external_id=SECRET_TEXT
    )
    subscription_id = await a_subscription(owner, tenant=tenant, description=SECRET_TEXT)
    saga_id = await a_saga(
        owner,
        event_id=event_id,
        subscription_id=subscription_id,
        status=SagaStatus.DEAD_LETTERED,
        error_code=SECRET_TEXT,
    )
    key_id = await owner.fetchval(
        "INSERT INTO api_keys (name, key_hash, scopes, tenant) "
        "VALUES ($1, sha256('any'), 'read', $2) RETURNING id",
        SECRET_TEXT,
        tenant,
    )
    return {
        "/v1/events": event_id,
        "/v1/subscriptions": subscription_id,
        "/v1/deliveries": saga_id,
        "/v1/dead-letters": await a_dead_letter(owner, saga_id=saga_id),
        "/v1/keys": key_id,
    }


async def test_no_route_opens_to_a_missing_wrong_or_revoked_key(
    client: Client, new_key: NewKey, owner: Any
) -> None:
    things = await things_of(owner, "")
    revoked = await new_key("admin")
    number = (await client.get("/v1/keys")).json()["items"][0]["id"]
    assert (await client.ask("DELETE", f"/v1/keys/{number}")).json()["revoked_at"] is not None
    for route in GUARDED:
        for key in (None, "shk_wrong", "", revoked, "\xff\xfe"):
            for number in {1, *things.values()}:
                reply = await ask(client.with_key(key), route, number)
                assert reply.status == 401, (route, key)
                assert reply.headers["www-authenticate"].startswith("Bearer")
                assert reply.json()["type"] == "/problems/unauthorized"
                assert shows_nothing(reply)


async def test_other_schemes_than_bearer_are_refused(client: Client) -> None:
    for header in ("Basic YTpi", "Bearer", "bearer", "Token x"):
        reply = await client.with_key(None).get("/v1/events", authorization=header)
        assert reply.status == 401


async def test_no_route_opens_to_a_key_of_another_scope(
    client: Client, new_key: NewKey, owner: Any
) -> None:
    things = await things_of(owner, "")
    keys = {scope: await new_key(scope) for scope in SCOPES}
    for route in GUARDED:
        for scope, key in keys.items():
            if scope == route.scope:
                continue
            for number in {1, *things.values()}:
                reply = await ask(client.with_key(key), route, number)
                assert (reply.status, shows_nothing(reply)) == (403, True), (route, scope)


async def test_a_key_of_another_tenant_finds_nothing(
    client: Client, new_key: NewKey, owner: Any
) -> None:
    things = await things_of(owner, "acme")
    stranger = client.with_key(await new_key("admin", tenant="globex"))
    before = await everything(owner)
    for route in GUARDED:
        place = "/".join(route.path.split("/")[:3])
        if route.has_id:
            reply = await ask(stranger, route, things[place])
            assert reply.status == 404, (route, reply.body)
        elif route.method == "GET" and route.path != "/metrics":
            for query in ("", "?tenant=acme"):
                reply = await stranger.get(route.path + query)
                assert (reply.status, shows_nothing(reply)) == (200, True)
    assert (await stranger.get("/metrics")).status == 403
    assert await everything(owner) == before
    requeue = await stranger.post("/v1/dead-letters/requeue", {"all": True})
    assert requeue.json() == {"count": 0, "dead_letter_ids": [], "deliveries": [], "skipped": []}
    for path, body in (
        ("/v1/dead-letters/requeue", {"tenant": "acme"}),
        ("/v1/keys", {"name": "x", "scopes": ["read"], "tenant": "acme"}),
        (
            "/v1/subscriptions",
            {"event_type": "a", "callback_url": "https://a.example", "tenant": "acme"},
        ),
        ("/v1/events", {"event_type": "a", "payload": 1, "tenant": "acme"}),
    ):
        reply = await stranger.post(path, body)
        assert (reply.status, reply.json()["field"]) == (403, "tenant")
    assert await everything(owner) == before


async def everything(owner: Any) -> list[Any]:
    """Every row that the strangers' requests could have touched."""
    tables = ("events", "subscriptions", "webhook_delivery_sagas", "dead_letters")
    return [await owner.fetch(f"SELECT * FROM {table} ORDER BY id") for table in tables]


async def test_a_key_of_the_tenant_finds_its_own(
    client: Client, new_key: NewKey, owner: Any
) -> None:
    things = await things_of(owner, "acme")
    await things_of_another(owner)
    own = client.with_key(await new_key("admin", tenant="acme"))
    for path, number in things.items():
        if path != "/v1/keys":
            assert (await own.get(f"{path}/{number}")).status == 200
        listed = (await own.get(path)).json()["items"]
        assert number in [item["id"] for item in listed]
        assert all(item.get("tenant", "acme") == "acme" for item in listed)
    made = await own.post("/v1/keys", {"name": "mine", "scopes": ["read"]})
    assert made.json()["tenant"] == "acme"


async def things_of_another(owner: Any) -> None:
    await an_event(owner, tenant="globex")
    await a_subscription(owner, tenant="globex")


async def test_a_revoked_key_is_out_within_two_seconds(
    client: Client, new_key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = client.with_key(await new_key("read"))
    number = (await client.get("/v1/keys")).json()["items"][0]["id"]
    assert (await user.get("/v1/events")).status == 200
    await client.ask("DELETE", f"/v1/keys/{number}")
    two_seconds_later = SimpleNamespace(monotonic=lambda: time.monotonic() + 2.0)
    monkeypatch.setattr(auth, "time", two_seconds_later)
    assert (await user.get("/v1/events")).status == 401


async def test_a_key_is_shown_once_and_stored_hashed(client: Client, owner: Any) -> None:
    made = (await client.post("/v1/keys", {"name": "shop", "scopes": ["ingest", "read"]})).json()
    assert made["key"].startswith("shk_") and len(made["key"]) == 47
    assert (made["scopes"], made["tenant"], made["revoked_at"]) == (["ingest", "read"], None, None)
    listed = await client.get("/v1/keys")
    assert made["key"].encode() not in listed.body and b"hash" not in listed.body
    row = await owner.fetchrow(
        "SELECT key_hash = sha256($1::bytea) FROM api_keys", made["key"].encode()
    )
    assert row[0] is True


async def test_the_last_use_of_a_key_is_written(
    client: Client, new_key: NewKey, owner: Any
) -> None:
    user = client.with_key(await new_key("read"))
    assert await owner.fetchval("SELECT last_used_at FROM api_keys") is None
    await user.get("/v1/events")
    first = await until(lambda: owner.fetchval("SELECT last_used_at FROM api_keys"))
    await user.get("/v1/events")
    assert await owner.fetchval("SELECT last_used_at FROM api_keys") == first


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scopes": ["read"]}, "name"),
        ({"name": "", "scopes": ["read"]}, "name"),
        ({"name": "a\nb", "scopes": ["read"]}, "name"),
        ({"name": "a", "scopes": []}, "scopes"),
        ({"name": "a", "scopes": ["root"]}, "scopes/0"),
        ({"name": "a", "scopes": ["read"], "tenant": "x" * 101}, "tenant"),
        ({"name": "a", "scopes": ["read"], "key": "mine"}, "key"),
    ],
)
async def test_a_wrong_key_request_names_the_field(
    client: Client, body: dict[str, object], field: str
) -> None:
    reply = await client.post("/v1/keys", body)
    assert (reply.status, reply.json()["field"]) == (422, field)


async def test_wrong_keys_from_one_address_are_limited_and_known_keys_pass(
    open_api: OpenApi,
) -> None:
    client = await open_api({"api.key_failures": 5})
    made = (await client.post("/v1/keys", {"name": "good", "scopes": ["read"]})).json()
    good = client.with_key(made["key"])
    assert (await good.get("/v1/events")).status == 200
    replies = [await client.with_key(f"shk_{n}").get("/v1/events") for n in range(8)]
    assert [reply.status for reply in replies] == [401] * 5 + [429] * 3
    assert int(replies[-1].headers["retry-after"]) > 0
    assert (await good.get("/v1/events")).status == 200
    assert (await client.get("/v1/events")).status == 200


async def test_wrong_keys_of_others_do_not_lock_a_valid_new_key_out(open_api: OpenApi) -> None:
    """All come from the address of one reverse proxy."""
    client = await open_api({"api.key_failures": 5})
    made = [
        (await client.post("/v1/keys", {"name": "good", "scopes": ["read"]})).json()["key"]
        for _ in range(3)
    ]
    wrong = [client.with_key(f"shk_{n}").get("/v1/events") for n in range(50)]
    good = [client.with_key(key).get("/v1/events") for key in made]
    replies = await asyncio.gather(*wrong, *good)
    assert {reply.status for reply in replies[:50]} == {401, 429}
    assert [reply.status for reply in replies[50:]] == [200, 200, 200]


async def test_a_flood_of_wrong_keys_costs_few_questions(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    find = KeyCheckStore.find

    async def counted(store: KeyCheckStore, hashes: list[bytes]) -> Any:
        asked.append(len(hashes))
        return await find(store, hashes)

    monkeypatch.setattr(KeyCheckStore, "find", counted)
    checks = auth.KeyChecks(KeyCheckStore(await open_store("key_checks")), None, 10, 60.0)
    waiting = [checks.check(b"Bearer shk_%d" % n, "192.0.2.1") for n in range(1900)]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert asked == [auth.LOOKUP_KEYS, 900]
    statuses = [result.kind.status for result in results if isinstance(result, Problem)]
    assert statuses.count(401) + statuses.count(429) == 1900
    assert statuses.count(401) < 100  # ten, and what a minute gives back meanwhile
    await checks.close()
