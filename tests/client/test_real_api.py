"""Both clients against the real API, the real pipeline and a real endpoint: every call, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import Configure
from support.api import ADMIN_KEY, FLAGS
from support.either import Either
from support.pipeline import running
from support.rows import an_event, many_deliveries
from support.servers import ENCRYPTION_KEY
from support.waiting import PATIENCE
from surehook import observe
from surehook.client import (
    AsyncClient,
    Client,
    Conflict,
    InvalidRequest,
    NewEvent,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    Stale,
)
from surehook.store.logins import DatabaseAccess
from surehook.testing import Receiver

EVERYTHING = ("api", "verifier", "router", "orchestrator", "worker", "deadletters")


@pytest.fixture
async def url(
    configure: Configure, access: DatabaseAccess, surehook_receiver: Receiver
) -> AsyncIterator[str]:
    """The whole system at work, delivering to the receiver."""
    flags = {
        **FLAGS,
        "delivery.allow_networks": ["127.0.0.0/8"],
        "delivery.ca_file": str(surehook_receiver.ca_file),
    }
    sealed = DatabaseAccess(access.url, access.role_secret, ENCRYPTION_KEY)
    try:
        async with running(configure(flags), sealed, EVERYTHING, https=True) as process:
            assert process.api is not None
            yield f"http://{process.api.address}"
    finally:
        observe.silence()


@pytest.fixture(params=[Client, AsyncClient])
async def client(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Either]:
    either = Either(request.param(url, ADMIN_KEY, timeout=PATIENCE))
    yield either
    await either.close()


async def subscribed(client: Either, receiver: Receiver, **named: Any) -> Any:
    """A verified subscription whose secret the receiver knows."""
    subscription = await client(
        "subscriptions.create", "order.paid", f"{receiver.url}/orders", **named
    )
    receiver.accept(subscription.secret)
    await client("subscriptions.verify", subscription.id, wait=30)
    verified = await client("subscriptions.get", subscription.id)
    assert verified.verified, verified.verification
    return subscription


async def arrived(receiver: Receiver, count: int) -> Any:
    return (await asyncio.to_thread(receiver.wait_for, count, PATIENCE))[-1]


async def test_from_a_subscription_to_a_delivered_event(
    client: Either, surehook_receiver: Receiver
) -> None:
    subscription = await subscribed(client, surehook_receiver, description="orders")
    assert subscription.secret not in repr(subscription)
    published = await client("publish", "order.paid", b'{"order":  17}', external_id="o-17")
    delivery = await arrived(surehook_receiver, 1)
    assert (delivery.body, delivery.path) == (b'{"order":  17}', "/orders")
    assert delivery.webhook_id.startswith("msg_")
    assert delivery.webhook_id.endswith(f"_{published.id}_{subscription.id}")

    [found] = await client("deliveries.list", event_id=published.id)
    done = await client("deliveries.wait_until_done", found.id, PATIENCE)
    assert (done.status, done.attempt_count) == ("Completed", 1)
    assert [attempt.response_status for attempt in done.attempts] == [200]

    event = await client("events.get", published.id)
    assert bytes(event.payload) == b'{"order":  17}'
    assert event.json() == {"order": 17}
    assert [one.id for one in event.deliveries] == [found.id]
    since = datetime.now(UTC) - timedelta(hours=1)
    [listed] = await client("events.list", external_id="o-17", created_from=since)
    assert (listed.id, listed.external_id) == (published.id, "o-17")
    assert (await client("publish", "order.paid", b'{"order":  17}', external_id="o-17")).duplicate
    with pytest.raises(Conflict):
        await client("publish", "order.paid", {"order": 18}, external_id="o-17")


async def test_what_becomes_of_a_subscription(client: Either, surehook_receiver: Receiver) -> None:
    subscription = await subscribed(client, surehook_receiver, max_attempts=3)
    assert subscription.max_attempts == 3
    changed = await client(
        "subscriptions.update", subscription.id, max_attempts=None, description="x"
    )
    assert (changed.max_attempts, changed.description) == (None, "x")
    with pytest.raises(Stale):
        await client("subscriptions.update", subscription.id, active=False, if_version=1)
    assert (
        await client(
            "subscriptions.update", subscription.id, description="y", if_version=changed.version
        )
    ).active
    result = await client("subscriptions.test", subscription.id, payload={"hello": 1})
    assert (result.delivered, result.response_status) == (True, 200)
    assert (await arrived(surehook_receiver, 1)).json() == {"hello": 1}

    rotated = await client("subscriptions.rotate_secret", subscription.id, overlap_seconds=60)
    assert rotated.secret != subscription.secret
    assert rotated.old_secrets_expire_at is not None
    surehook_receiver.accept(rotated.secret)
    assert (await client("subscriptions.test", subscription.id)).delivered
    listed = await client("subscriptions.list", event_type="order.paid", verified=True)
    assert [one.id for one in listed] == [subscription.id]
    assert listed[0].secret is None


async def test_the_same_creation_again_gives_the_same_subscription(
    client: Either, surehook_receiver: Receiver
) -> None:
    arguments = ("subscriptions.create", "order.paid", surehook_receiver.url)
    secret = surehook_receiver.secret
    first = await client(*arguments, idempotency_key="k", secret=secret)
    again = await client(*arguments, idempotency_key="k", secret=secret)
    assert first.id == again.id


async def test_a_code_from_the_challenge_verifies_too(
    client: Either, surehook_receiver: Receiver
) -> None:
    subscription = await client("subscriptions.create", "order.paid", surehook_receiver.url)
    # The receiver does not know the secret: the challenge is refused, but a person sees the code.
    verification = await client("subscriptions.verify", subscription.id, wait=30)
    assert verification.verified_at is None
    code = surehook_receiver.refused[0].json()["code"]
    with pytest.raises(InvalidRequest):
        await client("subscriptions.confirm", subscription.id, "2222-2222-2222")
    assert (await client("subscriptions.confirm", subscription.id, code)).verified


async def test_dead_letters_are_found_and_requeued(
    client: Either, surehook_receiver: Receiver
) -> None:
    subscription = await subscribed(client, surehook_receiver)
    surehook_receiver.answer(410)
    for number in range(3):
        published = await client("publish", "order.paid", {"order": number})
    # The event is durable at once; its delivery exists as soon as the router has seen it.
    await arrived(surehook_receiver, 3)
    [delivery] = await client("deliveries.list", event_id=published.id)
    done = await client("deliveries.wait_until_done", delivery.id, PATIENCE)
    assert done.status == "DeadLettered"
    letters: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        while len(letters) < 3:
            letters = await client("dead_letters.list", subscription_id=subscription.id, limit=2)
    assert {letter.final_error_code for letter in letters} == {"GONE"}
    letter = await client("dead_letters.get", letters[0].id)
    assert bytes(letters[0].payload) == b""
    assert bytes(letter.payload).startswith(b'{"order":')

    surehook_receiver.recover()
    surehook_receiver.clear()
    requeued = await client("dead_letters.requeue", letter.id)
    assert requeued.created
    again = await client("dead_letters.requeue", letter.id)
    assert (again.created, again.delivery_id) == (False, requeued.delivery_id)
    dry = await client("dead_letters.requeue_many", error_code="GONE", dry_run=True)
    assert dry.count == 2
    many = await client("dead_letters.requeue_many", error_code="GONE")
    assert (many.count, len(many.deliveries)) == (2, 2)
    await arrived(surehook_receiver, 3)


async def test_lists_go_on_over_all_pages(client: Either) -> None:
    events = [{"event_type": "page", "payload": number} for number in range(25)]
    stored = await client("publish_batch", events)
    assert all(item.stored for item in stored)
    listed = await client("events.list", event_type="page", limit=10)
    assert {event.id for event in listed} == {item.id for item in stored}
    assert len(listed) == 25


async def test_a_page_is_one_request_and_names_the_next_page(client: Either) -> None:
    stored = await client("publish_batch", [NewEvent("page", number) for number in range(5)])
    first = await client("events.page", event_type="page", limit=3)
    second = await client("events.page", event_type="page", limit=3, cursor=first.next)
    assert (len(first.items), len(second.items), second.next) == (3, 2, None)
    found = {event.id for event in [*first.items, *second.items]}
    assert found == {item.id for item in stored}


async def test_a_taken_key_fails_only_its_own_item_of_a_batch(client: Either) -> None:
    await client("publish", "a", 1, tenant="acme", external_id="taken")
    good = NewEvent("a", 2, tenant="acme")
    taken = NewEvent("a", 3, tenant="acme", external_id="taken")
    same = NewEvent("a", 1, tenant="acme", external_id="taken")
    stored, refused, repeated = await client("publish_batch", [good, taken, same])
    assert (stored.status, stored.stored, stored.duplicate) == (202, True, False)
    assert (refused.status, refused.stored, refused.error.status) == (409, False, 409)
    assert (repeated.status, repeated.stored, repeated.duplicate) == (200, True, True)


async def test_a_key_pair_is_made_by_the_server_and_its_public_key_verifies(
    client: Either, surehook_receiver: Receiver
) -> None:
    subscription = await client(
        "subscriptions.create", "order.paid", surehook_receiver.url, signature="v1a"
    )
    assert subscription.public_key.startswith("whpk_")
    surehook_receiver.accept(subscription.public_key)
    assert (await client("subscriptions.test", subscription.id)).delivered
    assert (await arrived(surehook_receiver, 1)).message.secret == subscription.public_key


async def test_a_tenants_key_publishes_for_its_tenant(client: Either, url: str) -> None:
    key = await client("keys.create", "acme", ["ingest", "read"], tenant="acme")
    other = Either(type(client.client)(url, key.key, timeout=PATIENCE))
    published = await other("publish", "order.paid", 1)
    assert (await other("events.get", published.id)).tenant == "acme"
    elsewhere = await client("publish", "order.paid", 1, tenant="other")
    with pytest.raises(NotFound):
        await other("events.get", elsewhere.id)
    await other.close()


async def test_keys_open_what_their_scopes_say_until_they_are_revoked(
    client: Either, url: str
) -> None:
    key = await client("keys.create", "ci", ["ingest"])
    assert key.key and key.key not in repr(key)
    other = Either(type(client.client)(url, key.key, timeout=PATIENCE))
    await other("publish", "order.paid", 1)
    with pytest.raises(NotPermitted):
        await other("events.list")
    assert "ci" in [one.name for one in await client("keys.list")]
    revoked = await client("keys.revoke", key.id)
    assert revoked.revoked_at is not None
    with pytest.raises(NotAuthenticated):
        async with asyncio.timeout(PATIENCE):
            while True:  # it takes effect within two seconds
                await other("publish", "order.paid", 1)
    await other.close()


async def test_errors_name_the_field_and_the_request(client: Either) -> None:
    with pytest.raises(NotFound) as missing:
        await client("events.get", 10**12)
    assert missing.value.status == 404
    assert missing.value.request_id
    with pytest.raises(InvalidRequest) as wrong:
        await client("subscriptions.create", "order.paid", "http://plain.example")
    assert wrong.value.field == "callback_url"
    with pytest.raises(InvalidRequest) as large:
        await client("publish", "order.paid", "x" * 1024 * 1024)
    assert large.value.status == 413


async def test_an_event_has_all_of_its_deliveries(client: Either, owner: Any) -> None:
    event = await an_event(owner, event_type="nobody.gets.it")
    wanted = await many_deliveries(owner, event, 205)
    found = await client("events.get", event)
    assert ([one.id for one in found.deliveries], found.next) == (wanted, None)
