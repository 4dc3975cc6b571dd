"""Kept connections: reused when clean, never when doubtful, and no POST is ever sent twice."""

from __future__ import annotations

import asyncio
import random
import socket
import threading

import pytest

from support.hostile import HostileServer, Peer
from support.receiver import Answer, Receiver
from support.sending import request, run, settings, started, until
from support.waiting import PATIENCE
from surehook.delivery.outcome import Outcome
from surehook.delivery.pool import PoolLimits
from surehook.model.error_codes import ErrorCode


async def test_one_connection_serves_one_request_after_the_other() -> None:
    async with Receiver() as receiver, started() as sender:
        for _ in range(20):
            assert (await sender.send(request(receiver.url))).delivered
        assert sender.idle_connections == 1
        assert (sender.opened, sender.reused) == (1, 19)
    assert receiver.connections == 1 and receiver.count == 20


async def test_requests_at_once_do_not_share_a_connection() -> None:
    async with Receiver() as receiver, started() as sender:
        receiver.script("/d", Answer(delay=0.1))
        await asyncio.gather(*(sender.send(request(receiver.url + "/d")) for _ in range(10)))
        assert sender.idle_connections == 10
    assert receiver.connections == 10


@pytest.mark.parametrize(
    "answer",
    [
        Answer(headers=(("Connection", "close"),)),
        Answer(headers=(("Keep-Alive", "timeout=1"),)),
        Answer(raw=b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"),
        Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 Forged\r\n"),
        Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n\x00"),
    ],
    ids=["close", "keep-alive of a second", "HTTP/1.0", "a forged second answer", "a stray byte"],
)
async def test_a_connection_is_not_kept_after_anything_but_a_clean_answer(answer: Answer) -> None:
    async with Receiver() as receiver, started() as sender:
        receiver.script("/x", answer)
        for _ in range(3):
            assert (await sender.send(request(receiver.url + "/x"))).delivered
            assert sender.idle_connections == 0
    assert receiver.connections == 3


def test_an_answer_forged_in_advance_is_never_taken_for_the_next_request() -> None:
    forged = b"HTTP/1.1 200 Forged\r\nContent-Length: 6\r\n\r\nforged"

    def script(peer: Peer) -> None:
        peer.read_request()
        if peer.number == 1:
            peer.answer(500)
            peer.send(forged)  # arrives when nobody has asked
        else:
            peer.answer(503, body=b"honest")
        peer.hang()

    async def scenario(server: HostileServer) -> list[Outcome]:
        async with started() as sender:
            first = await sender.send(request(server.url))
            await until(lambda: not sender.idle_connections)  # the forged bytes have arrived
            return [first, await sender.send(request(server.url))]

    with HostileServer(script) as server:
        first, second = run(scenario(server))
    assert first.response_status == 500
    assert (second.response_status, second.response_excerpt) == (503, "honest")
    assert server.posts == 2 and server.connections == 2


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("how", ["close", "reset", "speak"])
def test_a_close_that_the_loop_has_not_seen_yet_is_found_before_writing(
    how: str, loop: str
) -> None:
    go, done = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.answer()
        if peer.number == 1:
            go.wait(PATIENCE)
            if how == "reset":
                peer.reset()
            elif how == "speak":
                peer.answer(500)
            else:
                peer.sock.shutdown(socket.SHUT_RDWR)
            done.set()
        peer.hang()

    async def scenario(server: HostileServer) -> None:
        async with started() as sender:
            assert (await sender.send(request(server.url))).delivered
            assert sender.idle_connections == 1
            go.set()
            done.wait(PATIENCE)  # on purpose: the loop stands still while the endpoint closes
            second = await sender.send(request(server.url))
            assert second.delivered and second.response_status == 200

    with HostileServer(script) as server:
        run(scenario(server), loop)
    assert server.posts == 2 and server.connections == 2


async def test_no_more_connections_are_kept_than_the_limits_allow() -> None:
    # Nothing here may end by itself meanwhile, however long a busy machine takes.
    limits = PoolLimits(per_origin=2, total=3, idle_seconds=600, age_seconds=600)
    async with Receiver() as one, Receiver() as two, started(settings(pool=limits)) as sender:
        for receiver, kept in ((one, 2), (two, 3)):
            receiver.script("/d", Answer(delay=0.05))
            await asyncio.gather(*(sender.send(request(receiver.url + "/d")) for _ in range(5)))
            assert sender.idle_connections == kept


async def test_a_connection_that_stays_idle_is_ended() -> None:
    limits = PoolLimits(idle_seconds=0.3)
    async with Receiver() as receiver, started(settings(pool=limits)) as sender:
        assert (await sender.send(request(receiver.url))).delivered
        assert sender.idle_connections == 1  # nothing else has run since it was kept
        await until(lambda: not sender.idle_connections)
        await until(lambda: not receiver.open_connections)


async def test_a_connection_past_its_age_is_not_used_again() -> None:
    limits = PoolLimits(age_seconds=0.0)
    async with Receiver() as receiver, started(settings(pool=limits)) as sender:
        for _ in range(3):
            assert (await sender.send(request(receiver.url))).delivered
    assert receiver.connections == 3


WORST_MOMENTS = (
    Answer(),
    Answer(close_after=True),
    Answer(close=True),
    Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", close_after=True),
    Answer(raw=b"HTTP/1.1 20", close_after=True),
    Answer(headers=(("Connection", "close"),), close_after=True),
)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_connections_closed_at_the_worst_moments_a_thousand_times_resend_nothing(
    loop: str,
) -> None:
    """Each attempt that says `sent` may have arrived, each that does not has not; none twice."""
    rounds = 500

    async def scenario() -> None:
        dice = random.Random(7)
        async with Receiver() as receiver, started() as sender:
            script = [dice.choice(WORST_MOMENTS) for _ in range(rounds)]
            receiver.script("/w", *script)
            outcomes: list[Outcome] = []

            async def lane(number: int) -> None:
                for turn in range(rounds // 10):
                    body = f"{number}/{turn}".encode()
                    outcomes.append(await sender.send(request(receiver.url + "/w", body)))
                    if turn % 3 == 0:
                        receiver.close_connections()

            await asyncio.gather(*(lane(number) for number in range(10)))
        bodies = [received.body for received in receiver.requests]
        assert len(set(bodies)) == len(bodies), "a POST arrived twice"
        delivered = sum(outcome.delivered for outcome in outcomes)
        maybe = sum(outcome.sent for outcome in outcomes)
        assert delivered <= receiver.count <= maybe
        assert len(outcomes) == rounds
        failed = {outcome.error_code for outcome in outcomes if not outcome.delivered}
        assert failed <= {ErrorCode.PROTOCOL_ERROR, ErrorCode.TLS_FAILED, ErrorCode.CONNECT_FAILED}

    run(scenario(), loop)


def test_what_was_read_completely_arrived_exactly_as_often_as_it_was_sent() -> None:
    """Endpoints that read every request before they close: receiver's count = attempts."""
    rounds = 1000

    async def scenario() -> tuple[int, int]:
        async with Receiver() as receiver, started() as sender:
            endings = (Answer(close_after=True), Answer(), Answer(close=True))
            receiver.script("/w", *(endings[turn % 3] for turn in range(rounds)))
            outcomes = []
            for _ in range(rounds):
                outcomes.append(await sender.send(request(receiver.url + "/w")))
        return receiver.count, sum(outcome.sent for outcome in outcomes)

    arrived, sent = run(scenario())
    assert sent == rounds
    assert arrived <= sent
    # Only a close that crosses a request on the wire may keep it from arriving.
    assert arrived >= rounds * 0.9


async def test_a_cancelled_attempt_leaves_nothing_behind() -> None:
    async with Receiver() as receiver, started() as sender:
        receiver.script("/h", Answer(hang=True))
        task = asyncio.create_task(sender.send(request(receiver.url + "/h")))
        await receiver.received(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sender.idle_connections == 0
        await until(lambda: not receiver.open_connections)


async def test_closing_ends_attempts_under_way_at_once_and_truthfully() -> None:
    async with Receiver() as receiver:
        receiver.script("/h", Answer(hang=True))
        async with started() as sender:
            hanging = asyncio.create_task(sender.send(request(receiver.url + "/h")))
            await receiver.received(1)
        async with asyncio.timeout(PATIENCE):
            outcome = await hanging
        assert outcome.error_code is ErrorCode.PROTOCOL_ERROR and outcome.sent
        late = await sender.send(request(receiver.url))
        assert late.error_code is ErrorCode.CONNECT_FAILED and not late.sent
