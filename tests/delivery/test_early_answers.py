"""Answers that come before the request has left: told as they are, also when writing fails."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from support import certificates
from support.hostile import HostileServer, Peer
from support.sending import run
from support.waiting import PATIENCE
from surehook.delivery.connection import Connection
from surehook.delivery.dialer import tls_context
from surehook.delivery.outcome import Outcome
from surehook.delivery.tls import TlsSocket
from surehook.model.error_codes import ErrorCode


async def connected(server: HostileServer) -> Connection:
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, ("127.0.0.1", server.port))
    tls = TlsSocket(tls_context(str(certificates.ca_file())), sock, "127.0.0.1")
    await tls.shake_hands()
    return Connection(loop, ("127.0.0.1", server.port), tls)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_refusal_is_told_although_the_endpoint_then_reset_the_connection(loop: str) -> None:
    """It refuses, and closes with the request unread: the kernel answers the rest with a reset."""
    gone = threading.Event()

    def script(peer: Peer) -> None:
        peer.answer(410, body=b"gone for good")
        peer.reset()
        gone.set()

    async def scenario(server: HostileServer) -> Outcome:
        connection = await connected(server)
        gone.wait(PATIENCE)  # on purpose: the loop stands still, so that writing comes first
        async with asyncio.timeout(PATIENCE):
            outcome = await connection.exchange(b"POST / HTTP/1.1\r\n\r\n", 0.0)
        assert not connection.reusable
        connection.abort()
        return outcome

    with HostileServer(script) as server:
        outcome = run(scenario(server), loop)
    assert (outcome.response_status, outcome.error_code) == (410, ErrorCode.GONE)
    assert outcome.response_excerpt == "gone for good"


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_success_that_was_there_before_the_request_is_none(loop: str) -> None:
    """The endpoint speaks first, in the moment between the handshake and our first byte."""
    spoken = threading.Event()

    def script(peer: Peer) -> None:
        peer.answer(200, body=b"whatever it is")
        spoken.set()
        peer.hang()

    async def scenario(server: HostileServer) -> Outcome:
        connection = await connected(server)
        spoken.wait(PATIENCE)  # on purpose: the loop stands still
        async with asyncio.timeout(PATIENCE):
            outcome = await connection.exchange(b"POST / HTTP/1.1\r\n\r\n", 0.0)
        connection.abort()
        return outcome

    with HostileServer(script) as server:
        outcome = run(scenario(server), loop)
    assert (outcome.response_status, outcome.error_code) == (None, ErrorCode.PROTOCOL_ERROR)
    assert server.bytes_seen == 0
