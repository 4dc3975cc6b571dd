"""Where a request begins and ends: no byte of a body is a request, whatever the head says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.api import ADMIN_KEY
from support.http import Client, Reply, read_reply
from surehook.api.connection import Connection, Shared

EVENT = {"event_type": "outer", "payload": {"n": 1}}
BODY = b'{"event_type":"outer","payload":{"n":1}}'
AUTHORIZED = f"authorization: Bearer {ADMIN_KEY}\r\n".encode()
H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAA\r\n"
UPGRADES = {
    "h2c": H2C,
    "websocket": b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n",
    "tls": b"upgrade: TLS/1.0\r\nconnection: keep-alive, Upgrade\r\n",
    "proxy": b"proxy-connection: upgrade\r\nupgrade: h2c\r\n",
    "unannounced": b"upgrade: h2c\r\n",
}


def request(*lines: bytes, body: bytes = BODY, first: bytes = b"POST /v1/events HTTP/1.1") -> bytes:
    return b"".join([first, b"\r\n", *lines, b"\r\n", body])


def length(body: bytes = BODY) -> bytes:
    return b"content-length: %d\r\n" % len(body)


def chunked(body: bytes, size: int = 7, trailers: bytes = b"") -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = [b"%x;part=%d\r\n%s\r\n" % (len(part), n, part) for n, part in enumerate(parts)]
    return b"".join([*chunks, b"0\r\n", trailers, b"\r\n"])


HOST, CHUNKED = b"host: test\r\n", b"transfer-encoding: chunked\r\n"
INNER = request(HOST, AUTHORIZED, length())


@asynccontextmanager
async def connection(
    client: Client,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(client.host, client.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answers(client: Client, *packets: bytes) -> list[Reply]:
    """What comes until the server ends the connection; we end our side after the last packet."""
    async with connection(client) as (reader, writer):
        for packet in packets:
            writer.write(packet)
            await asyncio.sleep(0)
        writer.write_eof()
        return await rest(reader)


async def rest(reader: asyncio.StreamReader) -> list[Reply]:
    replies = []
    while True:
        try:
            replies.append(await read_reply(reader))
        except asyncio.IncompleteReadError as ended:
            assert ended.partial == b""
            return replies


async def stored(client: Client) -> int:
    return len((await client.get("/v1/events?limit=200")).json()["items"])


# ── An Upgrade that we do not do ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("upgrade", UPGRADES)
async def test_an_upgrade_is_ignored_and_the_body_read(client: Client, upgrade: str) -> None:
    head = (HOST, AUTHORIZED, UPGRADES[upgrade])
    first = request(*head, length())
    second = request(*head, CHUNKED, body=chunked(BODY))
    got = await answers(client, first + second + first)
    assert [reply.status for reply in got] == [202, 202, 202]
    reply = await client.get(f"/v1/events/{got[1].json()['id']}")
    assert reply.json()["payload"] == {"n": 1}


async def test_an_upgrade_without_a_body_is_an_ordinary_request(client: Client) -> None:
    get = request(HOST, H2C, body=b"", first=b"GET /healthz HTTP/1.1")
    assert [reply.status for reply in await answers(client, get * 3)] == [200, 200, 200]


@pytest.mark.parametrize("upgrade", UPGRADES)
async def test_a_body_in_a_second_packet_is_never_a_request(client: Client, upgrade: str) -> None:
    """The outer request has no key: its answer comes before its body does."""
    for framing, body in ((length(INNER), INNER), (CHUNKED, chunked(INNER, len(INNER)))):
        async with connection(client) as (reader, writer):
            writer.write(request(HOST, UPGRADES[upgrade], framing, body=b""))
            reply = await read_reply(reader)
            assert (reply.status, reply.headers["connection"]) == (401, "close")
            writer.write(body + INNER)
            assert await rest(reader) == []
    assert await stored(client) == 0


async def test_a_request_arrives_byte_by_byte(client: Client) -> None:
    text = request(HOST, AUTHORIZED, H2C, CHUNKED, body=chunked(BODY, 3))
    packets = [text[at : at + 1] for at in range(len(text))]
    (reply,) = await answers(client, *packets)
    assert reply.status == 202


# ── Heads that two parsers could read in different ways ───────────────────────────────────────

REFUSED = {
    "no host": request(length()),
    "two hosts": request(HOST, HOST, length()),
    "two different hosts": request(HOST, b"Host: other\r\n", length()),
    "no host name": request(b"host: a/b\r\n", length()),
    "a list of hosts": request(b"host: a b\r\n", length()),
    "two lengths": request(HOST, length(), length(b"")),
    "the same length twice": request(HOST, length(), length()),
    "a list of lengths": request(HOST, b"content-length: 40, 40\r\n"),
    "a signed length": request(HOST, b"content-length: +40\r\n"),
    "an endless length": request(HOST, b"content-length: 184467440737095516160\r\n"),
    "length and chunked": request(HOST, length(), CHUNKED, body=chunked(BODY)),
    "chunked and length": request(HOST, CHUNKED, length(), body=chunked(BODY)),
    "chunked twice": request(HOST, CHUNKED, CHUNKED, body=chunked(BODY)),
    "another coding": request(HOST, b"transfer-encoding: gzip\r\n", length()),
    "another coding too": request(
        HOST, b"transfer-encoding: gzip, chunked\r\n", body=chunked(BODY)
    ),
    "identity": request(HOST, b"transfer-encoding: identity\r\n"),
    "a coding with a comma": request(HOST, b"transfer-encoding: ,chunked\r\n", body=chunked(BODY)),
    "chunked in HTTP/1.0": request(
        HOST, CHUNKED, body=chunked(BODY), first=b"POST /v1/events HTTP/1.0"
    ),
    "two authorizations": request(HOST, AUTHORIZED, length()),
    "two idempotency keys": request(
        HOST, b"idempotency-key: a\r\n", b"idempotency-key: b\r\n", length()
    ),
    "a folded header": request(HOST, b"x: a\r\n b\r\n", length()),
    "a bare line feed": request(HOST, b"x: a\ny: b\r\n", length()),
    "a space before the colon": request(HOST, b"content-length : 40\r\n"),
    "CONNECT": request(HOST, length(), first=b"CONNECT test:443 HTTP/1.1"),
    "HTTP/2": request(HOST, length(), first=b"POST /v1/events HTTP/2.0"),
    "HTTP/0.9": request(HOST, length(), first=b"POST /v1/events"),
    "the beginning of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("case", REFUSED)
async def test_an_ambiguous_head_is_refused_and_nothing_after_it_runs(
    client: Client, case: str
) -> None:
    text = REFUSED[case].replace(HOST, HOST + AUTHORIZED, 1)
    for packets in ((text + INNER,), (text, INNER)):
        got = await answers(client, *packets)
        assert [reply.status for reply in got] == [400]
        assert got[0].headers["connection"] == "close"
        assert got[0].json()["detail"]
    assert await stored(client) == 0


async def test_a_client_of_http_1_0_needs_no_host(client: Client) -> None:
    check = b"OPTIONS / HTTP/1.0\r\n\r\n"
    assert [reply.status for reply in await answers(client, check + INNER)] == [405]
    get = b"GET /healthz HTTP/1.0\r\n\r\n"
    (reply,) = await answers(client, get + INNER)
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert await stored(client) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"5\r\nabcdefgh\r\n0\r\n\r\n",
        b"5\nabcde\n0\n\n",
        b"0x5\r\nabcde\r\n0\r\n\r\n",
        b" 5\r\nabcde\r\n0\r\n\r\n",
        b"-5\r\nabcde\r\n0\r\n\r\n",
        b"ffffffffffffffffff\r\nabcde\r\n0\r\n\r\n",
        b"5\r\nabcde\r\n\r\n",
        b"5\r\nabcde\r\n0\r\nx : y\r\n\r\n",
        b"0\r\nx: " + b"y" * 2_000_000 + b"\r\n\r\n",
    ],
)
async def test_a_broken_chunk_ends_the_connection(client: Client, body: bytes) -> None:
    for upgrade in (b"", H2C):
        text = request(HOST, AUTHORIZED, upgrade, CHUNKED, body=body)
        (reply,) = await answers(client, text, INNER)
        assert reply.status in (400, 431)
        assert reply.headers["connection"] == "close"
    assert await stored(client) == 0


async def test_a_trailer_opens_nothing(client: Client) -> None:
    """What a proxy checked are the headers: what is repeated behind the body does not count."""
    body = chunked(BODY, trailers=AUTHORIZED)
    (reply,) = await answers(client, request(HOST, CHUNKED, body=body))
    assert reply.status == 401
    body = chunked(BODY, trailers=b"idempotency-key: from-a-trailer\r\n" + HOST)
    (reply,) = await answers(client, request(HOST, AUTHORIZED, CHUNKED, body=body))
    assert reply.status == 202
    shown = await client.get(f"/v1/events/{reply.json()['id']}")
    assert shown.json()["external_id"] is None


# ── Answers in their order, and none lost ─────────────────────────────────────────────────────


async def test_who_asked_before_nonsense_is_answered_first(client: Client) -> None:
    got = await answers(client, INNER * 3 + b"nonsense\r\n\r\n" + INNER)
    assert [reply.status for reply in got] == [202, 202, 202, 400]
    assert await stored(client) == 3


async def test_who_asked_before_a_broken_body_is_answered_first(client: Client) -> None:
    broken = request(HOST, AUTHORIZED, CHUNKED, body=b"5\r\nabcdefgh\r\n")
    got = await answers(client, INNER + broken + INNER)
    assert [reply.status for reply in got] == [202, 400]
    assert await stored(client) == 1


async def test_nothing_runs_after_the_last_request(client: Client) -> None:
    last = request(HOST, AUTHORIZED, b"connection: close\r\n", length())
    upgrading = request(
        HOST, AUTHORIZED, b"connection: close, upgrade\r\nupgrade: h2c\r\n", length()
    )
    for text in (last, upgrading):
        (reply,) = await answers(client, text + INNER, INNER)
        assert (reply.status, reply.headers["connection"]) == (202, "close")
    assert await stored(client) == 2


async def test_who_ends_its_side_after_the_request_is_answered(client: Client) -> None:
    got = await answers(client, INNER + INNER)
    assert [reply.status for reply in got] == [202, 202]


async def test_a_request_that_is_cut_off_is_not_run(client: Client) -> None:
    assert await answers(client, INNER[:-1]) == []
    got = await answers(client, INNER + INNER[:-1])
    assert [reply.status for reply in got] == [202]
    assert await stored(client) == 1


async def test_an_answer_that_comes_before_the_body_is_not_lost(client: Client) -> None:
    """The client writes all of 8 MB before it reads; closing at once would reset it."""
    body = b" " * 8_000_000
    for lines, status in (((), 401), ((AUTHORIZED,), 413)):
        (reply,) = await answers(client, request(HOST, *lines, length(body), body=body), INNER)
        assert (reply.status, reply.headers["connection"]) == (status, "close")
    assert await stored(client) == 0


async def test_a_body_that_was_not_wanted_but_is_here_keeps_the_connection(client: Client) -> None:
    got = await answers(client, request(HOST, length()) + INNER)
    assert [reply.status for reply in got] == [401, 202]
    assert "connection" not in got[0].headers


async def test_who_expects_to_be_asked_for_the_body_is_asked_if_it_is_wanted(
    client: Client,
) -> None:
    expecting = b"expect: 100-continue\r\n"
    async with connection(client) as (reader, writer):
        writer.write(request(HOST, AUTHORIZED, expecting, H2C, length(), body=b""))
        assert (await read_reply(reader)).status == 100
        writer.write(BODY)
        assert (await read_reply(reader)).status == 202
    async with connection(client) as (reader, writer):
        writer.write(request(HOST, expecting, length(INNER), body=b""))
        (reply,) = await rest(reader)
        assert (reply.status, reply.headers["connection"]) == (401, "close")
        writer.write(INNER)
    assert await stored(client) == 1


# ── Every place where a packet can end ────────────────────────────────────────────────────────


class Line(asyncio.Transport):
    """A transport that remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 1) if name == "peername" else default


