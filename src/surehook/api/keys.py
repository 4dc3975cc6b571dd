"""API keys: create, list, revoke.

Components  keys, observer
Reads   api_keys without hashes     Writes  INSERT api_keys, revoked_at, by way of Keys
"""

from __future__ import annotations

import msgspec

from surehook.actions.keys import Scope
from surehook.api.pages import before_id, page_of
from surehook.api.problems import NOT_FOUND
from surehook.api.routes import Answer, Call, Route
from surehook.api.shapes import (
    Key,
    KeysQuery,
    KeyWithSecret,
    NewKeyBody,
    Page,
    extended,
    rfc3339,
    rfc3339_or_none,
)
from surehook.model.records import ApiKey
from surehook.store.keys import api_key
from surehook.store.observer import Found


async def create_key(call: Call) -> Answer:
    body: NewKeyBody = call.body
    tenant = body.tenant
    if call.key.tenant is not None:
        tenant = call.key.tenant_for(tenant)
    made = await call.api.keys.create(body.name, body.scopes, tenant)
    return Answer(201, extended(KeyWithSecret, _shape(made.key), key=made.secret))


async def list_keys(call: Call) -> Answer:
    query: KeysQuery = call.query
    before = before_id(query.cursor)

    async def fetch(tenant: str | None) -> Found:
        found = await call.api.observer.api_keys(before, query.limit, tenant)
        rows = [msgspec.structs.astuple(_shape(api_key(row))) for row in found.rows]
        return Found(rows, found.last)

    return Answer(200, await page_of(call.key, query.tenant, fetch, Key))


async def revoke_key(call: Call) -> Answer:
    return Answer(200, _shape(await call.api.keys.revoke(call.number, call.key.tenant)))


def _shape(key: ApiKey) -> Key:
    return Key(
        key.id,
        key.name,
        list(key.scopes),  # type: ignore[arg-type]
        key.tenant,
        rfc3339(key.created_at),
        rfc3339_or_none(key.last_used_at),
        rfc3339_or_none(key.revoked_at),
    )


ROUTES = (
    Route(
        "POST",
        "/v1/keys",
        create_key,
        Scope.ADMIN,
        "Create a key; it is shown this once",
        {201: KeyWithSecret},
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
        "Revoke a key; within 2 seconds it opens nothing",
        {200: Key},
        "keys",
        (NOT_FOUND,),
        client="keys.revoke",
    ),
)
