"""API keys: create, list, revoke.

Components  keys, observer
Reads   api_keys without hashes     Writes  INSERT api_keys, revoked_at, by way of Keys
"""

from __future__ import annotations

from surehook.actions.keys import Scope
from surehook.api.pages import before_id, page_of
from surehook.api.problems import NOT_FOUND
from surehook.api.routes import Answer, Call, Route
from surehook.model.resources.key import Key, KeysQuery, NewKeyBody
from surehook.model.resources.shared import Page


async def create_key(call: Call) -> Answer:
    body: NewKeyBody = call.body
    tenant = body.tenant
    if call.key.tenant is not None:
        tenant = call.key.tenant_for(tenant)
    return Answer(201, await call.api.keys.create(body.name, body.scopes, tenant))


async def list_keys(call: Call) -> Answer:
    before = before_id(call.query.cursor)
    return Answer(200, await page_of(call, call.api.observer.api_keys, before))


async def revoke_key(call: Call) -> Answer:
    return Answer(200, await call.api.keys.revoke(call.number, call.key.tenant))


ROUTES = (
    Route(
        "POST",
        "/v1/keys",
        create_key,
        Scope.ADMIN,
        "Create a key; it is shown this once",
        {201: Key},
        "keys",
        body=NewKeyBody,
        example={"name": "shop", "scopes": ["ingest"], "tenant": "acme"},
        client="keys.create",
    ),
    Route(
        "GET",
        "/v1/keys",
        list_keys,
        Scope.ADMIN,
        "List keys, newest first",
        {200: Page[Key]},
        "keys",
        query=KeysQuery,
        client="keys.list",
    ),
    Route(
        "DELETE",
        "/v1/keys/{id}",
        revoke_key,
        Scope.ADMIN,
        "Revoke a key; takes effect within 2 seconds",
        {200: Key},
        "keys",
        (NOT_FOUND,),
        client="keys.revoke",
    ),
)
