"""The address guard, address by address."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehook.delivery.address import AddressGuard, parse_networks, without_addresses
from surehook.errors import ConfigError

_REFUSED = """
0.0.0.0 0.0.0.1 0.255.255.255 10.0.0.0 10.0.0.1 10.255.255.255 100.64.0.0 100.64.0.1
100.100.100.200 100.127.255.255 127.0.0.0 127.0.0.1 127.0.0.53 127.1.2.3 127.255.255.255
168.63.129.16 169.254.0.1 169.254.0.23 169.254.169.253 169.254.169.254 169.254.170.2
169.254.255.255 172.16.0.0 172.16.0.1 172.17.0.1 172.31.255.255 192.0.0.1 192.0.0.8 192.0.0.170
192.0.0.192 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1 192.88.99.2 192.168.0.1
192.168.255.255 192.175.48.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1
224.0.0.251 239.255.255.250 239.255.255.255 240.0.0.1 250.1.2.3 255.255.255.254 255.255.255.255
:: ::1 ::2 ::7f00:1 ::127.0.0.1 ::10.0.0.1 ::169.254.169.254 ::93.184.216.34 ::ffff:127.0.0.1
::ffff:7f00:1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:93.184.216.34 ::ffff:0:127.0.0.1
::ffff:0:93.184.216.34 ::ffff:0:a00:1 64:ff9b::127.0.0.1 64:ff9b::7f00:1 64:ff9b::10.0.0.1
64:ff9b::169.254.169.254 64:ff9b::93.184.216.34 64:ff9b:1::1 64:ff9b:1::10.0.0.1
64:ff9b:1:ffff::10.0.0.1 100::1 100:0:0:1::1 200::1 1000::1 2001::1 2001:0:4136:e378::1
2001:0:7f00:1::1 2001:2::1 2001:3::1 2001:4:112::1 2001:10::1 2001:20::1 2001:30::1 2001:1ff::1
2001:db8::1 2001:db8:ffff::1 2002:7f00:1::1 2002:a00:1::1 2002:a9fe:a9fe::1 2002:5db8:d822::1
2620:4f:8000::1 3ffe::1 3fff::1 3fff:fff::1 4000::1 5f00::1 8000::1 a000::1 c000::1 e000::1
f000::1 f800::1 fc00::1 fc00::127.0.0.1 fd00::1 fd00:ec2::254 fd00:42::42 fd20:ce::254
fd12:3456:789a::1 fdff::1 fe00::1 fe80::1 fe80::a9fe:a9fe febf::1 fec0::1 feff::1 ff00::1 ff01::1
ff02::1 ff02::fb ff05::2 ff0e::1 ffff::1 2606:4700::5efe:10.0.0.1 2606:4700::200:5efe:127.0.0.1
2606:4700::5efe:93.184.216.34 2a00:1450::5efe:a9fe:a9fe fe80::5efe:10.0.0.1
"""

_ALLOWED = """
1.0.0.1 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0
126.255.255.255 128.0.0.0 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255
172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0 198.17.255.255
198.20.0.0 198.51.99.255 203.0.112.255 203.0.114.0 223.255.255.255 2001:200::1 2001:470::1
2001:4860:4860::8888 2003::1 2400:cb00::1 2606:4700:4700::1111 2606:2800:220:1::1 2620:4e::1
2a00:1450:4001::200e 2c0f:fb50::1 3fff:1000::1
"""

REFUSED = _REFUSED.split()
ALLOWED = _ALLOWED.split()


@pytest.mark.parametrize("text", REFUSED)
def test_an_inner_or_reserved_address_is_refused(text: str) -> None:
    assert AddressGuard().refusal(ip_address(text))


@pytest.mark.parametrize("text", ALLOWED)
def test_a_public_address_may_be_dialled(text: str) -> None:
    assert AddressGuard().refusal(ip_address(text)) is None


def test_the_table_covers_at_least_120_addresses() -> None:
    assert len(set(REFUSED)) >= 120


def test_the_allow_list_lets_its_own_network_through_and_nothing_else() -> None:
    guard = AddressGuard(["10.20.0.0/16", "fd00:1::/32", "127.0.0.1/32"])
    assert guard.refusal(ip_address("10.20.3.4")) is None
    assert guard.refusal(ip_address("fd00:1::5")) is None
    assert guard.refusal(ip_address("127.0.0.1")) is None
    for text in ("10.21.0.1", "127.0.0.2", "::ffff:10.20.3.4", "64:ff9b::10.20.3.4", "::1"):
        assert guard.refusal(ip_address(text))


def test_an_address_with_a_zone_is_refused_even_when_its_network_is_allowed() -> None:
    assert AddressGuard(["fe80::/10"]).refusal(IPv6Address("fe80::1%lo"))


def test_a_verdict_is_the_same_when_asked_again() -> None:
    guard = AddressGuard()
    for text in (*REFUSED, *ALLOWED, *REFUSED):
        address = ip_address(text)
        assert guard.refusal(address) == guard.refusal(address)


@given(st.integers(0, 2**32 - 1))
def test_no_ipv4_address_that_python_calls_private_gets_through(number: int) -> None:
    address = IPv4Address(number)
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        assert AddressGuard().refusal(address)


@given(st.integers(0, 2**128 - 1))
def test_no_ipv6_address_outside_global_unicast_gets_through(number: int) -> None:
    address = IPv6Address(number)
    if number >> 125 != 1 or address.is_private or address.ipv4_mapped or address.sixtofour:
        assert AddressGuard().refusal(address)


@pytest.mark.parametrize("text", ["10.0.0.1/8", "300.0.0.0/8", "example.com", "", "10.0.0.0/33"])
def test_a_wrong_allow_list_is_refused_in_one_clear_line(text: str) -> None:
    with pytest.raises(ConfigError, match="allow-list"):
        parse_networks([text])


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("10.0.0.5 is private", "the address is private"),
        ("fd00::5 is unique local", "the address is unique local"),
        ("::1: Connection refused", "the address: Connection refused"),
        ("fe80::1%eth0 is link-local", "the address is link-local"),
        ("10.0.0.5, fd00::: No route to host", "the addresses: No route to host"),
        ("CONNECT [fd00::5]:443.", "CONNECT [the address]:443."),
        ("tried 10.0.0.5:8443", "tried the address:8443"),
        ("shop.example.com: no such name", "shop.example.com: no such name"),
        ("certificate: bad: 1.2.840 beef", "certificate: bad: 1.2.840 beef"),
        ("timed out after 10.5 s", "timed out after 10.5 s"),
    ],
)
def test_what_went_wrong_can_be_told_without_addresses(told: str, shown: str) -> None:
    assert without_addresses(told) == shown


@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "a.localhost",
        "printer.local",
        "metadata.google.internal",
        "intranet",
        "x.home.arpa",
    ],
)
def test_a_name_that_is_not_public_is_the_affair_of_whoever_allows_networks(name: str) -> None:
    assert AddressGuard().refusal_of_name(name)
    assert AddressGuard(["127.0.0.0/8"]).refusal_of_name(name) is None
    assert AddressGuard().refusal_of_name(f"{name}.example.com") is None
