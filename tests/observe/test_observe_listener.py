"""The small listener for health and figures: what it answers, and what a stranger can cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.http import Client
from surehook.errors import Unreachable
from surehook.observe import listener
from surehook.observe.listener import HEAD_BYTES_MAX, Listener, Page


async def hello() -> Page:
    return Page(200, b'{"status":"ok"}')


@pytest.fixture
async def listening() -> AsyncIterator[Listener]:
    one = Listener("127.0.0.1:0")
    await one.start({"/healthz": hello})
    yield one
    await one.close()


async def raw(one: Listener, request: bytes) -> bytes:
    host, _, port = one.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_a_page_is_answered_and_the_connection_closed(listening: Listener) -> None:
    client = Client(listening.address)
    reply = await client.get("/healthz?x=1")
    assert (reply.status, reply.json()) == (200, {"status": "ok"})
    assert reply.headers["connection"] == "close"
    assert (await client.get("/v1/events")).status == 404
    assert (await client.post("/healthz", {})).status == 405
    head = await raw(listening, b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK") and head.endswith(b"\r\n\r\n")


async def test_what_follows_a_request_is_never_taken_for_another(listening: Listener) -> None:
    two = b"GET /healthz HTTP/1.1\r\ncontent-length: 0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"
    assert (await raw(listening, two)).count(b"HTTP/1.1 200") == 1


async def test_what_is_no_request_gets_no_page(
    listening: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await raw(listening, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400")
    assert await raw(listening, b"GET /" + b"x" * 2 * HEAD_BYTES_MAX) == b""
    monkeypatch.setattr(listener, "SECONDS_MAX", 0.05)
    assert await raw(listening, b"GET /healthz HTTP/1.1\r\n") == b""


async def test_the_number_of_connections_is_bounded(
    listening: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 0)
    assert await raw(listening, b"GET /healthz HTTP/1.1\r\n\r\n") == b""
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 1)
    assert (await Client(listening.address).get("/healthz")).status == 200


async def test_an_address_that_is_taken_is_refused_in_one_line(listening: Listener) -> None:
    with pytest.raises(Unreachable, match="SUREHOOK_OBSERVE_LISTEN") as refused:
        Listener(listening.address)
    assert listening.address in str(refused.value) and "\n" not in str(refused.value)
