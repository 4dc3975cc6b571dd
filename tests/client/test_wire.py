"""What the client makes of answers that are not valid HTTP, or nested too deep."""

from __future__ import annotations

import pytest

from surehook.client import wire
from surehook.client.calls import call
from surehook.client.errors import NotUnderstood, ServiceUnavailable
from surehook.client.results import EventWithDeliveries
from surehook.client.wire import Answer, Broken, Parser


@pytest.mark.parametrize(
    "given",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        b"SSH-2.0 hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ],
)
def test_an_answer_that_is_none_is_a_broken_one(given: bytes) -> None:
    parser = Parser()
    with pytest.raises(Broken):
        parser.feed(given)
    assert parser.answer is None


@pytest.mark.parametrize("depth", [41, 500, 976, 1000, 100_000])
def test_an_answer_that_is_nested_without_end_is_not_understood(depth: int) -> None:
    body = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    asked = call("GET", "/v1/events/1", EventWithDeliveries)
    with pytest.raises(NotUnderstood):
        asked.result(Answer(200, {}, body, False), "r")
    with pytest.raises(ServiceUnavailable):
        asked.result(Answer(503, {}, body, False), "r")


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def test_an_interim_answer_is_passed_over() -> None:
    parser = Parser()
    parser.feed(b"HTTP/1.1 100 Continue\r\nx-early: 1\r\n\r\n")
    assert parser.answer is None
    parser.feed(OK)
    assert parser.answer == Answer(200, {"content-length": "2"}, b"{}", True)


def test_a_connection_that_carried_more_than_the_answer_is_not_kept() -> None:
    parser = Parser()
    parser.feed(OK + OK)
    assert parser.answer is not None and not parser.answer.keep_alive


def test_an_answer_without_end_is_a_broken_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Broken, match="head has no end"):
        Parser().feed(b"HTTP/1.1 200 OK\r\nx: " + b"y" * wire.HEAD_BYTES_MAX)
    monkeypatch.setattr(wire, "BODY_BYTES_MAX", 10)
    with pytest.raises(Broken, match="too large"):
        Parser().feed(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n" + b"x" * 11)


NOON, LATER = "Sun, 15 Nov 2026 12:00:00 GMT", "Sun, 15 Nov 2026 12:00:09 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": LATER, "date": NOON}, 9.0),
        ({"retry-after": NOON, "date": LATER}, 0.0),
        ({"retry-after": LATER}, None),
        ({"retry-after": "soon", "date": NOON}, None),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert Answer(503, headers, b"", False).retry_after() == seconds


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://host:99999", "http://host:0", "http://a..b"]
)
def test_a_url_that_cannot_be_dialled_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError, match="url must look like"):
        wire.parse_url(url)


def test_a_redirect_is_not_understood() -> None:
    with pytest.raises(NotUnderstood, match="status 302"):
        call("GET", "/v1/events/1", EventWithDeliveries).result(Answer(302, {}, b"", False), "r")
