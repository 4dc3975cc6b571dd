"""Endpoints of the operator's own: verified without a line of code in them, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support import Configure, certificates
from support.api import FLAGS, serving
from support.http import Client
from support.receiver import Receiver
from support.waiting import until
from surehook.store.logins import DatabaseAccess


@asynccontextmanager
async def trusting(
    configure: Configure, access: DatabaseAccess, receiver: Receiver
) -> AsyncIterator[Client]:
    """The API and a verifier; the receiver's origin is the operator's own."""
    config = configure(
        {
            **FLAGS,
            "delivery.ca_file": str(certificates.ca_file()),
            "delivery.allow_networks": "127.0.0.0/8",
            "verification.trusted": [receiver.url],
        }
    )
    async with serving(config, access, "verifier") as client:
        yield client


async def created(client: Client, url: str) -> Any:
    reply = await client.post("/v1/subscriptions", {"event_type": "a.b", "callback_url": url})
    assert reply.status == 201 and not reply.json()["verified"]
    return reply.json()


async def shown(client: Client, made: Any) -> Any:
    return (await client.get(f"/v1/subscriptions/{made['id']}")).json()


async def test_a_subscription_of_a_trusted_origin_is_verified_without_a_post(
    configure: Configure, access: DatabaseAccess
) -> None:
    async with Receiver() as own, Receiver() as foreign, trusting(configure, access, own) as client:
        elsewhere = await created(client, f"{foreign.url}/hook")
        made = await created(client, f"{own.url}/hook")

        async def verified() -> bool:
            found: bool = (await shown(client, made))["verified"]
            return found

        await until(verified)
        found = (await shown(client, made))["verification"]
        assert found["last_result"] == "trusted origin" and found["verified_at"] is not None
        assert own.connections == 1 and own.count == 0
        assert made["verification"]["id"] == found["id"]
        other = await shown(client, elsewhere)
        assert not other["verified"] and other["verification"] is None
        assert foreign.connections == 0


async def test_a_url_leads_away_only_with_a_proof_and_back_without(
    configure: Configure, access: DatabaseAccess
) -> None:
    async with Receiver() as own, Receiver() as foreign, trusting(configure, access, own) as client:
        made = await created(client, f"{own.url}/hook")
        path = f"/v1/subscriptions/{made['id']}"

        async def used(url: str) -> bool:
            now = await shown(client, made)
            return bool(now["verified"]) and now["callback_url"] == url

        await until(lambda: used(f"{own.url}/hook"))
        away = (await client.ask("PATCH", path, {"callback_url": f"{foreign.url}/x"})).json()
        assert away["pending_callback_url"] == f"{foreign.url}/x"
        asked = await client.post(f"{path}/verify?wait=30")
        assert asked.json()["last_result"] == "not proved"
        assert await used(f"{own.url}/hook"), "an origin that nobody trusts moved in"
        await client.ask("PATCH", path, {"callback_url": f"{own.url}/new"})
        await until(lambda: used(f"{own.url}/new"))
        assert own.count == 0
