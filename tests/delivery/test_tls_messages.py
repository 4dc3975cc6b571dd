"""TLS's own messages: tickets, key updates and goodbyes at any moment, also without end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from support.hostile import HostileServer, Peer
from support.receiver import Receiver
from support.records import (
    ALERT,
    CLOSE_NOTIFY,
    HANDSHAKE,
    KEY_UPDATE_REQUESTED,
    PAYLOAD,
    TICKET,
    Record,
    Records,
)
from support.sending import request, run, started, until
from support.waiting import PATIENCE
from surehook.delivery.outcome import Outcome
from surehook.model.error_codes import ErrorCode

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
FLOOD_RECORDS = 700
"""Eleven megabytes: whoever reads them all is busy for seconds."""

loops = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


def flood(records: Records, peer: Peer) -> None:
    pieces = [records.sealed((HANDSHAKE, TICKET * 900)) for _ in range(FLOOD_RECORDS)]
    for piece in pieces:
        peer.send(piece)
    peer.hang()


@loops
def test_an_endpoint_that_sends_tickets_without_end_holds_up_nobody(loop: str) -> None:
    def script(peer: Peer) -> None:
        records = Records(peer)
        records.read_request()
        flood(records, peer)

    async def scenario(server: HostileServer) -> tuple[Outcome, int]:
        async with Receiver() as receiver, started() as sender:
            assert (await sender.send(request(receiver.url))).delivered
            flooded = asyncio.create_task(sender.send(request(server.url, b"{}")))
            others = 0
            while not flooded.done():
                assert (await sender.send(request(receiver.url))).delivered
                others += not flooded.done()
            assert await asyncio.to_thread(server.released)
            return await flooded, others

    with HostileServer(script, plain=True) as server:
        outcome, others = run(scenario(server), loop)
    assert outcome.error_code is ErrorCode.PROTOCOL_ERROR and outcome.sent
    assert server.posts == 1
    assert others >= 5, "other deliveries had to wait"


@loops
def test_an_endpoint_whose_handshake_has_no_end_holds_up_nobody(loop: str) -> None:
    hello_requests = b"\x16\x03\x03\x40\x00" + b"\x00" * 0x4000

    def script(peer: Peer) -> None:
        peer.read()
        for _ in range(40_000):
            peer.send(hello_requests)
        peer.hang()

    async def scenario(server: HostileServer) -> Outcome:
        async with started() as sender:
            return await sender.send(request(server.url))

    with HostileServer(script, plain=True) as server:
        outcome = run(scenario(server), loop)
    assert outcome.error_code is ErrorCode.TLS_FAILED and not outcome.sent


@loops
def test_tickets_without_end_finish_an_idle_connection(loop: str) -> None:
    go = threading.Event()

    def script(peer: Peer) -> None:
        records = Records(peer)
        records.read_request()
        records.send((PAYLOAD, OK))
        go.wait(PATIENCE)
        flood(records, peer)

    async def scenario(server: HostileServer) -> None:
        async with started() as sender:
            assert (await sender.send(request(server.url, b"{}"))).delivered
            assert sender.idle_connections == 1
            go.set()
            await until(lambda: not sender.idle_connections)
            assert await asyncio.to_thread(server.released)

    with HostileServer(script, plain=True) as server:
        run(scenario(server), loop)


@loops
@pytest.mark.parametrize(
    "messages",
    [
        [(HANDSHAKE, TICKET)],
        [(HANDSHAKE, KEY_UPDATE_REQUESTED)],
        [(HANDSHAKE, TICKET * 4), (HANDSHAKE, KEY_UPDATE_REQUESTED), (HANDSHAKE, TICKET)],
    ],
    ids=["a ticket", "a key update", "both"],
)
def test_a_connection_stays_usable_after_messages_of_tls_behind_an_answer(
    messages: list[Record], loop: str
) -> None:
    def script(peer: Peer) -> None:
        records = Records(peer)
        while True:
            records.read_request()
            records.send((PAYLOAD, OK), *messages)

    async def scenario(server: HostileServer) -> None:
        async with started() as sender:
            for _ in range(3):
                assert (await sender.send(request(server.url, b"{}"))).delivered
                assert sender.idle_connections == 1

    with HostileServer(script, plain=True) as server:
        run(scenario(server), loop)
    assert server.connections == 1 and server.posts == 3


@loops
@pytest.mark.parametrize(
    "behind",
    [(ALERT, CLOSE_NOTIFY), (PAYLOAD, b"HTTP/1.1 200 Forged\r\n"), (PAYLOAD, b"\r\n")],
    ids=["a goodbye", "a forged answer", "a line break"],
)
def test_a_record_behind_the_answer_ends_the_connection(behind: Record, loop: str) -> None:
    def script(peer: Peer) -> None:
        records = Records(peer)
        records.read_request()
        records.send((PAYLOAD, OK), behind)
        peer.hang()

    async def scenario(server: HostileServer) -> None:
        async with started() as sender:
            for _ in range(3):
                assert (await sender.send(request(server.url, b"{}"))).delivered
                assert sender.idle_connections == 0

    with HostileServer(script, plain=True) as server:
        run(scenario(server), loop)
    assert server.connections == 3 and server.posts == 3


@loops
def test_a_ticket_that_comes_with_the_handshake_is_no_answer(loop: str) -> None:
    def script(peer: Peer) -> None:
        records = Records(peer, (HANDSHAKE, TICKET))
        for _ in range(2):
            records.read_request()
            records.send((PAYLOAD, OK))
        peer.hang()

    async def scenario(server: HostileServer) -> None:
        async with started() as sender:
            for _ in range(2):
                assert (await sender.send(request(server.url, b"{}"))).delivered

    with HostileServer(script, plain=True) as server:
        run(scenario(server), loop)
    assert server.connections == 1 and server.posts == 2


@loops
def test_an_answer_that_comes_with_the_handshake_is_read_at_once(loop: str) -> None:
    """TLS lets a server speak before the client has: it refuses whoever comes."""
    refusal = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    def script(peer: Peer) -> None:
        Records(peer, (HANDSHAKE, TICKET), (PAYLOAD, refusal))
        peer.hang()

    async def scenario(server: HostileServer) -> Outcome:
        async with started() as sender:
            return await sender.send(request(server.url, b"{}"))

    with HostileServer(script, plain=True) as server:
        outcome = run(scenario(server), loop)
    assert outcome.response_status == 503
