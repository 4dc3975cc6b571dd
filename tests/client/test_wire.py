"""What the client makes of answers that are not valid HTTP, or nested too deep."""

from __future__ import annotations

import pytest

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
