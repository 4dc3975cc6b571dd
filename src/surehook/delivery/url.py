"""Callback URLs: the one place that takes a URL apart.

Reads   the URL's text
Writes  nothing

Libraries disagree about the host of a malformed URL, and an attacker lives in the difference. So
this parser accepts a small, unambiguous grammar and refuses the rest with a reason; what it
returns is what is resolved, checked, dialled, verified by TLS and sent as `Host`.

    https://host[:port][/path][?query]

    host     dot-separated letters, digits and hyphens; international names are turned into
             their ASCII form; a strict dotted quad; or an IPv6 address in brackets
    refused  other schemes, user names, fragments, backslashes, white space, control and
             non-ASCII characters, bad percent escapes, a trailing dot, and every other
             spelling of a number (2130706433, 0x7f.1, 127.1, 0177.0.0.1, ①②⑦.⓪.⓪.①)
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

import idna
import msgspec

from surehook.errors import UsageError

MAX_URL_LENGTH = 500

_SCHEME = "https://"
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
# RFC 3986 path and query: unreserved, sub-delims, ":", "@", "/", "?", and whole escapes.
_TARGET = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*", re.ASCII)
# A last label like this makes some resolver somewhere read the whole name as a number.
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)


class UrlRefused(UsageError):
    """The URL is not one that surehook will ever call."""


class CallbackUrl(msgspec.Struct, frozen=True):
    """A callback URL taken apart; `address` is set when the host is an address literal."""

    host: str
    port: int
    target: str
    address: IPv4Address | IPv6Address | None

    @property
    def origin(self) -> tuple[str, int]:
        """What a kept connection belongs to."""
        return (self.host, self.port)

    @property
    def authority(self) -> str:
        """The `Host` header."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == 443 else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{_SCHEME}{self.authority}{self.target}"


def parse_callback_url(text: str) -> CallbackUrl:
    """The URL's parts, or UrlRefused with the reason in one line."""
    if len(text) > MAX_URL_LENGTH:
        raise UrlRefused(f"The URL is longer than {MAX_URL_LENGTH} characters.")
    if text[: len(_SCHEME)].lower() != _SCHEME:
        raise UrlRefused("The URL must start with https://.")
    authority, target = _split(text[len(_SCHEME) :])
    host, port = _host_and_port(authority)
    name, address = _host(host)
    url = CallbackUrl(host=name, port=port, target=target, address=address)
    if len(str(url)) > MAX_URL_LENGTH:
        raise UrlRefused(f"The URL's ASCII form is longer than {MAX_URL_LENGTH} characters.")
    return url


def _split(rest: str) -> tuple[str, str]:
    end = next((index for index, char in enumerate(rest) if char in "/?#\\"), len(rest))
    authority, target = rest[:end], rest[end:]
    if "#" in target:
        raise UrlRefused("The URL must not have a fragment (#): it would never be sent.")
    if not _TARGET.fullmatch(target):
        raise UrlRefused(
            "The path or query has a character that must be percent-encoded, or a bad escape."
        )
    return authority, target if target.startswith("/") else f"/{target}"


def _host_and_port(authority: str) -> tuple[str, int]:
    if "@" in authority:
        raise UrlRefused("The URL must not have a user name or password.")
    if authority.startswith("["):
        host, bracket, tail = authority.partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise UrlRefused("The IPv6 address in the URL is not closed by a bracket.")
        host, colon, port = host + bracket, tail[:1], tail[1:]
    else:
        host, colon, port = authority.partition(":")
    if not colon:
        return host, 443
    if not _PORT.fullmatch(port) or int(port) > 65535:
        raise UrlRefused("The port must be a number from 1 to 65535.")
    return host, int(port)


def _host(host: str) -> tuple[str, IPv4Address | IPv6Address | None]:
    if not host:
        raise UrlRefused("The URL has no host.")
    if host.startswith("["):
        return _literal_v6(host[1:-1])
    name = _ascii_name(host).lower()
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _literal_v4(name)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise UrlRefused("The host is not a valid name.")
    return name, None


def _literal_v4(text: str) -> tuple[str, IPv4Address]:
    try:
        address = IPv4Address(text)  # four decimal numbers, no leading zeros
    except AddressValueError:
        raise UrlRefused(
            "The host looks like a number but is not a plain dotted IPv4 address."
        ) from None
    return str(address), address


def _literal_v6(text: str) -> tuple[str, IPv6Address]:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        raise UrlRefused("The host is not a valid IPv6 address.") from None
    if address.scope_id is not None:
        raise UrlRefused("The IPv6 address must not have a zone.")
    return str(address), address


def _ascii_name(host: str) -> str:
    """The name in ASCII: IDNA 2008 without any mapping: nothing turns into digits."""
    if host.isascii():
        name = host
    else:
        try:
            name = ".".join(
                label if label.isascii() else idna.alabel(label.lower()).decode("ascii")
                for label in host.split(".")
            )
        except (idna.IDNAError, UnicodeError):
            raise UrlRefused("The host is not a valid international name.") from None
    for label in name.lower().split("."):
        if label.startswith("xn--"):
            _check_ace(label)
    return name


def _check_ace(label: str) -> None:
    try:
        idna.decode(label)
    except (idna.IDNAError, UnicodeError):
        raise UrlRefused("The host has an invalid xn-- label.") from None
