"""The verification handshake: who proves the secret is verified, and nobody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support import OpenStore, servers
from support.receiver import Answer, ReceivedRequest, Receiver
from support.rows import a_secret, a_subscription
from support.sending import settings as sending
from support.sending import started
from support.waiting import PATIENCE
from surehook import receive
from surehook.actions.verifications import Verifications
from surehook.delivery.client import SenderSettings
from surehook.delivery.compose import Composer
from surehook.delivery.secrets import Sealer, parse_keys
from surehook.delivery.signature import new_shared_secret
from surehook.delivery.trusted import TrustedOrigins
from surehook.errors import FieldRefused, NotFound
from surehook.model.resources.subscription import Verification
from surehook.pipeline.service import Service
from surehook.pipeline.verifier import Verifier
from surehook.store import store_of
from surehook.store.hints import Hints
from surehook.store.verifier import VerifierStore

SECRET = new_shared_secret().reveal()
Answerer = Callable[[ReceivedRequest], Answer]


class Bench:
    """A running verifier, an endpoint, and a subscription to prove."""

    def __init__(self, owner: Any, verifications: Verifications, receiver: Receiver) -> None:
        self.owner = owner
        self.verifications = verifications
        self.receiver = receiver

    async def subscription(self, path: str = "/hook", verified: bool = False) -> int:
        return await a_subscription(
            self.owner, callback_url=self.receiver.url + path, verified=verified, secret=SECRET
        )

    async def tried(self, subscription_id: int) -> Verification:
        made = await self.verifications.request(subscription_id)
        return await self.verifications.tried(made.id, 60)

    async def is_verified(self, subscription_id: int) -> bool:
        value: bool = await self.owner.fetchval(
            "SELECT verified FROM subscriptions WHERE id = $1", subscription_id
        )
        return value


@pytest.fixture
async def bench(open_store: OpenStore, owner: Any) -> AsyncIterator[Bench]:
    async with Receiver() as receiver, verifying(open_store, sending()) as verifications:
        yield Bench(owner, verifications, receiver)


@asynccontextmanager
async def verifying(
    open_store: OpenStore, given: SenderSettings, *trusted: str
) -> AsyncIterator[Verifications]:
    database = await open_store("verifier")
    store = store_of(VerifierStore, database)
    hints = Hints()
    composer = Composer(Sealer(parse_keys(servers.ENCRYPTION_KEY)), "0123456789", 1.0, 1.0)
    async with started(given) as sender:
        verifier = Verifier(store, composer, sender, TrustedOrigins(trusted))
        service = Service(verifier, hints, None)
        running = asyncio.create_task(service.run())
        try:
            yield Verifications(store, hints)
        finally:
            service.stop()
            await running


def proves(secret: str) -> Answerer:
    """An endpoint that uses our own receiving side."""

    def answer(request: ReceivedRequest) -> Answer:
        try:
            message = receive.verify(request.headers, request.body, secret)
        except receive.NotGenuine:
            return Answer(status=401)
        return Answer(body=receive.answer_challenge(message) or b"")

    return answer


async def test_an_endpoint_that_proves_the_secret_is_verified(bench: Bench) -> None:
    bench.receiver.answer_with("/hook", proves(SECRET))
    subscription_id = await bench.subscription()
    verification = await bench.tried(subscription_id)
    assert verification.verified_at is not None and verification.last_result == "proved"
    assert await bench.is_verified(subscription_id)
    request = bench.receiver.requests[0]
    assert request.headers["webhook-id"].startswith("vrf_")
    assert request.headers["webhook-event-type"] == receive.VERIFICATION_TYPE


def _proof(request: ReceivedRequest, secret: str) -> str:
    return receive.challenge_response(json.loads(request.body)["challenge"], secret)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda r: Answer(body=r.body), id="echo of the body"),
        pytest.param(
            lambda r: Answer(headers=tuple(r.headers.items())[:5], body=r.body),
            id="echo of headers and body",
        ),
        pytest.param(
            lambda r: Answer(
                body=json.dumps({"response": r.headers["webhook-signature"]}).encode()
            ),
            id="the signature as the answer",
        ),
        pytest.param(
            lambda r: Answer(
                body=json.dumps({"response": json.loads(r.body)["challenge"]}).encode()
            ),
            id="the challenge as the answer",
        ),
        pytest.param(
            lambda r: Answer(status=302, headers=(("location", "https://127.0.0.1/"),)),
            id="a redirect",
        ),
        pytest.param(
            lambda r: Answer(
                body=json.dumps({"response": _proof(r, new_shared_secret().reveal())}).encode()
            ),
            id="another secret",
        ),
        pytest.param(
            lambda r: Answer(status=500, body=json.dumps({"response": _proof(r, SECRET)}).encode()),
            id="right, but with status 500",
        ),
        pytest.param(
            lambda r: Answer(delay=1.5, body=json.dumps({"response": _proof(r, SECRET)}).encode()),
            id="right, but too late",
        ),
        pytest.param(lambda r: Answer(body=b""), id="nothing"),
        pytest.param(lambda r: Answer(body=b"[" * 400), id="garbage"),
    ],
)
async def test_whoever_does_not_prove_the_secret_stays_unverified(
    bench: Bench, answer: Answerer
) -> None:
    bench.receiver.answer_with("/hook", answer)
    subscription_id = await bench.subscription()
    verification = await bench.tried(subscription_id)
    assert verification.verified_at is None
    assert verification.last_result not in (None, "sending")
    assert not await bench.is_verified(subscription_id)


@pytest.mark.parametrize("secret", ["not a secret of ours", "whsec_"])
async def test_a_challenge_that_cannot_be_signed_is_not_sent(bench: Bench, secret: str) -> None:
    subscription_id = await a_subscription(
        bench.owner, callback_url=bench.receiver.url + "/hook", verified=False, secret=secret
    )
    tried = await bench.tried(subscription_id)
    assert (tried.last_result, tried.last_reason) == ("failed", "The secret cannot be opened.")
    assert not bench.receiver.requests and not await bench.is_verified(subscription_id)


@pytest.mark.parametrize("change", ["url", "secret"])
async def test_a_proof_is_worthless_once_url_or_secret_have_changed(
    bench: Bench, change: str
) -> None:
    seen, changed = asyncio.Event(), asyncio.Event()

    def slow(request: ReceivedRequest) -> Answer:
        seen.set()
        body = json.dumps({"response": _proof(request, SECRET)}).encode()
        return Answer(after=changed, body=body)

    bench.receiver.answer_with("/hook", slow)
    subscription_id = await bench.subscription()
    made = await bench.verifications.request(subscription_id)
    await asyncio.wait_for(seen.wait(), PATIENCE)
    if change == "url":
        await bench.owner.execute("UPDATE subscriptions SET callback_url = callback_url || '/x'")
    else:
        await a_secret(bench.owner, subscription_id, new_shared_secret().reveal())
    changed.set()
    verification = await bench.verifications.tried(made.id, 60)
    assert verification.last_result == "changed"
    assert not await bench.is_verified(subscription_id)


async def test_a_staged_url_moves_in_when_proved_and_nothing_stops_meanwhile(
    bench: Bench,
) -> None:
    bench.receiver.answer_with("/new", proves(SECRET))
    subscription_id = await bench.subscription("/old", verified=True)
    before = await bench.owner.fetchrow("SELECT * FROM subscriptions")
    staged = f"{bench.receiver.url}/new"
    await bench.owner.execute("UPDATE subscriptions SET pending_callback_url = $1", staged)
    verification = await bench.tried(subscription_id)
    assert verification.callback_url == staged and verification.verified_at is not None
    after = await bench.owner.fetchrow("SELECT * FROM subscriptions")
    assert (after["callback_url"], after["pending_callback_url"]) == (staged, None)
    assert after["verified"] and after["eligible_from"] == before["eligible_from"]


async def test_the_owner_may_bring_back_the_code(bench: Bench) -> None:
    subscription_id = await bench.subscription()
    verification = await bench.tried(subscription_id)
    assert verification.last_result == "not proved"
    code = json.loads(bench.receiver.requests[0].body)["code"]
    with pytest.raises(FieldRefused, match="wrong"):
        await bench.verifications.confirm(subscription_id, "AAAA-AAAA-AAAA")
    await bench.verifications.confirm(subscription_id, f" {code.lower()} ")
    assert await bench.is_verified(subscription_id)
    with pytest.raises(FieldRefused, match="No verification waits"):
        await bench.verifications.confirm(subscription_id, code)


async def test_codes_cannot_be_guessed_for_ever(bench: Bench) -> None:
    subscription_id = await bench.subscription()
    await bench.tried(subscription_id)
    code = json.loads(bench.receiver.requests[0].body)["code"]
    for _ in range(10):
        with pytest.raises(FieldRefused, match="wrong"):
            await bench.verifications.confirm(subscription_id, "AAAA-AAAA-AAAA")
    with pytest.raises(FieldRefused, match="Too many"):
        await bench.verifications.confirm(subscription_id, code)
    assert not await bench.is_verified(subscription_id)


async def test_a_code_is_worthless_after_15_minutes(bench: Bench, clock: Any) -> None:
    subscription_id = await bench.subscription()
    await bench.tried(subscription_id)
    code = json.loads(bench.receiver.requests[0].body)["code"]
    await clock.shift(15 * 60 + 1)
    with pytest.raises(FieldRefused, match="No verification waits"):
        await bench.verifications.confirm(subscription_id, code)
    assert not await bench.is_verified(subscription_id)


async def test_what_an_endpoint_answered_is_stored_nowhere(bench: Bench) -> None:
    bench.receiver.answer_with("/hook", lambda _: Answer(body=b"internal-page-content"))
    await bench.tried(await bench.subscription())
    rows = await bench.owner.fetch("SELECT * FROM subscription_verifications")
    assert rows and "internal-page-content" not in str([tuple(row) for row in rows])


async def test_two_verifiers_send_one_challenge(bench: Bench, open_store: OpenStore) -> None:
    bench.receiver.answer_with("/hook", proves(SECRET))
    async with verifying(open_store, sending()):
        for _ in range(5):
            subscription_id = await bench.subscription()
            assert (await bench.tried(subscription_id)).attempts == 1
    assert bench.receiver.count == 5


async def test_a_guarded_address_is_never_dialled(open_store: OpenStore, owner: Any) -> None:
    guarded = sending(allow_networks=("10.0.0.0/8",))
    async with Receiver() as receiver, verifying(open_store, guarded) as verifications:
        bench = Bench(owner, verifications, receiver)
        subscription_id = await bench.subscription()
        verification = await bench.tried(subscription_id)
        assert verification.last_result == "BLOCKED_ADDRESS"
        assert receiver.connections == 0
        assert not await bench.is_verified(subscription_id)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (sending(allow_networks=("10.0.0.0/8",)), "BLOCKED_ADDRESS"),
        (sending(ca_file=None), "TLS_FAILED"),
    ],
    ids=["guarded", "an authority that nobody trusts"],
)
async def test_trust_in_an_origin_leads_around_neither_guard_nor_tls(
    open_store: OpenStore, owner: Any, given: SenderSettings, code: str
) -> None:
    async with Receiver() as receiver, verifying(open_store, given, receiver.url) as verifications:
        bench = Bench(owner, verifications, receiver)
        subscription_id = await bench.subscription()
        assert (await bench.tried(subscription_id)).last_result == code
        assert receiver.count == 0 and not await bench.is_verified(subscription_id)


async def test_trust_is_worthless_once_the_url_has_changed(
    open_store: OpenStore, owner: Any
) -> None:
    async with Receiver() as own, verifying(open_store, sending(), own.url) as verifications:
        bench = Bench(owner, verifications, own)
        subscription_id = await bench.subscription()
        assert (await bench.tried(subscription_id)).last_result == "trusted origin"
        assert await bench.is_verified(subscription_id)
        await owner.execute("UPDATE subscriptions SET callback_url = 'https://another.example/x'")
        assert not await bench.is_verified(subscription_id)


async def test_an_unknown_or_foreign_subscription_cannot_be_verified(bench: Bench) -> None:
    subscription_id = await bench.subscription()
    with pytest.raises(NotFound):
        await bench.verifications.request(subscription_id + 1)
    with pytest.raises(NotFound):
        await bench.verifications.request(subscription_id, "another tenant")
