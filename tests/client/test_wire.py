"""What the client's parser makes of answers that are none."""

from __future__ import annotations

import pytest

from surehook.client.wire import Broken, Parser


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
