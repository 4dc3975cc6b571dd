"""Answers that nobody asked for yet: behind an answer, amid a request, with the handshake. None of
them is ever taken for the answer to a request that was not complete when it arrived."""

from __future__ import annotations

import asyncio
import threading

import pytest

from support.hostile import Gone, HostileServer, Peer, Script
from support.receiver import Answer, Receiver
from support.records import HANDSHAKE, PAYLOAD, TICKET, Records
from support.sending import request, run, started
from support.waiting import PATIENCE
from surehook.delivery.outcome import Outcome
from surehook.model.error_codes import ErrorCode

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
HONEST = b"HTTP/1.1 503 X\r\nContent-Length: 6\r\n\r\nhonest"
FORGED = b"HTTP/1.1 200 Forged\r\nContent-Length: 6\r\n\r\nforged"
LARGE = b"x" * 9_000_000 + b"the end"
"""More than the kernel's buffers take on both ends: not written before the endpoint reads it."""

delays = pytest.mark.parametrize("delay", [0.0, 0.001, 0.05, 0.5], ids="{}".format)
loops = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


# --- Behind an answer ----------------------------------------------------------------------------


@delays
@pytest.mark.parametrize("status", [302, 404, 429, 500])
def test_a_200_forged_behind_a_failure_delivers_nothing(status: int, delay: float) -> None:
    def script(peer: Peer) -> None:
        while True:
            peer.read_request()
            peer.answer(status)
            if peer.server.over.wait(delay):
                raise Gone
            peer.send(FORGED)

    async def scenario(server: HostileServer) -> list[Outcome]:
        async with started() as sender:

            async def lane() -> list[Outcome]:
                return [await sender.send(request(server.url)) for _ in range(8)]

            lanes = await asyncio.gather(lane(), lane(), lane())
            return [outcome for outcomes in lanes for outcome in outcomes]

    with HostileServer(script) as server:
        outcomes = run(scenario(server))
    assert {outcome.response_status for outcome in outcomes} == {status}
    assert server.connections == server.posts == len(outcomes) == 24


@delays
@pytest.mark.parametrize(
    ("seen", "loop"), [(False, "uvloop"), (True, "uvloop"), (True, "asyncio")], ids="{}".format
)
@pytest.mark.parametrize("size", [None, 3, 5, 40], ids=["whole", "3 bytes", "5 bytes", "40 bytes"])
def test_what_is_forged_behind_a_200_is_not_the_answer_to_the_next_request(
    size: int | None, seen: bool, delay: float, loop: str
) -> None:
    """Also a part of its TLS record, the rest of which comes when the next request is there."""
    forged = threading.Event()

    def script(peer: Peer) -> None:
        records = Records(peer)
        records.read_request()
        if peer.number == 1:
            records.send((PAYLOAD, OK))
            peer.server.over.wait(delay)
            record = records.sealed((PAYLOAD, FORGED))
            peer.send(record[:size])
            forged.set()
            records.read_request()
            peer.send(record[len(record[:size]) :])
        else:
            records.send((PAYLOAD, HONEST))
        peer.hang()

    async def scenario(server: HostileServer) -> Outcome:
        async with started() as sender:
            assert (await sender.send(request(server.url, b"{}"))).delivered
            if seen:  # the loop goes on, and reads what has come
                await asyncio.to_thread(forged.wait, 30)
                for _ in range(10):
                    await asyncio.sleep(0.001)
            else:  # on purpose: the loop stands still
                forged.wait(PATIENCE)
            return await sender.send(request(server.url, b"{}"))

    with HostileServer(script, plain=True) as server:
        outcome = run(scenario(server), loop)
    assert (outcome.response_status, outcome.response_excerpt) == (503, "honest")
    assert server.connections == server.posts == 2


@loops
def test_a_ticket_in_two_parts_behind_an_answer_is_waited_for_by_nobody(loop: str) -> None:
    """Half a record may be anything: the next request goes another way."""
    begun, ended = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        records = Records(peer)
        while True:
            records.read_request()
            ticket = records.sealed((PAYLOAD, OK), (HANDSHAKE, TICKET))
            peer.send(ticket[:-9])
            begun.set()
            if peer.number == 2:
                peer.send(ticket[-9:])
                ended.set()

    async def scenario(server: HostileServer) -> None:
        async with started() as sender:
            assert (await sender.send(request(server.url, b"{}"))).delivered
            begun.wait(PATIENCE)
            assert (await sender.send(request(server.url, b"{}"))).delivered
            assert server.connections == 2
            ended.wait(PATIENCE)

    with HostileServer(script, plain=True) as server:
        run(scenario(server), loop)


async def test_a_failure_ends_the_connection_and_a_success_keeps_it() -> None:
    statuses = [200, 204, 500, 201, 410, 299, 302, 200]
    async with Receiver() as receiver, started() as sender:
        receiver.script("/s", *(Answer(status) for status in statuses))
        for status in statuses:
            outcome = await sender.send(request(receiver.url + "/s"))
            assert outcome.response_status == status
            assert sender.idle_connections == int(outcome.delivered)
    assert receiver.connections == 4