class Heard:
    """An application that writes down what it is asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        self.requests.append((scope["path"], body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def heard(packets: list[bytes], *, at_once: bool) -> list[tuple[str, bytes]]:
    app = Heard()
    shared = Shared(app, lambda _: None)
    line, connection = Line(), Connection(shared)
    connection.connection_made(line)
    for packet in packets:
        connection.data_received(packet)
        if not at_once:
            await asyncio.sleep(0)
    while shared.tasks:
        await asyncio.wait(shared.tasks)
    connection.connection_lost(None)
    return app.requests


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_a_body_is_the_same_wherever_a_packet_ends() -> None:
    texts = [
        request(HOST, H2C, length(SMUGGLED), body=SMUGGLED, first=b"POST /one HTTP/1.1"),
        request(HOST, H2C, CHUNKED, body=chunked(SMUGGLED, 9), first=b"POST /two HTTP/1.1"),
        request(HOST, length(SMUGGLED), body=SMUGGLED, first=b"POST /three HTTP/1.1"),
    ]
    whole = b"".join(texts)
    wanted = [("/one", SMUGGLED), ("/two", SMUGGLED), ("/three", SMUGGLED)]
    for at in range(len(whole)):
        for at_once in (True, False):
            assert await heard([whole[:at], whole[at:]], at_once=at_once) == wanted
    single = [whole[at : at + 1] for at in range(len(whole))]
    assert await heard(single, at_once=True) == wanted


async def test_whatever_is_sent_in_whatever_packets_is_heard_as_it_was_meant() -> None:
    chance = random.Random(20)
    for _ in range(300):
        wanted, whole = [], b""
        for number in range(chance.randint(1, 6)):
            body = SMUGGLED * chance.randint(0, 3) + bytes(chance.choices(range(256), k=5))
            upgrade = chance.choice([b"", *UPGRADES.values()])
            first = b"POST /%d HTTP/1.1" % number
            if chance.random() < 0.5:
                sent = chunked(body, chance.randint(1, 40), chance.choice([b"", b"x: y\r\n"]))
                whole += request(HOST, upgrade, CHUNKED, body=sent, first=first)
            else:
                whole += request(HOST, upgrade, length(body), body=body, first=first)
            wanted.append((f"/{number}", body))
        cuts = sorted(chance.choices(range(len(whole)), k=chance.randint(0, 9)))
        packets = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        assert await heard([p for p in packets if p], at_once=chance.random() < 0.5) == wanted
