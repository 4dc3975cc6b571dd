"""The receiving side: verify, the challenge, and the two small web applications."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from collections.abc import MutableMapping
from math import inf, nan
from typing import Any

import pytest

from surehook.delivery.challenge import (
    answer_proves,
    challenge_body,
    new_challenge,
    new_code,
    verification_id,
)
from surehook.delivery.signature import Signer, new_shared_secret, new_signing_key, signed_headers
from surehook.receive import (
    Message,
    NotGenuine,
    answer_challenge,
    asgi_receiver,
    challenge_response,
    verify,
    wsgi_receiver,
)

SECRET = new_shared_secret()
TEXT = SECRET.reveal()


def delivery(
    body: bytes = b"{}", *signers: Signer, webhook_id: str = "msg_1_2", age: float = 0
) -> list[tuple[str, str]]:
    stamp = int(time.time() - age)
    return [*signed_headers(signers or [SECRET], webhook_id, stamp, body, "a.b")]


def test_headers_may_be_a_mapping_or_pairs_of_text_or_bytes() -> None:
    pairs = delivery()
    forms: list[Any] = [pairs, dict(pairs), {name.upper(): value for name, value in pairs}]
    forms.append([(name.encode(), value.encode()) for name, value in pairs])
    for headers in forms:
        message = verify(headers, b"{}", TEXT)
        assert (message.id, message.event_type, message.json()) == ("msg_1_2", "a.b", {})


@pytest.mark.parametrize("age", [301, -301, 86_400])
def test_a_timestamp_beyond_the_tolerance_is_refused(age: float) -> None:
    with pytest.raises(NotGenuine, match="off"):
        verify(delivery(age=age), b"{}", TEXT)
    assert verify(delivery(age=age), b"{}", TEXT, tolerance=90_000)
    assert verify(delivery(age=age), b"{}", TEXT, tolerance=inf)  # whoever says so


def test_a_tolerance_that_is_no_number_lets_nothing_pass() -> None:
    with pytest.raises(NotGenuine, match="off"):
        verify(delivery(age=86_400), b"{}", TEXT, tolerance=nan)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_or_repeated_header_is_refused(name: str) -> None:
    headers = delivery()
    with pytest.raises(NotGenuine, match=name):
        verify([each for each in headers if each[0] != name], b"{}", TEXT)
    with pytest.raises(NotGenuine, match=name):
        verify([*headers, (name, dict(headers)[name])], b"{}", TEXT)


@pytest.mark.parametrize("stamp", ["", "now", "1e9", "-1", "1.5", "٣", "9" * 40, "nan"])
def test_a_strange_timestamp_is_refused(stamp: str) -> None:
    with pytest.raises(NotGenuine):
        verify({**dict(delivery()), "webhook-timestamp": stamp}, b"{}", TEXT)


@pytest.mark.parametrize("value", ["", "v1", "v1,", ",", "v2,abc", "v1a,!!", "v1,ü", " " * 50])
def test_a_strange_signature_is_refused(value: str) -> None:
    for secret in (TEXT, new_signing_key().public_key()):
        with pytest.raises(NotGenuine):
            verify({**dict(delivery()), "webhook-signature": value}, b"{}", secret)


def test_hmac_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; from surehook.receive import verify; "
        "sys.exit(any(name.split('.')[0] in ('cryptography', 'msgspec', 'httptools') "
        "for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_challenge_is_answered_and_the_answer_proves_the_secret() -> None:
    challenge = new_challenge()
    body = challenge_body(challenge, new_code())
    message = verify(delivery(body, webhook_id=verification_id(5)), body, TEXT)
    answer = answer_challenge(message)
    assert answer is not None and len(answer) <= 256
    assert answer_proves(answer, challenge, [new_shared_secret().reveal(), TEXT])


def test_what_an_endpoint_without_the_secret_can_send_proves_nothing() -> None:
    challenge = new_challenge()
    body = challenge_body(challenge, new_code())
    headers = dict(delivery(body, webhook_id=verification_id(5)))
    other = new_shared_secret().reveal()
    reflections = [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"response": 1}',
        b"\xff",
        body,
        challenge.encode(),
    ]
    reflections += [json.dumps({"response": value}).encode() for value in headers.values()]
    reflections += [json.dumps({"response": challenge}).encode(), json.dumps(headers).encode()]
    reflections.append(json.dumps({"response": challenge_response(challenge, other)}).encode())
    reflections.append(json.dumps({"response": challenge_response(new_challenge(), TEXT)}).encode())
    right = challenge_response(challenge, TEXT)
    reflections += [json.dumps({"response": right.upper()}).encode(), right.encode()]
    for reflection in reflections:
        assert not answer_proves(reflection, challenge, [TEXT])


def test_an_ordinary_delivery_is_never_answered_like_a_challenge() -> None:
    body = challenge_body(new_challenge(), new_code())  # published as an event by someone
    message = verify(delivery(body, webhook_id="msg_1_2"), body, TEXT)
    assert answer_challenge(message) is None


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"nonsense", b'{"type":"surehook.verification","challenge":"x"}']
)
def test_a_malformed_challenge_is_not_answered(body: bytes) -> None:
    message = verify(delivery(body, webhook_id="vrf_1_x"), body, TEXT)
    assert answer_challenge(message) is None


def test_a_code_is_easy_to_read_and_hard_to_guess() -> None:
    codes = {new_code() for _ in range(100)}
    assert len(codes) == 100
    assert all(len(code) == 14 and not set(code) & set("01ILOU") for code in codes)


# --- The two web applications --------------------------------------------------------------------


async def call_asgi(app: Any, headers: list[tuple[str, str]], body: bytes) -> tuple[int, bytes]:
    parts = [body[:3], body[3:]]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    pairs = [(name.encode(), value.encode()) for name, value in headers]
    await app({"type": "http", "headers": pairs}, receive, send)
    return sent[0]["status"], sent[1]["body"]


def call_wsgi(app: Any, headers: list[tuple[str, str]], body: bytes) -> tuple[int, bytes]:
    environ: dict[str, Any] = {
        f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers
    }
    environ |= {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    statuses: list[str] = []
    answer = b"".join(app(environ, lambda status, _: statuses.append(status)))
    return int(statuses[0][:3]), answer


def call(kind: str, headers: list[tuple[str, str]], body: bytes) -> tuple[int, bytes, int]:
    handled: list[Message] = []

    async def handle(message: Message) -> None:
        handled.append(message)

    if kind == "asgi":
        status, answer = asyncio.run(call_asgi(asgi_receiver(handle, TEXT), headers, body))
    else:
        status, answer = call_wsgi(wsgi_receiver(handled.append, TEXT), headers, body)
    return status, answer, len(handled)


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_an_application_hands_on_what_is_genuine(kind: str) -> None:
    assert call(kind, delivery(b'{"a":1}'), b'{"a":1}') == (204, b"", 1)


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_an_application_refuses_what_is_not(kind: str) -> None:
    status, answer, handled = call(kind, delivery(b'{"a":1}'), b'{"a":2}')
    assert (status, handled) == (401, 0) and b"signature" in answer


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_an_application_answers_the_challenge_by_itself(kind: str) -> None:
    challenge = new_challenge()
    body = challenge_body(challenge, new_code())
    status, answer, handled = call(kind, delivery(body, webhook_id=verification_id(1)), body)
    assert (status, handled) == (200, 0)
    assert answer_proves(answer, challenge, [TEXT])


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_an_application_refuses_a_body_without_end(kind: str) -> None:
    body = b"x" * (2 * 1024 * 1024 + 1)
    assert call(kind, delivery(b"{}"), body)[0] == 413
