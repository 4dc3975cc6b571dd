"""Ordinary answers: statuses, Retry-After, excerpts, redirects, cookies, what is sent."""

from __future__ import annotations

import email.utils
import random
import ssl
import time

import msgspec
import pytest

from support import certificates
from support.hostile import HostileServer, Peer
from support.receiver import Answer, Receiver
from support.sending import request, run, started
from surehook.delivery.outcome import (
    MAX_RETRY_AFTER_SECONDS,
    Outcome,
    error_of_status,
)
from surehook.model.error_codes import ErrorCode

STATUSES = [200, 201, 202, 203, 204, 205, 226, 299, 300, 301, 302, 303, 304, 305, 307, 308, 399]
STATUSES += [400, 401, 403, 404, 405, 408, 409, 410, 413, 418, 422, 425, 429, 451, 499]
STATUSES += [500, 501, 502, 503, 504, 507, 511, 520, 599]


async def test_every_status_class_gets_its_code() -> None:
    async with Receiver() as receiver, started() as sender:
        receiver.script("/s", *(Answer(status) for status in STATUSES))
        outcomes = [await sender.send(request(receiver.url + "/s")) for _ in STATUSES]
    assert [outcome.response_status for outcome in outcomes] == STATUSES
    assert [outcome.error_code for outcome in outcomes] == [*map(error_of_status, STATUSES)]
    assert receiver.count == len(STATUSES)


@pytest.mark.parametrize(
    ("status", "value", "expected"),
    [
        (503, "120", 120),
        (429, "0", 0),
        (404, "7", 7),
        (302, "5", 5),
        (503, "99999999", MAX_RETRY_AFTER_SECONDS),
        (503, "99999999999", MAX_RETRY_AFTER_SECONDS),
        (503, "9" * 5000, MAX_RETRY_AFTER_SECONDS),
        (503, "later", None),
        (503, "-5", None),
        (200, "120", None),
    ],
)
async def test_a_retry_after_is_passed_on_with_any_failure(
    status: int, value: str, expected: int | None
) -> None:
    async with Receiver() as receiver, started() as sender:
        receiver.script("/r", Answer(status, headers=(("Retry-After", value),)))
        outcome = await sender.send(request(receiver.url + "/r"))
    assert outcome.retry_after_seconds == expected


async def test_a_retry_after_date_is_turned_into_seconds() -> None:
    date = email.utils.formatdate(time.time() - 3600, usegmt=True)
    later = email.utils.formatdate(time.time() - 3600 + 90, usegmt=True)
    async with Receiver() as receiver, started() as sender:
        receiver.script("/r", Answer(503, headers=(("Date", date), ("Retry-After", later))))
        outcome = await sender.send(request(receiver.url + "/r"))
    assert outcome.retry_after_seconds == 90


@pytest.mark.parametrize("made_at", [1_000_000_000.0, 4_000_000_000.0, None])
async def test_a_retry_after_date_without_a_date_header_goes_by_the_database_alone(
    made_at: float | None,
) -> None:
    later = email.utils.formatdate((made_at or time.time()) + 3600, usegmt=True)
    async with Receiver() as receiver, started() as sender:
        receiver.script("/r", Answer(503, headers=(("Retry-After", later),)))
        wanted = msgspec.structs.replace(request(receiver.url + "/r"), made_at=made_at)
        seconds = (await sender.send(wanted)).retry_after_seconds
    # At most the deadline of the attempt has passed since the request was made.
    assert seconds is None if made_at is None else 3595 <= (seconds or 0) <= 3600


async def test_the_excerpt_is_short_and_harmless() -> None:
    async with Receiver() as receiver, started() as sender:
        receiver.script("/e", Answer(500, body=b"\x1b[2J\x00oops\r\n" + b"z" * 5000))
        outcome = await sender.send(request(receiver.url + "/e"))
    assert outcome.response_excerpt is not None and outcome.response_excerpt.startswith(
        "·[2J·oops zzz"
    )
    assert len(outcome.response_excerpt) == 256


async def test_a_redirect_is_not_followed_to_anywhere() -> None:
    async with Receiver() as receiver, Receiver() as inner, started() as sender:
        for status in (301, 302, 303, 307, 308):
            location = (("Location", f"{inner.url}/secret"), ("Refresh", f"0; {inner.url}"))
            receiver.script("/go", Answer(status, headers=location))
            outcome = await sender.send(request(receiver.url + "/go"))
            assert (outcome.error_code, outcome.response_status) == (ErrorCode.HTTP_3XX, status)
    assert inner.connections == 0 and receiver.count == 5


