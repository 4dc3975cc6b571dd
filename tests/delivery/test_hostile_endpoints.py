"""Endpoints that hang, drip, flood, lie and break off: the right outcome, once, in time.

Each behaviour says what must come out. For every one of them: at most one POST arrived, the sender
answered within deadline + 1 s, and it let go of the connection.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from support.hostile import HostileServer, Peer, Script
from support.sending import request, run, settings, started
from support.waiting import PATIENCE, in_time
from surehook.delivery.outcome import Outcome
from surehook.model.error_codes import ErrorCode

QUICK = 0.4
OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = OK + b"Content-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class Behaviour:
    """An endpoint's script and what the sender must make of it; code None means delivered."""

    name: str
    script: Script
    code: ErrorCode | None
    status: int | None = None
    deadline: float = PATIENCE
    plain: bool = False
    body: bytes = b"{}"
    kept: bool = False
    """Whether the connection may be used again."""


def raw(answer: bytes, *, then: str = "hang") -> Script:
    """Read the request, send these bytes, then hang, close or reset."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(answer)
        end: Callable[[], None] = getattr(peer, then)
        end()

    return script


def flooding(head: bytes, piece: bytes) -> Script:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(head)
        peer.flood(piece)

    return script


def dripping(head: bytes, drops: bytes) -> Script:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(head)
        peer.drip(drops)

    return script


def bare(send: bytes, *, then: str = "hang", read_first: bool = True) -> Script:
    """For servers without TLS: wait for the ClientHello, send bytes."""

    def script(peer: Peer) -> None:
        if read_first:
            peer.read()
        if send:
            peer.send(send)
        end: Callable[[], None] = getattr(peer, then)
        end()

    return script


def drip_a_record(peer: Peer) -> None:
    peer.read()
    peer.send(b"\x16\x03\x03\x40\x00")
    peer.drip(b"\x02")


def read_nothing(peer: Peer) -> None:
    peer.server.over.wait(PATIENCE)


def read_half_then(end: str) -> Script:
    def script(peer: Peer) -> None:
        peer.read(20)
        finish: Callable[[], None] = getattr(peer, end)
        finish()

    return script


def answer_before_the_body(peer: Peer) -> None:
    peer.read(100)
    peer.answer(413, body=b"too much")
    peer.hang()


def headers(total: int) -> bytes:
    line = b"X-Filler: " + b"f" * 400 + b"\r\n"
    return line * (total // len(line))


def chunks(*parts: bytes) -> bytes:
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts)


E = ErrorCode
BOMB = gzip.compress(b"\0" * 10_000_000)
BEHAVIOURS = [
    # Before and during TLS
    Behaviour("accepts and says nothing", bare(b""), E.TIMEOUT, deadline=QUICK, plain=True),
    Behaviour("closes at the ClientHello", bare(b"", then="close"), E.TLS_FAILED, plain=True),
    Behaviour("resets at the ClientHello", bare(b"", then="reset"), E.TLS_FAILED, plain=True),
    Behaviour(
        "closes without reading",
        bare(b"", then="close", read_first=False),
        E.TLS_FAILED,
        plain=True,
    ),
    Behaviour("speaks HTTP without TLS", bare(EMPTY), E.TLS_FAILED, plain=True),
    Behaviour("speaks SSH", bare(b"SSH-2.0-x\r\n", read_first=False), E.TLS_FAILED, plain=True),
    Behaviour("sends noise instead of TLS", bare(b"\xff" * 500), E.TLS_FAILED, plain=True),
    Behaviour("sends an alert", bare(b"\x15\x03\x03\x00\x02\x02\x28"), E.TLS_FAILED, plain=True),
    Behaviour(
        "half a ServerHello",
        bare(b"\x16\x03\x03\x00\x7a\x02"),
        E.TIMEOUT,
        deadline=QUICK,
        plain=True,
    ),
    Behaviour("drips a TLS record", drip_a_record, E.TIMEOUT, deadline=QUICK, plain=True),
    # Before an answer
    Behaviour("reads nothing", read_nothing, E.TIMEOUT, deadline=QUICK),
    Behaviour(
        "reads nothing of a large body",
        read_nothing,
        E.TIMEOUT,
        deadline=QUICK,
        body=b"x" * 9_000_000,
    ),
    Behaviour("never answers", raw(b""), E.TIMEOUT, deadline=QUICK),
    Behaviour("closes without an answer", raw(b"", then="close"), E.PROTOCOL_ERROR),
    Behaviour("resets without an answer", raw(b"", then="reset"), E.PROTOCOL_ERROR),
    Behaviour("closes amid the request", read_half_then("close"), E.PROTOCOL_ERROR),
    Behaviour("resets amid the request", read_half_then("reset"), E.PROTOCOL_ERROR),
    Behaviour(
        "answers before the body was read",
        answer_before_the_body,
        E.HTTP_4XX,
        413,
        body=b"x" * 9_000_000,
    ),
    # Status line
    Behaviour("half a status line, hangs", raw(b"HTTP/1.1 20"), E.TIMEOUT, deadline=QUICK),
    Behaviour("half a status line, closes", raw(b"HTTP/1.1 20", then="close"), E.PROTOCOL_ERROR),
    Behaviour("a status line alone", raw(OK, then="close"), E.PROTOCOL_ERROR),
    Behaviour("HTTP/0.9", raw(b"<html>hello</html>", then="close"), E.PROTOCOL_ERROR),
    Behaviour(
        "HTTP/2.0 in text", raw(b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"), E.PROTOCOL_ERROR
    ),
    Behaviour("HTTP/2 frames", raw(b"\0\0\x12\x04\0\0\0\0\0" + b"\0" * 18), E.PROTOCOL_ERROR),
    Behaviour("another protocol", raw(b"ICY 200 OK\r\n\r\n"), E.PROTOCOL_ERROR),
    Behaviour("a status in letters", raw(b"HTTP/1.1 abc OK\r\n\r\n"), E.PROTOCOL_ERROR),
    Behaviour("a status of two digits", raw(b"HTTP/1.1 20 OK\r\n\r\n"), E.PROTOCOL_ERROR),
    Behaviour("a status of five digits", raw(b"HTTP/1.1 20000 OK\r\n\r\n"), E.PROTOCOL_ERROR),
    Behaviour(
        "a status beyond 599",
        raw(b"HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n"),
        E.PROTOCOL_ERROR,
        600,
    ),
    Behaviour(
        "an endless status line", flooding(b"HTTP/1.1 200 ", b"a" * 4096), E.RESPONSE_TOO_LARGE
    ),
    # Headers
    Behaviour("headers without an end, hangs", raw(OK + b"A: b\r\n"), E.TIMEOUT, deadline=QUICK),
    Behaviour(
        "headers without an end, closes", raw(OK + b"A: b\r\n", then="close"), E.PROTOCOL_ERROR
    ),
    Behaviour("drips headers", dripping(OK, b"A: b\r\n"), E.TIMEOUT, deadline=QUICK),
    Behaviour("endless headers", flooding(OK, b"A: b\r\n" * 200), E.RESPONSE_TOO_LARGE),
    Behaviour("one endless header", flooding(OK + b"A: ", b"a" * 4096), E.RESPONSE_TOO_LARGE),
    Behaviour("an endless header name", flooding(OK, b"a" * 4096), E.RESPONSE_TOO_LARGE),
    Behaviour(
        "40 KiB of headers",
        raw(OK + headers(40_000) + b"Content-Length: 0\r\n\r\n"),
        E.RESPONSE_TOO_LARGE,
    ),
    Behaviour(
        "30 KB of headers",
        raw(OK + headers(30_000) + b"Content-Length: 0\r\n\r\n"),
        None,
        200,
        kept=True,
    ),
    Behaviour("a header without a colon", raw(OK + b"nonsense\r\n\r\n"), E.PROTOCOL_ERROR),
    Behaviour(
        "a blank before the colon", raw(OK + b"Content-Length : 0\r\n\r\n"), E.PROTOCOL_ERROR
    ),
    Behaviour(
        "NUL in a header", raw(OK + b"A: b\0c\r\nContent-Length: 0\r\n\r\n"), E.PROTOCOL_ERROR
    ),
    Behaviour("bare line feeds", raw(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"), E.PROTOCOL_ERROR),
    # Interim answers
    Behaviour(
        "100 and then 200", raw(b"HTTP/1.1 100 Continue\r\n\r\n" + EMPTY), None, 200, kept=True
    ),
    Behaviour(
        "103 and then 200",
        raw(b"HTTP/1.1 103 Hints\r\nLink: </x>\r\n\r\n" + EMPTY),
        None,
        200,
        kept=True,
    ),
    Behaviour("100 and then nothing", raw(b"HTTP/1.1 100 C\r\n\r\n"), E.TIMEOUT, deadline=QUICK),
    Behaviour(
        "a flood of 100", flooding(b"", b"HTTP/1.1 100 C\r\n\r\n" * 50), E.RESPONSE_TOO_LARGE
    ),
    Behaviour("drips 102", dripping(b"", b"HTTP/1.1 102 P\r\n\r\n"), E.TIMEOUT, deadline=QUICK),
    Behaviour(
        "101 unasked",
        raw(b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
        E.PROTOCOL_ERROR,
    ),
    # Length
    Behaviour(
        "a body that is too short",
        raw(OK + b"Content-Length: 9\r\n\r\nabc", then="close"),
        E.PROTOCOL_ERROR,
        200,
    ),
    Behaviour(
        "a body that never comes", raw(OK + b"Content-Length: 9\r\n\r\n"), E.TIMEOUT, 200, QUICK
    ),
    Behaviour(
        "a body cut by a reset",
        raw(OK + b"Content-Length: 9\r\n\r\nabc", then="reset"),
        E.PROTOCOL_ERROR,
        None,
    ),
    Behaviour("more than it announced", raw(OK + b"Content-Length: 2\r\n\r\nabc"), None, 200),
    Behaviour(
        "two lengths",
        raw(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"),
        E.PROTOCOL_ERROR,
    ),
    Behaviour(
        "the same length twice",
        raw(OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab"),
        E.PROTOCOL_ERROR,
    ),
    Behaviour("a list of lengths", raw(OK + b"Content-Length: 2, 2\r\n\r\nab"), E.PROTOCOL_ERROR),
    Behaviour("a negative length", raw(OK + b"Content-Length: -1\r\n\r\n"), E.PROTOCOL_ERROR),
    Behaviour("a length in letters", raw(OK + b"Content-Length: two\r\n\r\n"), E.PROTOCOL_ERROR),
    Behaviour(
        "a length beyond 64 bits",
        raw(OK + b"Content-Length: 99999999999999999999\r\n\r\n"),
        E.PROTOCOL_ERROR,
    ),
    Behaviour(
        "an announced gigabyte",
        raw(OK + b"Content-Length: 1000000000\r\n\r\n"),
        E.RESPONSE_TOO_LARGE,
        200,
    ),
    Behaviour(
        "length and chunked",
        raw(OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        E.PROTOCOL_ERROR,
    ),
    Behaviour(
        "64 KiB exactly",
        raw(OK + b"Content-Length: 65536\r\n\r\n" + b"b" * 65536),
        None,
        200,
        kept=True,
    ),
    Behaviour(
        "64 KiB and a byte",
        raw(OK + b"Content-Length: 65537\r\n\r\n" + b"b" * 65537),
        E.RESPONSE_TOO_LARGE,
        200,
    ),
    Behaviour("an endless body", flooding(OK + b"\r\n", b"b" * 65536), E.RESPONSE_TOO_LARGE, 200),
    Behaviour("drips an endless body", dripping(OK + b"\r\n", b"b"), E.TIMEOUT, 200, QUICK),
    Behaviour("a body until the close", raw(OK + b"\r\nhello", then="close"), None, 200),
    Behaviour(
        "HTTP/1.0 until the close", raw(b"HTTP/1.0 200 OK\r\n\r\nhello", then="close"), None, 200
    ),
    Behaviour("a body until a reset", raw(OK + b"\r\nhello", then="reset"), E.PROTOCOL_ERROR, 200),
    Behaviour("204 with a body", raw(b"HTTP/1.1 204 No\r\n\r\nsurprise"), None, 204),
    # Chunks
    Behaviour("chunks", raw(chunks(b"3\r\nabc\r\n", b"0\r\n\r\n")), None, 200, kept=True),
    Behaviour(
        "endless chunks",
        flooding(chunks(), b"1000\r\n" + b"c" * 4096 + b"\r\n"),
        E.RESPONSE_TOO_LARGE,
        200,
    ),
    Behaviour("drips chunks", dripping(chunks(), b"1\r\nc\r\n"), E.TIMEOUT, 200, QUICK),
    Behaviour(
        "tiny chunks without end",
        flooding(chunks(), b"1\r\nc\r\n" * 500),
        E.RESPONSE_TOO_LARGE,
        200,
    ),
    Behaviour(
        "an endless chunk extension",
        flooding(chunks(b"1;x="), b"e" * 4096),
        E.RESPONSE_TOO_LARGE,
        200,
    ),
    Behaviour(
        "endless trailers", flooding(chunks(b"0\r\n"), b"T: t\r\n" * 200), E.RESPONSE_TOO_LARGE, 200
    ),
    Behaviour("a chunk size in letters", raw(chunks(b"xyz\r\nabc\r\n")), E.PROTOCOL_ERROR, 200),
    Behaviour(
        "a chunk size beyond 64 bits",
        raw(chunks(b"fffffffffffffffff\r\nabc")),
        E.PROTOCOL_ERROR,
        200,
    ),
    Behaviour("a negative chunk size", raw(chunks(b"-1\r\nabc\r\n")), E.PROTOCOL_ERROR, 200),
    Behaviour(
        "a chunk longer than it says", raw(chunks(b"2\r\nabc\r\n0\r\n\r\n")), E.PROTOCOL_ERROR, 200
    ),
    Behaviour(
        "chunks without an end, closes",
        raw(chunks(b"3\r\nabc\r\n"), then="close"),
        E.PROTOCOL_ERROR,
        200,
    ),
    Behaviour("chunks without an end, hangs", raw(chunks(b"3\r\nabc\r\n")), E.TIMEOUT, 200, QUICK),
    Behaviour(
        "a coding we did not ask for",
        raw(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        E.PROTOCOL_ERROR,
        200,
    ),
    Behaviour(
        "an unknown coding",
        raw(OK + b"Transfer-Encoding: identity\r\n\r\nabc", then="close"),
        E.PROTOCOL_ERROR,
        200,
    ),
    Behaviour(
        "chunked twice",
        raw(OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
        E.PROTOCOL_ERROR,
    ),
    # Compression
    Behaviour(
        "a decompression bomb",
        raw(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB),
        None,
        200,
        kept=True,
    ),
    Behaviour(
        "a larger decompression bomb",
        flooding(OK + b"Content-Encoding: gzip\r\n\r\n", BOMB),
        E.RESPONSE_TOO_LARGE,
        200,
    ),
]


def by_name(behaviour: Behaviour) -> str:
    return behaviour.name


def test_there_are_at_least_60_behaviours() -> None:
    assert len({behaviour.name for behaviour in BEHAVIOURS}) >= 60


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=by_name)
def test_a_hostile_endpoint_gets_the_right_outcome_in_time(behaviour: Behaviour) -> None:
    check(behaviour, "uvloop")


@pytest.mark.parametrize("behaviour", BEHAVIOURS[::4], ids=by_name)
def test_the_outcome_does_not_depend_on_the_kind_of_loop(behaviour: Behaviour) -> None:
    check(behaviour, "asyncio")


def check(behaviour: Behaviour, loop: str) -> None:
    async def scenario(server: HostileServer) -> tuple[Outcome, int]:
        async with started() as sender:
            given = request(server.url, behaviour.body, deadline=behaviour.deadline)
            outcome = await in_time(sender.send(given), behaviour.deadline + 1.0)
            assert sender.idle_connections == int(behaviour.kept)
            if not behaviour.kept and behaviour.script is not read_nothing:
                assert await asyncio.to_thread(server.released)
        return outcome, server.connections

    with HostileServer(behaviour.script, plain=behaviour.plain) as server:
        outcome, connections = run(scenario(server), loop)
        if behaviour.script is read_nothing:
            server.over.set()
    assert outcome.error_code == behaviour.code, outcome
    if behaviour.status is not None or behaviour.code is None:
        assert outcome.response_status == behaviour.status
    # A deadline may be over before the server's thread has had its turn.
    assert connections == 1 or (behaviour.code is ErrorCode.TIMEOUT and not connections)
    assert server.posts <= 1
    if not outcome.sent:
        assert server.bytes_seen == 0 or behaviour.plain


def test_the_settings_of_these_tests_guard_everything_but_loopback() -> None:
    assert settings().allow_networks == ("127.0.0.0/8", "::1/128")
