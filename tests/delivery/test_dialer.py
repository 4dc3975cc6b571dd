"""Dialling several addresses, and the egress proxy's setting."""

from __future__ import annotations

import asyncio
import socket
import time
from ipaddress import ip_address

import pytest

from support.waiting import in_time
from surehook.delivery import dialer
from surehook.delivery.address import Address
from surehook.delivery.dialer import STAGGER_SECONDS, AttemptFailed, _first, parse_proxy
from surehook.errors import ConfigError
from surehook.model.error_codes import ErrorCode

SILENT, REFUSING, GOOD = (ip_address(f"192.0.2.{number}") for number in (1, 2, 3))


class Network:
    """Addresses that never answer, refuse, or connect."""

    def __init__(self) -> None:
        self.tried: list[Address] = []
        self.given_up: list[Address] = []

    async def connect(self, address: Address) -> socket.socket:
        self.tried.append(address)
        if address == REFUSING:
            raise ConnectionRefusedError(111, "refused")
        if address == SILENT:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up.append(address)
        return socket.socket()


async def test_a_silent_address_is_overtaken_and_given_up() -> None:
    network = Network()
    begin = time.monotonic()
    (await in_time(_first([SILENT, GOOD], network.connect), STAGGER_SECONDS + 1)).close()
    await asyncio.sleep(0)
    assert time.monotonic() - begin >= STAGGER_SECONDS * 0.9
    assert network.given_up == [SILENT]


async def test_a_refusal_leads_to_the_next_address_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialer, "STAGGER_SECONDS", 600)
    network = Network()
    (await in_time(_first([REFUSING, REFUSING, GOOD], network.connect), 5)).close()
    assert network.tried == [REFUSING, REFUSING, GOOD]


async def test_when_all_refuse_the_connection_has_failed() -> None:
    with pytest.raises(AttemptFailed) as failure:
        await _first([REFUSING, REFUSING], Network().connect)
    assert failure.value.code is ErrorCode.CONNECT_FAILED
    assert "refused" in failure.value.detail


async def test_a_deadline_gives_up_every_address() -> None:
    network = Network()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(STAGGER_SECONDS * 1.5):
            await _first([SILENT, SILENT, SILENT], network.connect)
    await asyncio.sleep(0)
    assert network.given_up == [SILENT, SILENT]


def test_a_proxy_is_host_port_and_perhaps_a_login() -> None:
    plain = parse_proxy("http://proxy.example.test:3128")
    assert (plain.host, plain.port, plain.authorization) == ("proxy.example.test", 3128, None)
    assert parse_proxy("http://[::1]:3128/").host == "::1"
    assert parse_proxy("http://me:pw@10.0.0.1:80").authorization == "Basic bWU6cHc="


@pytest.mark.parametrize(
    "text",
    ["", "proxy:3128", "https://p:1", "socks5://p:1", "http://p", "http://p:0", "http://p:1/x"],
)
def test_another_kind_of_proxy_is_refused_in_clear_words(text: str) -> None:
    with pytest.raises(ConfigError, match="egress proxy"):
        parse_proxy(text)
