"""API keys: create, list, revoke.

Components  keys, observer
Reads   api_keys without hashes     Writes  INSERT api_keys, revoked_at, by way of Keys
"""

from __future__ import annotations

from surehook.actions.keys import Scope
from surehook.api.pages import add_list
from surehook.api.routes import Answer, Call, Routes
from surehook.model.resources.key import Key, KeysQuery, NewKeyBody
from surehook.model.resources.shared import Page

routes = Routes("keys")


@routes(
    "POST",
    "/v1/keys",
    Scope.ADMIN,
    {201: Key},
    body=NewKeyBody,
    example={"name": "shop", "scopes": ["ingest"], "tenant": "acme"},
    client="keys.create",
)
async def create_key(call: Call) -> Answer:
    """Create a key; it is shown this once."""
    body: NewKeyBody = call.body
    tenant = body.tenant
    if call.key.tenant is not None:
        tenant = call.key.tenant_for(tenant)
    return Answer(201, await call.api.keys.create(body.name, body.scopes, tenant))


add_list(routes, Page[Key], KeysQuery, scope=Scope.ADMIN)


@routes("DELETE", "/v1/keys/{id}", Scope.ADMIN, Key, client="keys.revoke")
async def revoke_key(call: Call) -> Answer:
    """Revoke a key; takes effect within 2 seconds."""
    return Answer(200, await call.api.keys.revoke(call.number, call.key.tenant))
