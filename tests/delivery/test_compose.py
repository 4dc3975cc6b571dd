"""Signed requests: a delivery, a test and a challenge are made by the same rules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from surehook import receive
from surehook.delivery import Request
from surehook.delivery.compose import Composer, Unsigned
from surehook.delivery.secrets import Sealer
from surehook.delivery.signature import new_shared_secret, parse_secret
from surehook.model.error_codes import ErrorCode
from surehook.model.records import (
    HEADERS_CONTEXT,
    SIGNING_CONTEXT,
    Challenge,
    EventId,
    JobId,
    LeasedJob,
    SagaId,
    SubscriptionId,
    TrialTarget,
)

SEALER = Sealer([bytes(32)])
SECRET = new_shared_secret().reveal()
URL = "https://example.com/hook"
NOW = datetime(2026, 11, 15, 20, 55, 1, 123456, UTC)
COMPOSER = Composer(SEALER, "0123456789", 10.0, 20.0)
ASKED_AND_GIVEN = [(None, 10.0), (3.0, 3.0), (60.0, 20.0)]


def a_job(**given: Any) -> LeasedJob:
    fields = {"request_timeout_seconds": None, "custom_headers": None, **given}
    return LeasedJob(
        job_id=JobId(1),
        saga_id=SagaId(2),
        event_id=EventId(3),
        subscription_id=SubscriptionId(4),
        lease_resets=0,
        leased_at=NOW,
        lease_until=NOW + timedelta(seconds=30),
        event_type="order.paid",
        payload='{ "a": 1,"a":2 }',
        callback_url=URL,
        deliverable=True,
        event_age_seconds=0.0,
        **fields,
    )


def a_delivery(**given: Any) -> Request:
    return COMPOSER.delivery(a_job(**given), [parse_secret(SECRET)])


def a_test(**given: Any) -> Request:
    fields = {
        "request_timeout_seconds": None,
        "custom_headers": None,
        "secrets": (SEALER.seal(SECRET, SIGNING_CONTEXT),),
        **given,
    }
    target = TrialTarget(callback_url=URL, event_type="order.paid", now=NOW, **fields)
    return COMPOSER.test(4, target, "{}")


def a_challenge() -> Request:
    challenge = Challenge(1, SubscriptionId(4), URL, 9, "c" * 43, "7QXM-2KPA-9DTR")
    return COMPOSER.challenge(challenge, SECRET, NOW)


@pytest.mark.parametrize(
    ("make", "identity", "event_type"),
    [
        (a_delivery, "msg_0123456789_3_4", "order.paid"),
        (a_test, "test_", "order.paid"),
        (a_challenge, "vrf_4_", receive.VERIFICATION_TYPE),
    ],
)
def test_every_request_is_signed_at_the_time_of_the_database(
    make: Callable[[], Request], identity: str, event_type: str
) -> None:
    request = make()
    message = receive.verify(request.headers, request.body, SECRET, now=NOW.timestamp())
    assert message.id.startswith(identity)
    headers = dict(request.headers)
    assert headers["webhook-event-type"] == event_type
    assert headers["webhook-timestamp"] == str(int(NOW.timestamp()))
    assert (request.url, request.made_at) == (URL, NOW.timestamp())


def test_the_body_of_a_delivery_is_the_payload_byte_for_byte() -> None:
    assert a_delivery().body == b'{ "a": 1,"a":2 }'


def test_no_test_has_the_id_of_another() -> None:
    ids = {dict(a_test().headers)["webhook-id"] for _ in range(20)}
    assert len(ids) == 20


@pytest.mark.parametrize("make", [a_delivery, a_test])
@pytest.mark.parametrize(("asked", "given"), ASKED_AND_GIVEN)
def test_the_timeout_of_a_subscription_is_kept_up_to_the_ceiling(
    make: Callable[..., Request], asked: float | None, given: float
) -> None:
    assert make(request_timeout_seconds=asked).deadline_seconds == given


@pytest.mark.parametrize("make", [a_delivery, a_test])
def test_custom_headers_are_opened_and_sent(make: Callable[..., Request]) -> None:
    sealed = SEALER.seal('[["x-team","a"]]', HEADERS_CONTEXT)
    assert make(custom_headers=sealed).headers[-1] == ("x-team", "a")


def test_nothing_is_made_that_no_secret_signs() -> None:
    with pytest.raises(Unsigned, match="The subscription has no secret"):
        COMPOSER.delivery(a_job(), [])
    with pytest.raises(Unsigned, match="The subscription has no secret"):
        a_test(secrets=())


UNUSABLE = {
    "another key": Sealer([b"a" * 32]).seal("[]", HEADERS_CONTEXT),
    "not sealed": "[]",
    "sealed for another place": SEALER.seal("[]", SIGNING_CONTEXT),
    "not a list of headers": SEALER.seal("{}", HEADERS_CONTEXT),
}


@pytest.mark.parametrize("sealed", UNUSABLE.values(), ids=UNUSABLE)
def test_what_cannot_be_opened_is_an_attempt_that_was_not_sent(sealed: str) -> None:
    with pytest.raises(Unsigned) as failure:
        a_delivery(custom_headers=sealed)
    outcome = failure.value.outcome()
    assert (outcome.error_code, outcome.sent) == (ErrorCode.SECRET_UNAVAILABLE, False)
    assert outcome.failure_detail == str(failure.value)


@pytest.mark.parametrize("text", ["not a secret of ours", "whsec_!", "whsk_AAAA"])
def test_a_secret_of_an_unknown_form_does_not_sign(text: str) -> None:
    with pytest.raises(Unsigned):
        COMPOSER.signer(SEALER.seal(text, SIGNING_CONTEXT))


def test_headers_survive_sealing() -> None:
    headers = (("x-a", "1"), ("x-b", "é"))
    sealed = SEALER.seal(msgspec.json.encode(headers).decode(), HEADERS_CONTEXT)
    assert COMPOSER.custom_headers(sealed) == headers
