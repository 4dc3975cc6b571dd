"""The address guard: which addresses may be dialled.

Reads   the allow-list it was made with
Writes  nothing

The check is made on the address that goes into connect(), at every connection, so neither a name
that changes its answer nor a redirect nor a URL written straight into the database leads inside.
The table is our own: `ipaddress.is_global` is true for 64:ff9b::7f00:1, 2002:7f00:1::,
::127.0.0.1, 224.0.0.1 and fec0::1. IPv6 is refused unless it is global unicast (2000::/3), so a
range that is invented tomorrow is refused today. Forms that carry an IPv4 address inside are
refused as a whole, whatever they carry. An allow-list entry means exactly its own network:
allowing 127.0.0.0/8 does not allow ::ffff:127.0.0.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from surehook.errors import ConfigError

Address = IPv4Address | IPv6Address

_REFUSED_V4 = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "cloud metadata"),  # a public address, answered inside Azure only
        ("169.254.0.0/16", "link-local, cloud metadata"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments, cloud metadata"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "AS112"),
        ("192.52.193.0/24", "AMT"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "AS112"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved, broadcast"),
    )
)

_REFUSED_V6 = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::1/128", "loopback"),
        ("::/128", "unspecified"),
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "protocol assignments"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("2620:4f:8000::/48", "AS112"),
        ("3ffe::/16", "6bone"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "unique local, cloud metadata"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)

_GLOBAL_UNICAST_V6 = IPv6Network("2000::/3")
# RFC 5214: an IPv6 address of any prefix whose interface part ends in 5efe and an IPv4 address.
_ISATAP_MARKS = (0x00005EFE, 0x02005EFE)
_REMEMBERED = 4096
# Names that no public name server answers for (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal),
# cloud metadata's among them. A name of one label is searched for in the resolver's own domains.
_PRIVATE_NAMES = ("localhost", "localdomain", "local", "internal", "home.arpa", "invalid")
_MAYBE_ADDRESS = re.compile(r"[0-9A-Fa-f:.]{3,}(?:%[0-9A-Za-z]+)?")
_V4_AND_PORT = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?=:\d)")
_SEVERAL = re.compile(r"the address(?:, the address)+")


def parse_networks(texts: Iterable[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """CIDRs of an allow-list; host bits that are set are an error, not a guess."""
    networks: list[IPv4Network | IPv6Network] = []
    for text in texts:
        try:
            networks.append(ip_network(text.strip()))
        except ValueError as error:
            raise ConfigError(
                f"Not a network in the allow-list: {text!r} ({error}).",
                "Write CIDRs such as 10.20.0.0/16 or fd00::/8, separated by commas.",
            ) from None
    return tuple(networks)


class AddressGuard:
    """Says why an address may not be dialled."""

    def __init__(self, allow_networks: Iterable[str] = ()) -> None:
        self._allowed = parse_networks(allow_networks)
        self._verdicts: dict[Address, str | None] = {}

    def refusal(self, address: Address) -> str | None:
        """The reason in a few words, or None when the address may be dialled."""
        try:
            return self._verdicts[address]
        except KeyError:
            pass
        reason = self._judge(address)
        if len(self._verdicts) >= _REMEMBERED:
            self._verdicts.clear()
        self._verdicts[address] = reason
        return reason

    def refusal_of_name(self, name: str) -> str | None:
        """Why no delivery to this name can ever be made. Where networks are allowed, internal
        names are the operator's affair."""
        if self._allowed:
            return None
        if "." not in name:
            return "a single label, which is not a public name"
        ending = next((e for e in _PRIVATE_NAMES if name.endswith(f".{e}")), None)
        return f"under .{ending}, which is not public" if ending else None

    def _judge(self, address: Address) -> str | None:
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            return "an address with a zone"
        if any(address in network for network in self._allowed):
            return None
        return _refusal_v4(address) if isinstance(address, IPv4Address) else _refusal_v6(address)


def without_addresses(text: str) -> str:
    """What went wrong, without what it reveals about the internal network."""
    text = _MAYBE_ADDRESS.sub(_hidden, _V4_AND_PORT.sub("the address", text))
    return _SEVERAL.sub("the addresses", text)


def _hidden(found: re.Match[str]) -> str:
    """The match without the address that it begins with; a colon or full stop may follow."""
    text = found[0]
    for end in range(len(text), max(1, len(text) - 3), -1):
        try:
            ip_address(text[:end])
        except ValueError:
            continue
        return "the address" + text[end:]
    return text


def _refusal_v4(address: IPv4Address) -> str | None:
    return next((reason for network, reason in _REFUSED_V4 if address in network), None)


def _refusal_v6(address: IPv6Address) -> str | None:
    for network, reason in _REFUSED_V6:
        if address in network:
            return reason
    if address not in _GLOBAL_UNICAST_V6:
        return "not global unicast"
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP_MARKS:
        return "ISATAP"
    return None
