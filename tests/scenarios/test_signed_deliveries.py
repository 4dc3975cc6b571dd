"""What arrives at an endpoint, over real TLS: signed, timed by the database, never inside."""

from __future__ import annotations

import base64
import email.utils
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from support import Configure, OpenStore, certificates, servers
from support.clock import Clock
from support.pipeline import running
from support.receiver import Answer, Receiver
from support.rows import a_secret, a_subscription, an_event
from support.waiting import until, until_row
from surehook import receive
from surehook.actions.requeue import Requeue
from surehook.delivery.secrets import Sealer, parse_keys
from surehook.delivery.signature import new_shared_secret, new_signing_key
from surehook.model.records import HEADERS_CONTEXT
from surehook.store import store_of
from surehook.store.deadletters import DeadLetterStore
from surehook.store.hints import Hints
from surehook.store.logins import DatabaseAccess

INSTALLATION = "SELECT value FROM schema_settings WHERE name = 'installation'"
SECRET = new_shared_secret().reveal()
SEALER = Sealer(parse_keys(servers.ENCRYPTION_KEY))
# Spacing, order, repeated keys and escapes must survive untouched.
PAYLOAD = '{ "b":1,"a" : [1.50, "\\u00e9\\ud83d\\ude00"],\t"a":null }'


@asynccontextmanager
async def delivering(
    configure: Configure, access: DatabaseAccess, *, guarded: bool = False, **flags: object
) -> AsyncIterator[Receiver]:
    """The pipeline at work and an endpoint on loopback, which the guard lets through or not."""
    given = {
        "delivery.ca_file": str(certificates.ca_file()),
        "retry.base_delay": "0.05s",
        "retry.max_delay": "1s",
        **flags,
    }
    if not guarded:
        given["delivery.allow_networks"] = "127.0.0.0/8"
    async with Receiver() as receiver, running(configure(given), access, https=True):
        yield receiver