# --- Amid a request ------------------------------------------------------------------------------


def amid(answer: bytes, *, used: bool, then: Script = Peer.hang) -> HostileServer:
    """An endpoint that reads the beginning of a large request and answers; if `used`, it has taken
    a small one before, on the same connection, as it should."""

    def script(peer: Peer) -> None:
        if used:
            peer.read_request()
            peer.answer()
        peer.read(100)
        peer.send(answer)
        then(peer)

    return HostileServer(script)


def read_the_rest(peer: Peer) -> None:
    """To the end of the large body; then take it."""
    while not peer.read().endswith(b"the end"):
        pass
    peer.answer()
    peer.hang()


async def large(server: HostileServer, *, used: bool, deadline: float = PATIENCE) -> Outcome:
    async with started() as sender:
        if used:
            assert (await sender.send(request(server.url, b"{}"))).delivered
            assert sender.idle_connections == 1
        outcome = await sender.send(request(server.url, LARGE, deadline=deadline))
        assert sender.idle_connections == 0
    assert server.connections == 1
    return outcome


used_or_not = pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])


@loops
@used_or_not
@pytest.mark.parametrize("status", [200, 204, 299])
def test_a_success_told_before_the_request_is_complete_is_none(
    status: int, used: bool, loop: str
) -> None:
    answer = f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode()
    with amid(answer, used=used) as server:
        outcome = run(large(server, used=used), loop)
    assert outcome.error_code is ErrorCode.PROTOCOL_ERROR and outcome.sent
    assert outcome.response_status is None
    assert outcome.failure_detail == f"it answered {status} before the request was complete"


@loops
def test_a_refusal_amid_the_request_counts_on_a_fresh_connection(loop: str) -> None:
    with amid(HONEST, used=False) as server:
        outcome = run(large(server, used=False), loop)
    assert (outcome.response_status, outcome.error_code) == (503, ErrorCode.HTTP_5XX)


@loops
def test_a_refusal_amid_the_request_may_be_for_another_on_a_used_one(loop: str) -> None:
    """A late 410 to the request before must not make this delivery a dead letter."""
    gone = b"HTTP/1.1 410 X\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\ngone"
    with amid(gone, used=True) as server:
        outcome = run(large(server, used=True), loop)
    assert outcome.error_code is ErrorCode.PROTOCOL_ERROR and outcome.response_status is None
    assert outcome.retry_after_seconds is None
    assert outcome.failure_detail == "it answered 410 before the request was complete"


@loops
@used_or_not
def test_an_interim_answer_amid_the_request_is_no_answer_and_costs_the_connection(
    used: bool, loop: str
) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    with amid(interim, used=used, then=read_the_rest) as server:
        outcome = run(large(server, used=used), loop)
    assert outcome.delivered and outcome.response_status == 200


@loops
def test_half_a_record_amid_the_request_holds_back_its_last_piece(loop: str) -> None:
    """Else its other half could answer a request that was not there when it was forged."""

    def script(peer: Peer) -> None:
        records = Records(peer)
        records.read()
        record = records.sealed((PAYLOAD, FORGED))
        peer.send(record[:40])
        records.read_request(LARGE)
        peer.send(record[40:])
        peer.hang()

    with HostileServer(script, plain=True) as server:
        outcome = run(large(server, used=False, deadline=2.0), loop)
    assert outcome.error_code is ErrorCode.TIMEOUT
    assert server.posts == 0, "the request was complete"


@loops
@pytest.mark.parametrize("forged", [False, True], ids=["a ticket", "a forged answer"])
def test_a_record_in_two_parts_amid_the_request_is_read_for_what_it_is(
    forged: bool, loop: str
) -> None:
    def script(peer: Peer) -> None:
        records = Records(peer)
        records.read()
        record = records.sealed((PAYLOAD, FORGED) if forged else (HANDSHAKE, TICKET))
        peer.send(record[:20])
        records.read()
        peer.send(record[20:])
        records.read_request(LARGE)
        records.send((PAYLOAD, OK))
        peer.hang()

    async def scenario(server: HostileServer) -> Outcome:
        async with started() as sender:
            return await sender.send(request(server.url, LARGE))

    with HostileServer(script, plain=True) as server:
        outcome = run(scenario(server), loop)
    assert outcome.delivered is not forged
    if forged:
        assert outcome.failure_detail == "it answered 200 before the request was complete"


# --- With the handshake --------------------------------------------------------------------------


@loops
def test_a_success_that_comes_with_the_handshake_is_none(loop: str) -> None:
    def script(peer: Peer) -> None:
        Records(peer, (HANDSHAKE, TICKET), (PAYLOAD, OK))
        peer.hang()

    async def scenario(server: HostileServer) -> Outcome:
        async with started() as sender:
            return await sender.send(request(server.url, b"{}"))

    with HostileServer(script, plain=True) as server:
        outcome = run(scenario(server), loop)
    assert outcome.error_code is ErrorCode.PROTOCOL_ERROR and outcome.response_status is None