async def test_cookies_and_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with Receiver() as receiver, started() as sender:
        receiver.script("/c", Answer(headers=(("Set-Cookie", "a=b"),)))
        for _ in range(2):
            assert (await sender.send(request(receiver.url + "/c"))).delivered
    assert all("cookie" not in received.headers for received in receiver.requests)


async def test_the_request_is_exactly_what_was_asked_for() -> None:
    body = bytes(range(256)) * 40
    async with Receiver() as receiver, started() as sender:
        headers = (("content-type", "application/json"), ("webhook-id", "msg_1_2"), ("X-A", "b c"))
        for _ in range(3):
            await sender.send(request(receiver.url + "/p?q=1&r=%20", body, headers=headers))
    for received in receiver.requests:
        assert (received.method, received.path, received.body) == ("POST", "/p?q=1&r=%20", body)
        assert received.headers == {
            "host": f"127.0.0.1:{receiver.port}",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "webhook-id": "msg_1_2",
            "x-a": "b c",
            "content-length": str(len(body)),
        }


BAD_HEADERS = [
    ("x", "a\r\nb: c"),
    ("x", "a\nb"),
    ("x", "a\rb"),
    ("x", "a\x00b"),
    ("x", "a\x7fb"),
    ("x", "ü"),
    ("x", "a\u2028b"),
    ("x\r\ny", "a"),
    ("x y", "a"),
    ("x:", "a"),
    ("", "a"),
    ("ü", "a"),
    ("Host", "other"),
    ("Content-Length", "3"),
    ("transfer-encoding", "chunked"),
    ("Connection", "close"),
    ("Expect", "100-continue"),
    ("Upgrade", "h2c"),
    ("TE", "trailers"),
    ("Accept-Encoding", "gzip"),
    ("Content-Encoding", "gzip"),
    ("Proxy-Authorization", "Basic x"),
    ("Keep-Alive", "300"),
    ("Trailer", "x"),
]


@pytest.mark.parametrize("header", BAD_HEADERS, ids=repr)
async def test_a_header_that_could_inject_or_confuse_is_not_sent(header: tuple[str, str]) -> None:
    async with Receiver() as receiver, started() as sender:
        outcome = await sender.send(request(receiver.url, headers=(header,)))
    assert outcome.error_code is ErrorCode.INVALID_REQUEST and not outcome.sent
    assert receiver.connections == 0


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "https://user@127.0.0.1/", "https://127.1/", "", "https://a b/"]
)
async def test_a_bad_url_from_the_database_is_refused_without_a_connection(url: str) -> None:
    async with started() as sender:
        outcome = await sender.send(request(url))
    assert outcome.error_code is ErrorCode.INVALID_REQUEST and not outcome.sent


async def test_no_time_left_means_nothing_is_sent() -> None:
    async with Receiver() as receiver, started() as sender:
        for deadline in (0.0, -1.0):
            outcome = await sender.send(request(receiver.url, deadline=deadline))
            assert outcome.error_code is ErrorCode.TIMEOUT and not outcome.sent
    assert receiver.connections == 0


def test_nobody_listening_is_a_failed_connection() -> None:
    with HostileServer(Peer.hang) as server:
        url = server.url

    async def scenario() -> Outcome:
        async with started() as sender:
            return await sender.send(request(url))

    outcome = run(scenario())
    assert outcome.error_code is ErrorCode.CONNECT_FAILED and not outcome.sent


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_body_beyond_every_buffer_reaches_a_slow_reader_byte_for_byte(
    version: ssl.TLSVersion, loop: str
) -> None:
    body = random.Random(1).randbytes(9_000_000)
    read: list[bytes] = []

    def script(peer: Peer) -> None:
        for _ in range(2):
            data = bytearray(peer.read_head())
            while not data.endswith(body[-1000:]):
                data += peer.read(1000)
            read.append(bytes(data.partition(b"\r\n\r\n")[2]))
            peer.answer()
        peer.hang()

    async def scenario(server: HostileServer) -> None:
        async with started() as sender:
            for _ in range(2):
                assert (await sender.send(request(server.url, body))).delivered

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.authority().issue_cert("127.0.0.1").configure_cert(context)
    context.minimum_version = context.maximum_version = version
    with HostileServer(script, tls=context) as server:
        run(scenario(server), loop)
    assert server.connections == 1 and read == [body, body]
