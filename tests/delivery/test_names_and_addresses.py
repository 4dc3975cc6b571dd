"""Names and addresses on the wire: the address that was checked is the one that is dialled."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from support.dns import NameServer
from support.hostile import HostileServer, Peer
from support.receiver import Answer, Receiver
from support.sending import request, run, settings, started
from support.waiting import PATIENCE, in_time
from surehook.delivery import dialer
from surehook.delivery.address import Address
from surehook.delivery.resolver import NameNotResolved, Resolver
from surehook.model.error_codes import ErrorCode

INNER = """
127.0.0.1 127.0.0.53 10.0.0.1 10.255.255.53 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1
100.100.100.200 0.0.0.0 192.0.0.192 168.63.129.16 224.0.0.1 255.255.255.255 198.18.0.1
[::1] [::] [::ffff:127.0.0.1] [::ffff:169.254.169.254] [::127.0.0.1] [64:ff9b::7f00:1]
[64:ff9b::a9fe:a9fe] [2002:7f00:1::] [2001:0:7f00:1::] [fe80::1] [fc00::1] [fd00:ec2::254]
[fec0::1] [ff02::1] [::ffff:0:7f00:1] [2001:db8::1] [2606:4700::5efe:7f00:1]
"""


@pytest.mark.parametrize("host", INNER.split())
async def test_an_inner_address_in_a_url_is_never_dialled(host: str) -> None:
    async with Receiver() as receiver, started(settings(allow_networks=())) as sender:
        outcome = await sender.send(request(f"https://{host}:{receiver.port}/"))
    assert outcome.error_code is ErrorCode.BLOCKED_ADDRESS and not outcome.sent
    assert receiver.connections == 0


@pytest.mark.parametrize("address", [text.strip("[]") for text in INNER.split()])
async def test_a_name_that_leads_inside_is_never_dialled(address: str) -> None:
    async with NameServer() as names, Receiver() as receiver:
        names.answer("a.example.test", [address])
        given = settings(allow_networks=(), name_servers=(names.address,))
        async with started(given) as sender:
            outcome = await sender.send(request(f"https://a.example.test:{receiver.port}/"))
    assert outcome.error_code is ErrorCode.BLOCKED_ADDRESS
    assert receiver.connections == 0


async def test_localhost_is_blocked_without_an_allow_list() -> None:
    async with Receiver() as receiver, started(settings(allow_networks=())) as sender:
        outcome = await sender.send(request(f"https://localhost:{receiver.port}/"))
    assert outcome.error_code is ErrorCode.BLOCKED_ADDRESS and receiver.connections == 0


async def test_a_name_that_changes_its_answer_leads_nowhere() -> None:
    """Allowed first, forbidden then: each connection is checked by the address it will have."""
    async with NameServer() as names, Receiver() as receiver:
        names.answer("a.example.test", ["127.0.0.1"], ["127.0.0.2"])
        given = settings(allow_networks=("127.0.0.1/32",), name_servers=(names.address,))
        async with started(given) as sender:
            sender._resolver._min_ttl = 0.0
            receiver.script("/x", Answer(headers=(("Connection", "close"),)))
            url = f"https://a.example.test:{receiver.port}/x"
            first = await sender.send(request(url))
            second = await sender.send(request(url))
    assert first.delivered
    assert second.error_code is ErrorCode.BLOCKED_ADDRESS
    assert receiver.connections == 1


async def test_of_a_mixed_answer_only_what_is_allowed_is_dialled() -> None:
    dialled: list[str] = []
    original = dialer._tcp

    async def recording(address: Address, port: int) -> object:
        dialled.append(str(address))
        return await original(address, port)

    async with NameServer() as names, Receiver() as receiver:
        names.answer("a.example.test", ["10.0.0.1", "127.0.0.1", "::1", "169.254.169.254"])
        given = settings(allow_networks=("127.0.0.1/32",), name_servers=(names.address,))
        async with started(given) as sender:
            with patch.object(dialer, "_tcp", recording):
                outcome = await sender.send(request(f"https://a.example.test:{receiver.port}/"))
    assert outcome.delivered and dialled == ["127.0.0.1"]


async def test_the_next_address_is_tried_when_one_refuses_or_is_silent() -> None:
    async with NameServer() as names, Receiver() as receiver:
        names.answer("a.example.test", ["::1", "127.0.0.9", "127.0.0.8", "127.0.0.1"])
        async with started(settings(name_servers=(names.address,))) as sender:
            outcome = await sender.send(request(f"https://a.example.test:{receiver.port}/"))
    assert outcome.delivered and receiver.count == 1


async def test_ipv6_is_spoken() -> None:
    async with Receiver(host="::1") as receiver, started() as sender:
        outcome = await sender.send(request(receiver.url))
    assert outcome.delivered
    assert receiver.requests[0].headers["host"] == f"[::1]:{receiver.port}"


@pytest.mark.parametrize("kind", ["failing", "missing", "empty"])
async def test_a_name_without_an_address_fails_by_its_code(kind: str) -> None:
    async with NameServer() as names:
        if kind == "failing":
            names.failing("a.example.test")
        if kind == "empty":
            names.answer("a.example.test", [])
        async with started(settings(name_servers=(names.address,))) as sender:
            outcome = await sender.send(request("https://a.example.test/"))
    assert outcome.error_code is ErrorCode.DNS_FAILED and not outcome.sent


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_silent_name_server_delays_nobody_else_and_no_shutdown(loop: str) -> None:
    async def scenario() -> None:
        async with NameServer() as names, Receiver() as receiver:
            names.silent("dead.example.test")
            names.answer("live.example.test", ["127.0.0.1"])
            async with started(settings(name_servers=(names.address,))) as sender:
                url = f"https://dead.example.test:{receiver.port}/"
                dead = [sender.send(request(url, deadline=1.5)) for _ in range(40)]
                outcomes = await in_time(asyncio.gather(*dead), 2.5)
                assert {each.error_code for each in outcomes} == {ErrorCode.TIMEOUT}
                assert names.questions["dead.example.test"] < 20  # one lookup, not forty
                waiting = [asyncio.create_task(sender.send(request(url))) for _ in range(40)]
                live = f"https://live.example.test:{receiver.port}/"
                for _ in range(20):
                    assert (await sender.send(request(live))).delivered
                await in_time(sender.close(), 5.0)
                ended = await in_time(asyncio.gather(*waiting), 5.0)
                assert not any(outcome.delivered for outcome in ended)

    run(scenario(), loop)


async def test_a_dead_name_is_remembered_for_a_moment() -> None:
    async with NameServer() as names:
        resolver = Resolver([names.address])
        resolver.start()
        for _ in range(5):
            with pytest.raises(NameNotResolved):
                await resolver.resolve("nobody.example.test")
        resolver.close()
    assert names.questions["nobody.example.test"] == 2  # IPv4 and IPv6, once


async def test_many_names_at_once_are_all_resolved() -> None:
    async with NameServer(ttl=60) as names:
        names.answer_everything(["127.0.0.1"])
        resolver = Resolver([names.address])
        resolver.start()
        hosts = [f"h{number}.example.test" for number in range(500)]
        found = await asyncio.gather(*(resolver.resolve(host) for host in hosts))
        resolver.close()
    assert all(addresses for addresses in found)


async def test_one_family_that_is_not_answered_holds_up_nothing() -> None:
    async with NameServer() as names:
        names.answer("a.example.test", ["127.0.0.1"])
        names.silent_for_ipv6 = True
        resolver = Resolver([names.address])
        resolver.start()
        assert len(await in_time(resolver.resolve("a.example.test"), 0.5)) == 1
        resolver.close()


def tunnel(target: list[bytes], refuse: bytes = b"") -> HostileServer:
    """A proxy that grants one CONNECT and then pumps bytes, or refuses."""
    import socket
    import threading

    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def script(peer: Peer) -> None:
        head = peer.read_head()
        target.append(head)
        if refuse:
            peer.send(refuse)
            peer.hang()
        host, _, port = head.split(b" ")[1].decode().rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port))) as onward:
            peer.send(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n")
            back = threading.Thread(target=pump, args=(onward, peer.sock), daemon=True)
            back.start()
            pump(peer.sock, onward)
            back.join(PATIENCE)

    return HostileServer(script, plain=True)


def test_an_egress_proxy_is_told_the_checked_address() -> None:
    async def scenario(proxy: HostileServer) -> None:
        given = settings(proxy=f"http://me:pw@127.0.0.1:{proxy.port}")
        async with NameServer() as names, Receiver() as receiver:
            names.answer("a.example.test", ["127.0.0.1"])
            async with started(
                settings(proxy=given.proxy, name_servers=(names.address,))
            ) as sender:
                for _ in range(2):
                    url = f"https://a.example.test:{receiver.port}/"
                    assert (await sender.send(request(url))).delivered
            assert heads[0].startswith(f"CONNECT 127.0.0.1:{receiver.port} HTTP/1.1".encode())

    heads: list[bytes] = []
    with tunnel(heads) as proxy:
        run(scenario(proxy))
    assert b"proxy-authorization: Basic bWU6cHc=\r\n" in heads[0] and len(heads) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 403 Forbidden\r\n\r\n",
        b"HTTP/1.1 407 Login\r\nProxy-Authenticate: Basic\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nEARLY",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 4000,
    ],
)
def test_a_proxy_that_refuses_is_a_failed_connection(answer: bytes) -> None:
    async def scenario(proxy: HostileServer) -> None:
        given = settings(proxy=f"http://127.0.0.1:{proxy.port}")
        async with started(given) as sender:
            outcome = await sender.send(request("https://127.0.0.1:9/"))
        assert outcome.error_code is ErrorCode.CONNECT_FAILED and not outcome.sent

    with tunnel([], refuse=answer) as proxy:
        run(scenario(proxy))


def test_a_proxy_does_not_lead_around_the_guard() -> None:
    async def scenario(proxy: HostileServer) -> None:
        given = settings(proxy=f"http://127.0.0.1:{proxy.port}", allow_networks=())
        async with started(given) as sender:
            outcome = await sender.send(request("https://10.0.0.1/"))
        assert outcome.error_code is ErrorCode.BLOCKED_ADDRESS

    with tunnel([]) as proxy:
        run(scenario(proxy))
    assert proxy.connections == 0
