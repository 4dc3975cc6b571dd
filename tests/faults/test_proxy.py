"""The network of the fault runs: it goes silent, resets and cuts, and says how long one waited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from faults.proxy import Direction, Proxy, Streams, dialling
from support.waiting import PATIENCE, until

CLIENTS: list[asyncio.StreamWriter] = []  # of the test at hand


class Echo:
    """A server that says everything back."""

    def __init__(self) -> None:
        self.heard = b""
        self.sessions = 0
        self.ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sessions += 1
        try:
            while data := await reader.read(100):
                self.heard += data
                writer.write(data)
        except OSError:
            pass
        finally:
            self.ended += 1
            writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[tuple[Echo, int]]:
    made = Echo()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    yield made, server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
async def proxy(echo: tuple[Echo, int]) -> AsyncIterator[Proxy]:
    made = Proxy(dialling(echo[1]))
    await made.start()
    yield made
    while CLIENTS:
        CLIENTS.pop().close()
    await made.close()
    await until(lambda: echo[0].ended == echo[0].sessions)


async def dialled(proxy: Proxy) -> Streams:
    streams = await asyncio.open_connection("127.0.0.1", proxy.port)
    CLIENTS.append(streams[1])
    return streams


async def connected(proxy: Proxy) -> Streams:
    """A connection that has been used."""
    streams = await dialled(proxy)
    assert await answer(streams, b"hello") == b"hello"
    return streams


async def answer(streams: Streams, said: bytes) -> bytes:
    streams[1].write(said)
    return await asyncio.wait_for(streams[0].readexactly(len(said)), PATIENCE)


async def rest(streams: Streams) -> bytes:
    """What still comes before the end, or nothing if that is a reset."""
    try:
        return await asyncio.wait_for(streams[0].read(), PATIENCE)
    except ConnectionResetError:
        return b"reset"


async def test_what_is_said_in_a_silence_is_taken_and_goes_nowhere(
    proxy: Proxy, echo: tuple[Echo, int]
) -> None:
    client = await connected(proxy)
    (link,) = proxy.stall()
    assert link.waited(now=0.0) is None
    client[1].write(b"anyone?")
    await until(lambda: link.waits_since is not None)
    assert echo[0].heard == b"hello" and not client[0].at_eof()


async def test_a_silence_of_one_direction_lets_the_other_pass(
    proxy: Proxy, echo: tuple[Echo, int]
) -> None:
    client = await connected(proxy)
    proxy.stall(Direction.TO_CLIENT)
    client[1].write(b" there")
    await until(lambda: echo[0].heard == b"hello there")
    proxy.heal(late=True)
    assert await asyncio.wait_for(client[0].readexactly(6), PATIENCE) == b" there"


async def test_an_end_in_a_silence_is_noted_and_kept_from_the_other_side(
    proxy: Proxy, echo: tuple[Echo, int]
) -> None:
    client = await connected(proxy)
    (link,) = proxy.stall()
    client[1].write(b"x")
    await until(lambda: link.waits_since is not None)
    client[1].close()
    await until(lambda: link.given_up_at is not None)
    assert link.waits_since is not None and link.given_up_at is not None
    assert link.waited(now=1e9) == link.given_up_at - link.waits_since
    assert echo[0].ended == 0
    proxy.heal(late=True)  # what was said arrives before the end
    await until(lambda: echo[0].ended == 1)
    assert echo[0].heard == b"hellox"


async def test_what_is_not_healed_late_never_arrives(proxy: Proxy, echo: tuple[Echo, int]) -> None:
    client = await connected(proxy)
    (link,) = proxy.stall()
    client[1].write(b"x")
    await until(lambda: link.waits_since is not None)
    proxy.heal(late=False)
    assert await rest(client) == b"reset"
    await until(lambda: echo[0].ended == 1)
    assert echo[0].heard == b"hello"
    assert await answer(await connected(proxy), b"again") == b"again"


async def test_new_connections_meet_the_silence_only_if_they_are_to(
    proxy: Proxy, echo: tuple[Echo, int]
) -> None:
    proxy.stall()
    await connected(proxy)
    proxy.stall(new_ones=True)
    reader, writer = await dialled(proxy)
    writer.write(b"?")
    await until(lambda: any(link.waits_since is not None for link in proxy.links))
    assert echo[0].heard == b"hello"
    proxy.heal(late=True)
    assert await asyncio.wait_for(reader.readexactly(1), PATIENCE) == b"?"


async def test_a_reset_reaches_both_sides(proxy: Proxy, echo: tuple[Echo, int]) -> None:
    client = await connected(proxy)
    proxy.reset()
    assert await rest(client) == b"reset"
    await until(lambda: echo[0].ended == 1 and not proxy.links)


@pytest.mark.parametrize("direction", [Direction.TO_SERVER, Direction.TO_CLIENT])
async def test_of_a_message_that_is_cut_a_part_arrives_and_then_the_end(
    proxy: Proxy, echo: tuple[Echo, int], direction: Direction
) -> None:
    client = await connected(proxy)
    proxy.cut(direction, 3)
    client[1].write(b"message")
    arrived = await rest(client)
    await until(lambda: echo[0].ended == 1)
    if direction is Direction.TO_SERVER:
        assert echo[0].heard == b"hellomes"
    else:
        assert arrived == b"mes" and echo[0].heard == b"hellomessage"


async def test_a_target_where_nobody_listens_is_an_end_and_another_is_used_from_then_on(
    proxy: Proxy, echo: tuple[Echo, int]
) -> None:
    there = proxy.target

    async def nobody() -> Streams:
        raise ConnectionRefusedError

    proxy.target = nobody
    refused = await dialled(proxy)
    assert await rest(refused) in (b"", b"reset")
    proxy.target = there
    assert await answer(await connected(proxy), b"again") == b"again"