async def test_a_delivery_is_signed_as_standard_webhooks_says_and_its_body_is_untouched(
    configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    async with delivering(configure, access) as receiver:
        receiver.script("/hook", Answer(status=500), Answer(status=503), Answer())
        subscription_id = await a_subscription(
            owner, callback_url=f"{receiver.url}/hook", secret=SECRET
        )
        event_id = await an_event(owner, payload=PAYLOAD)
        await receiver.received(3)
    installation = await owner.fetchval(INSTALLATION)
    assert len(installation) == 10
    for request in receiver.requests:
        assert request.body == PAYLOAD.encode()
        assert request.headers["content-type"] == "application/json"
        assert request.headers["webhook-id"] == (f"msg_{installation}_{event_id}_{subscription_id}")
        assert request.headers["webhook-event-type"] == "order.paid"
        Webhook(SECRET).verify(request.body, request.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(request.body.replace(b"1.50", b"1.51"), request.headers)


async def test_a_copy_with_an_id_of_its_own_has_no_webhook_id_in_common_with_its_original(
    configure: Configure, access: DatabaseAccess, owner: Any, open_store: OpenStore
) -> None:
    """Of the same event and subscription. One installation's is the same after a requeue."""
    seen = []
    store = store_of(DeadLetterStore, await open_store("deadletters"))
    event_id = letter_id = subscription_id = 0
    async with Receiver() as receiver:
        receiver.script("/hook", *[Answer(status=410)] * 3)
        subscription_id = await a_subscription(
            owner, callback_url=f"{receiver.url}/hook", secret=SECRET
        )
        event_id = await an_event(owner)
        flags = {"delivery.ca_file": str(certificates.ca_file())}
        config = configure({**flags, "delivery.allow_networks": "127.0.0.0/8"})
        for number, installation in enumerate(("aaaaaaaaaa", "aaaaaaaaaa", "bbbbbbbbbb"), 1):
            await owner.execute(
                "UPDATE schema_settings SET value = $1 WHERE name = 'installation'", installation
            )
            async with running(config, access, https=True):
                if letter_id:
                    await Requeue(store, Hints(), [0]).by_id([letter_id])
                await until_row(owner, "SELECT count(*) FROM dead_letters", wanted=number)
            letter_id = await owner.fetchval("SELECT max(id) FROM dead_letters")
            seen.append(receiver.requests[-1].headers["webhook-id"])
    pair = f"{event_id}_{subscription_id}"
    assert seen == [*[f"msg_aaaaaaaaaa_{pair}"] * 2, f"msg_bbbbbbbbbb_{pair}"]


async def test_during_a_rotation_both_secrets_verify_and_afterwards_only_the_new_one(
    configure: Configure, access: DatabaseAccess, owner: Any, clock: Any
) -> None:
    new = new_shared_secret().reveal()
    async with delivering(configure, access) as receiver:
        subscription_id = await a_subscription(owner, callback_url=receiver.url, secret=SECRET)
        await a_secret(owner, subscription_id, new)
        await owner.execute(
            "UPDATE subscription_secrets SET expires_at = surehook_now() + interval '1 hour' "
            "WHERE id = $1",
            await owner.fetchval("SELECT min(id) FROM subscription_secrets"),
        )
        await an_event(owner)
        await receiver.received(1)
        during = receiver.requests[0]
        for secret in (SECRET, new):
            receive.verify(during.headers, during.body, secret)
    await clock.shift(3601)
    async with delivering(configure, access) as receiver:
        await owner.execute("UPDATE subscriptions SET callback_url = $1", receiver.url)
        await owner.execute("UPDATE subscriptions SET verified = true")
        await an_event(owner)
        await receiver.received(1)
        after = receiver.requests[0]
    now = time.time() + 3601
    receive.verify(after.headers, after.body, new, now=now)
    with pytest.raises(receive.NotGenuine):
        receive.verify(after.headers, after.body, SECRET, now=now)


async def test_the_timestamp_is_the_databases_whatever_the_workers_clock_says(
    configure: Configure, access: DatabaseAccess, owner: Any, clock: Any
) -> None:
    await clock.shift(3600)
    async with delivering(configure, access) as receiver:
        await a_subscription(owner, callback_url=receiver.url, secret=SECRET)
        await an_event(owner)
        await receiver.received(1)
    stamp = int(receiver.requests[0].headers["webhook-timestamp"])
    assert stamp == pytest.approx(time.time() + 3600, abs=60)


async def test_an_ed25519_signature_is_added_where_asked_for(
    configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    key = new_signing_key()
    async with delivering(configure, access) as receiver:
        subscription_id = await a_subscription(owner, callback_url=receiver.url, secret=SECRET)
        await a_secret(owner, subscription_id, key.reveal())
        await an_event(owner)
        await receiver.received(1)
    request = receiver.requests[0]
    receive.verify(request.headers, request.body, SECRET)
    receive.verify(request.headers, request.body, key.public_key())
    schemes = sorted(one.partition(",")[0] for one in request.headers["webhook-signature"].split())
    assert schemes == ["v1", "v1a"]
    assert len(base64.b64decode(key.public_key().removeprefix("whpk_"))) == 32


async def test_custom_headers_are_sent_and_cannot_replace_ours(
    configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    headers = [["authorization", "Bearer abc"], ["webhook-id", "forged"]]
    sealed = SEALER.seal(msgspec.json.encode(headers).decode(), HEADERS_CONTEXT)
    async with delivering(configure, access) as receiver:
        await a_subscription(owner, callback_url=receiver.url, secret=SECRET, custom_headers=sealed)
        await an_event(owner)
        await receiver.received(1)
    request = receiver.requests[0]
    assert request.headers["authorization"] == "Bearer abc"
    assert request.headers["webhook-id"].startswith("msg_")


async def test_an_inner_address_written_straight_into_the_database_is_never_dialled(
    configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    async with delivering(configure, access, guarded=True) as receiver:
        for url in (receiver.url, f"https://localhost:{receiver.port}/", "https://[::1]/"):
            await a_subscription(owner, callback_url=url, secret=SECRET)
        await an_event(owner)
        await until(lambda: _dead(owner, 3))
    assert receiver.connections == 0
    rows = await owner.fetch("SELECT DISTINCT final_error_code FROM dead_letters")
    assert [row[0] for row in rows] == ["BLOCKED_ADDRESS"]


async def _dead(owner: Any, count: int) -> bool:
    found: int = await owner.fetchval("SELECT count(*) FROM dead_letters")
    return found == count


async def test_what_an_endpoint_asks_for_and_answers_is_kept_for_people(
    configure: Configure, access: DatabaseAccess, owner: Any
) -> None:
    async with delivering(configure, access) as receiver:
        receiver.script(
            "/hook",
            Answer(status=429, headers=(("retry-after", "1"),), body=b"slow\x1b[31m down\x00"),
            Answer(body=json.dumps({"ok": True}).encode()),
        )
        await a_subscription(owner, callback_url=f"{receiver.url}/hook", secret=SECRET)
        await an_event(owner)
        await receiver.received(2)
        first, second = receiver.requests
        assert second.at - first.at >= 1.0
        await until(
            lambda: owner.fetchval(
                "SELECT count(*) = 2 FROM webhook_delivery_jobs WHERE finished_at IS NOT NULL"
            )
        )
    rows = await owner.fetch(
        "SELECT error_code, response_status, retry_after, response_excerpt, failure_detail "
        "FROM webhook_delivery_jobs ORDER BY id"
    )
    assert tuple(rows[0]) == ("HTTP_4XX", 429, 1, "slow·[31m down·", None)
    assert tuple(rows[1]) == (None, 200, None, '{"ok": true}', None)


async def test_a_date_to_try_again_is_measured_by_the_database(
    configure: Configure, access: DatabaseAccess, owner: Any, clock: Clock
) -> None:
    """The endpoint says no time of its own, and the worker's clock is a week behind."""
    await clock.shift(7 * 86_400)
    asked = email.utils.format_datetime(await clock.now() + timedelta(hours=1), usegmt=True)
    async with delivering(configure, access) as receiver:
        receiver.script("/hook", Answer(status=503, headers=(("retry-after", asked),)))
        await a_subscription(owner, callback_url=f"{receiver.url}/hook", secret=SECRET)
        await an_event(owner)
        await until(
            lambda: owner.fetchval(
                "SELECT count(*) = 1 FROM webhook_delivery_jobs WHERE finished_at IS NOT NULL"
            )
        )
    assert 3300 <= await owner.fetchval("SELECT retry_after FROM webhook_delivery_jobs") <= 3600
