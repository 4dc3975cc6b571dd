"""The receiver for users' own tests: the fixture, the plain class, and what it can be told."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.waiting import PATIENCE
from surehook.delivery import Request
from surehook.delivery.challenge import answer_proves, challenge_body, new_challenge, new_code
from surehook.delivery.client import HttpsSender, SenderSettings
from surehook.delivery.signature import parse_secret
from surehook.delivery.signature import signed_headers as our_signed_headers
from surehook.model.error_codes import ErrorCode
from surehook.receiver import certificates
from surehook.testing import Receiver, new_secret, signed_headers


def post(
    receiver: Receiver,
    body: bytes,
    headers: dict[str, str],
    path: str = "/hook",
    timeout: float = PATIENCE,
) -> tuple[int, bytes]:
    """As any HTTP client would: with the receiver's authority as the only one it trusts."""
    context = ssl.create_default_context(cafile=str(receiver.ca_file))
    address = urlsplit(receiver.url)
    connection = http.client.HTTPSConnection(
        address.hostname or "", address.port, timeout=PATIENCE, context=context
    )
    try:
        connection.request("POST", path, body, headers)
        connection.sock.settimeout(timeout)  # not for the way there
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def deliver(receiver: Receiver, payload: Any, **named: Any) -> int:
    body = json.dumps(payload).encode()
    return post(receiver, body, signed_headers(receiver.secret, body, **named))[0]


def test_the_fixture_records_what_arrives(surehook_receiver: Receiver) -> None:
    assert deliver(surehook_receiver, {"order": 17}, event_type="order.paid") == 200
    [delivery] = surehook_receiver.wait_for(1, PATIENCE)
    assert delivery.json() == {"order": 17}
    assert (delivery.event_type, delivery.webhook_id) == ("order.paid", "msg_0123456789_1_1")
    assert (delivery.path, delivery.attempt, delivery.status) == ("/hook", 1, 200)


def test_attempts_are_counted_by_webhook_id(surehook_receiver: Receiver) -> None:
    surehook_receiver.fail(times=2)
    answers = [deliver(surehook_receiver, 1, webhook_id="msg_5_1") for _ in range(3)]
    assert answers == [500, 500, 200]
    deliver(surehook_receiver, 1, webhook_id="msg_6_1")
    assert [arrival.attempt for arrival in surehook_receiver.wait_for(4, PATIENCE)] == [1, 2, 3, 1]


def test_it_answers_what_it_is_told_until_it_recovers(surehook_receiver: Receiver) -> None:
    surehook_receiver.answer(503)
    assert [deliver(surehook_receiver, 1) for _ in range(2)] == [503, 503]
    surehook_receiver.answer(204, times=1)
    assert [deliver(surehook_receiver, 1) for _ in range(2)] == [204, 503]
    surehook_receiver.recover()
    assert deliver(surehook_receiver, 1) == 200
    surehook_receiver.clear()
    assert surehook_receiver.deliveries == []


def test_it_hangs_when_told_and_still_closes_at_once() -> None:
    with Receiver() as receiver:
        receiver.hang(times=1)
        body = b"1"
        with pytest.raises(TimeoutError):
            post(receiver, body, signed_headers(receiver.secret, body), timeout=0.2)
        assert receiver.wait_for(1, PATIENCE)[0].status is None
        assert deliver(receiver, 2) == 200
        receiver.hang()
        hanging = threading.Thread(target=_ignoring, args=(receiver,))
        hanging.start()
        receiver.wait_for(3, PATIENCE)
    hanging.join()


def _ignoring(receiver: Receiver) -> None:
    with pytest.raises((OSError, http.client.HTTPException)):
        deliver(receiver, 3)


@pytest.mark.parametrize("damage", ["body", "secret", "time", "missing"])
def test_what_is_not_genuine_is_refused_and_does_not_count(
    surehook_receiver: Receiver, damage: str
) -> None:
    body = b'{"order": 1}'
    secret = new_secret() if damage == "secret" else surehook_receiver.secret
    stamp = int(time.time()) - (3600 if damage == "time" else 0)
    headers = signed_headers(secret, body, timestamp=stamp)
    if damage == "missing":
        del headers["webhook-signature"]
    status, reason = post(surehook_receiver, b"{}" if damage == "body" else body, headers)
    assert status == 401
    assert reason.decode() == surehook_receiver.refused[0].reason
    with pytest.raises(TimeoutError, match=r"0 of 1 deliveries arrived.*refused: 1 \("):
        surehook_receiver.wait_for(1, timeout=0.01)


