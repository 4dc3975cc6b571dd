"""Limits: sizes, slow clients, connections, memory; headers that every answer has; draining."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support import Configure
from support.api import ADMIN_KEY, FLAGS, NewKey, OpenApi
from support.http import Client, read_reply
from support.waiting import in_time, until
from surehook.process.serve import Process
from surehook.store.logins import DatabaseAccess

EVENT = {"event_type": "a", "payload": 1}


@asynccontextmanager
async def connection(
    client: Client,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(client.host, client.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def test_every_answer_has_a_request_id_and_the_security_headers(client: Client) -> None:
    for path, status in (
        ("/v1/events", 200),
        ("/healthz", 200),
        ("/docs", 200),
        ("/nowhere", 404),
        ("/v1/events?x=1", 422),
    ):
        reply = await client.get(path, x_request_id="mine-1.2_3")
        assert (reply.status, reply.headers["x-request-id"]) == (status, "mine-1.2_3")
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert "server" not in reply.headers
        assert not [name for name in reply.headers if name.startswith("access-control")]
        if status >= 400:
            assert reply.json()["request_id"] == "mine-1.2_3"


async def test_a_request_id_that_could_mislead_is_replaced(client: Client) -> None:
    for given in ("a b", "x" * 101, 'a"b', ""):
        reply = await client.get("/healthz", x_request_id=given)
        assert reply.headers["x-request-id"] not in ("", given)


async def test_other_origins_are_not_let_in(client: Client) -> None:
    preflight = await client.ask(
        "OPTIONS",
        "/v1/events",
        headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
    )
    assert preflight.status == 405
    simple = await client.get("/v1/events", origin="https://evil.example")
    for reply in (preflight, simple):
        assert not [name for name in reply.headers if name.startswith("access-control")]


async def test_unknown_paths_and_methods_are_told(client: Client) -> None:
    assert (await client.get("/v1/nothing")).status == 404
    assert (await client.get("/v1/events/99999999999999999999")).status == 404
    assert (await client.get("/v1/events/9223372036854775808")).status == 404
    assert (await client.get("/v1/events/%31/..")).status == 404
    reply = await client.ask("PUT", "/v1/events")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, POST")
    head = await client.ask("HEAD", "/healthz")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            400,
        ),
        (b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"x: y\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 33_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * 33_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 200_000, 431),
    ],
)
async def test_what_is_no_proper_request_is_refused(
    client: Client, text: bytes, status: int
) -> None:
    async with connection(client) as (reader, writer):
        writer.write(text)
        reply = await read_reply(reader)
        assert (reply.status, reply.json()["status"]) == (status, status)
        assert reply.headers["connection"] == "close"
    assert (await client.get("/healthz")).status == 200


async def test_one_connection_serves_many_requests_also_sent_at_once(client: Client) -> None:
    async with connection(client) as (reader, writer):
        for _ in range(3):
            writer.write(client.request("POST", "/v1/events", EVENT))
            assert (await read_reply(reader)).status == 202
        writer.write(client.request("GET", "/healthz") * 5)
        assert [(await read_reply(reader)).status for _ in range(5)] == [200] * 5


async def test_a_body_is_not_read_for_a_stranger(client: Client) -> None:
    """The answer comes although the announced body never does."""
    async with connection(client) as (reader, writer):
        writer.write(
            b"POST /v1/events/batch HTTP/1.1\r\nhost: x\r\ncontent-length: 8000000\r\n\r\n"
        )
        assert (await read_reply(reader)).status == 401


async def test_who_takes_too_long_is_let_go(open_api: OpenApi) -> None:
    client = await open_api({"api.request_timeout": 0.3, "api.idle_timeout": 0.3})
    head = client.request("POST", "/v1/events", EVENT)
    for sent, status in ((b"", 408), (b"GET /healthz HT", 408), (head[:-5], 408)):
        async with connection(client) as (reader, writer):
            writer.write(sent)
            assert (await in_time(read_reply(reader), 3)).status == status
            assert await reader.read() == b""
    async with connection(client) as (reader, writer):
        writer.write(head)
        assert (await read_reply(reader)).status == 202
        assert await reader.read() == b""  # idle for too long


async def test_a_drip_of_bytes_does_not_extend_the_time(open_api: OpenApi) -> None:
    client = await open_api({"api.request_timeout": 0.5})
    async with connection(client) as (reader, writer):
        answer = asyncio.ensure_future(in_time(read_reply(reader), 3))
        writer.write(b"GET /")
        while not answer.done():
            writer.write(b"x")
            await asyncio.wait([answer], timeout=0.05)
        assert answer.result().status == 408


async def test_a_thousand_slow_clients_do_not_hurt_a_good_one(
    open_api: OpenApi,
) -> None:
    """Half have sent half a header, half have a key and send a body that never ends."""
    client = await open_api({"api.connections": 400})
    body = (
        b"POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\n"
        b"content-length: 900000\r\n\r\n{"
    )
    halves = (b"GET /v1/events HTTP/1.1\r\nauthori", body % ADMIN_KEY.encode())
    writers: list[asyncio.StreamWriter] = []

    async def attack(number: int) -> None:
        try:
            _, writer = await asyncio.open_connection(client.host, client.port)
        except OSError:
            return
        writer.write(halves[number % 2])
        writers.append(writer)

    await asyncio.gather(*(attack(number) for number in range(500)))
    await ask_often(client)
    await asyncio.gather(*(attack(number) for number in range(500)))
    assert len(writers) > 900
    await ask_often(client)
    for writer in writers:
        writer.close()


async def ask_often(client: Client) -> None:
    """Every good request is taken; the API itself refuses what it could not store in time."""
    for _ in range(20):
        assert (await client.post("/v1/events", EVENT)).status == 202


async def test_bodies_beyond_the_memory_are_refused_not_collected(open_api: OpenApi) -> None:
    client = await open_api({"api.memory": 2**20})
    async with connection(client) as (_, slow):
        half = client.request("POST", "/v1/events", {**EVENT, "payload": "x" * 1_000_000})[:-10]
        slow.write(half)
        await slow.drain()

        async def held() -> bool:
            figures = (await client.get("/metrics")).body
            return b"surehook_requests_bytes 1.000" in figures

        await until(held)
        reply = await client.post("/v1/events", {**EVENT, "payload": "y" * 200_000})
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    other = {**EVENT, "payload": "y" * 200_000}

    async def taken() -> bool:
        return (await client.post("/v1/events", other)).status == 202

    await until(taken)


async def test_a_request_under_way_is_finished_when_the_process_ends(
    configure: Configure, access: DatabaseAccess
) -> None:
    config = configure(FLAGS)
    process = Process(config, access)
    await process.open(["api"])
    work = asyncio.ensure_future(process.run())
    assert process.api is not None
    client = Client(process.api.address, ADMIN_KEY)
    request = client.request("POST", "/v1/events", EVENT)
    async with connection(client) as (reader, writer):
        writer.write(request[:-1])
        assert (await client.get("/healthz")).status == 200
        process.stop()
        await until(lambda: not process.api or not process.api.accepting)
        writer.write(request[-1:])
        reply = await read_reply(reader)
        assert (reply.status, reply.headers["connection"]) == (202, "close")
    await work
    with pytest.raises(OSError):
        await client.get("/healthz")


async def test_a_taken_address_is_one_clear_line(
    configure: Configure, access: DatabaseAccess, client: Client, new_key: NewKey
) -> None:
    config = configure({**FLAGS, "api.listen": f"{client.host}:{client.port}"})
    process = Process(config, access)
    try:
        with pytest.raises(Exception, match="cannot listen on"):
            await process.open(["api"])
    finally:
        await process.close()
