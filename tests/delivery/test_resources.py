"""Hostile endpoints at once: memory, descriptors and time stay bounded."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import tracemalloc
from pathlib import Path

import pytest

from support.hostile import HostileServer, Peer
from support.receiver import Answer, Receiver
from support.sending import request, run, settings, started
from support.waiting import in_time
from surehook.delivery.outcome import Outcome
from surehook.model.error_codes import ErrorCode


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 — counts, no paths needed


def endless(peer: Peer) -> None:
    peer.read_request()
    peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
    peer.flood(b"x" * 16_384)


def slow_and_endless(peer: Peer) -> None:
    peer.read_request()
    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    peer.drip(b"1\r\nx\r\n")


@pytest.mark.parametrize(
    ("script", "code", "deadline"),
    [(endless, ErrorCode.RESPONSE_TOO_LARGE, 60.0), (slow_and_endless, ErrorCode.TIMEOUT, 3.0)],
)
def test_fifty_endless_bodies_at_once_need_little_memory_and_are_let_go(
    script: object, code: ErrorCode, deadline: float
) -> None:
    async def round_of_fifty(server: HostileServer) -> list[Outcome]:
        async with started() as sender:
            sends = (sender.send(request(server.url, deadline=deadline)) for _ in range(50))
            outcomes = await in_time(asyncio.gather(*sends), deadline + 1.0)
            assert await asyncio.to_thread(server.released)
        return outcomes

    assert callable(script)
    with HostileServer(script) as server:
        gc.collect()
        before = resident_bytes()
        outcomes = run(round_of_fifty(server))
        growth = resident_bytes() - before
    assert {outcome.error_code for outcome in outcomes} == {code}
    assert growth <= 50e6, f"{growth / 1e6:.0f} MB"
    assert server.posts == 50


def test_descriptors_are_given_back_whatever_happened() -> None:
    """After failures of every kind, on one sender, none is left."""

    async def scenario(mute: HostileServer, cut: HostileServer) -> tuple[int, int]:
        async with Receiver() as receiver, started() as sender:
            receiver.script("/h", Answer(hang=True))
            receiver.script("/c", Answer(close=True))

            async def everything() -> None:
                urls = [mute.url, cut.url, receiver.url + "/h", receiver.url + "/c"]
                urls += ["https://127.0.0.1:9/", "https://10.0.0.1/", "https://no.example.test/"]
                await asyncio.gather(*(sender.send(request(url, deadline=0.3)) for url in urls * 5))
                receiver.close_connections()
                await asyncio.to_thread(mute.released, 2.0)
                await asyncio.to_thread(cut.released, 2.0)

            await everything()
            before = descriptors()
            for _ in range(3):
                await everything()
            return before, descriptors()

    with (
        HostileServer(Peer.hang, plain=True) as mute,
        HostileServer(lambda peer: peer.sock.close(), plain=True) as cut,
    ):
        before, after = run(scenario(mute, cut))
    assert after <= before + 2


def test_a_kept_connection_does_not_keep_what_was_sent_over_it() -> None:
    count, size = 20, 1 << 20

    async def scenario() -> int:
        async with Receiver(record=False) as receiver, started() as sender:
            receiver.script("/d", Answer(delay=0.2))

            async def post() -> None:
                body = b"x" * size
                assert (await sender.send(request(receiver.url + "/d", body, 30))).delivered

            tracemalloc.start()
            try:
                await asyncio.gather(*(post() for _ in range(count)))
                assert sender.idle_connections == count
                gc.collect()
                return tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()

    kept = run(scenario())
    assert kept < count * size / 2, f"{kept / 1e6:.0f} MB"


def test_many_connections_at_once() -> None:
    count = 600  # bench/sender.py opens 2,000

    async def scenario() -> None:
        async with Receiver(record=False) as receiver, started(settings()) as sender:
            receiver.script("/d", Answer(delay=2.0))
            outcomes = await asyncio.gather(
                *(sender.send(request(receiver.url + "/d")) for _ in range(count))
            )
            assert all(outcome.delivered for outcome in outcomes)
            assert receiver.connections == receiver.count == count

    run(scenario())