def test_after_a_rotation_either_secret_fits() -> None:
    old, new = new_secret(), new_secret()
    with Receiver([new, old]) as receiver:
        for secret in (old, new):
            body = b"1"
            assert post(receiver, body, signed_headers(secret, body))[0] == 200
        receiver.accept(new)
        assert post(receiver, body, signed_headers(old, body))[0] == 401


async def test_our_own_sender_delivers_to_it_and_is_verified(surehook_receiver: Receiver) -> None:
    settings = SenderSettings(
        allow_networks=("127.0.0.0/8",), ca_file=str(surehook_receiver.ca_file)
    )
    sender = HttpsSender(settings)
    await sender.start()
    try:
        signer = parse_secret(surehook_receiver.secret)
        for body in (b'{"order": 17}', b'{"order": 18}'):
            headers = our_signed_headers([signer], "msg_9_1", int(time.time()), body, "order.paid")
            url = f"{surehook_receiver.url}/orders"
            outcome = await sender.send(Request(url, body, headers, 5.0))
            assert outcome.response_status == 200, outcome
        surehook_receiver.hang(times=1)
        outcome = await sender.send(Request(url, body, headers, 0.2))
        assert outcome.error_code is ErrorCode.TIMEOUT
    finally:
        await sender.close()
    assert [one.body for one in surehook_receiver.deliveries][:2] == [
        b'{"order": 17}',
        b'{"order": 18}',
    ]


def test_a_challenge_is_answered_by_itself_even_while_deliveries_fail(
    surehook_receiver: Receiver,
) -> None:
    surehook_receiver.fail()
    challenge = new_challenge()
    body = challenge_body(challenge, new_code())
    headers = signed_headers(surehook_receiver.secret, body, webhook_id="vrf_1_x")
    status, answer = post(surehook_receiver, body, headers)
    assert status == 200
    assert answer_proves(answer, challenge, [surehook_receiver.secret])
    assert len(surehook_receiver.challenges) == 1
    assert surehook_receiver.deliveries == []


def test_a_mute_connection_stops_nobody_else(surehook_receiver: Receiver) -> None:
    import socket

    port = urlsplit(surehook_receiver.url).port or 0
    with socket.create_connection(("127.0.0.1", port)):
        assert deliver(surehook_receiver, 1) == 200


def test_a_receiver_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="not open"):
        _ = Receiver().url


# ── Certificates ──────────────────────────────────────────────────────────────────────────────


def test_certificates_are_kept_and_their_key_is_private(tmp_path: Path) -> None:
    first = certificates.kept(tmp_path / "state")
    made = first.ca_file.read_bytes(), first.server_file.read_bytes()
    again = certificates.kept(tmp_path / "state")
    assert (again.ca_file.read_bytes(), again.server_file.read_bytes()) == made
    assert first.server_file.stat().st_mode & 0o777 == 0o600
    assert first.ca_file.parent.stat().st_mode & 0o777 == 0o700
    assert b"PRIVATE" not in made[0]
    assert sorted(path.name for path in first.ca_file.parent.iterdir()) == ["ca.pem", "server.pem"]


@pytest.mark.parametrize("damage", ["other names", "foreign authority", "cut", "missing"])
def test_certificates_that_do_not_serve_are_made_anew(tmp_path: Path, damage: str) -> None:
    files = certificates.kept(tmp_path)
    before = files.server_file.read_bytes()
    names: tuple[str, ...] = certificates.LOCAL_NAMES
    if damage == "other names":
        names = (*names, "box.example.test")
    elif damage == "foreign authority":
        files.ca_file.write_bytes(certificates.made()[0])
    elif damage == "cut":
        files.server_file.write_bytes(before[:100])
    else:
        files.ca_file.unlink()
    assert certificates.kept(tmp_path, names).server_file.read_bytes() != before


def test_a_certificate_is_renewed_before_it_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "VALID", certificates.RENEW_BEFORE)
    before = certificates.kept(tmp_path).server_file.read_bytes()
    monkeypatch.undo()
    assert certificates.kept(tmp_path).server_file.read_bytes() != before
