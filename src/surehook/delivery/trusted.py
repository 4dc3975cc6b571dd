"""Trusted origins: the operator's own endpoints, which need not prove themselves.

Reads   the entries of `verification.trusted`
Writes  nothing

    https://hooks.example.com        that host, port 443
    https://hooks.example.com:8443   that host, that port
    https://*.example.com            every name below example.com, at any depth; not example.com

The URL is taken apart by the parser of callback URLs: what is compared is what is dialled.
"""

from __future__ import annotations

from collections.abc import Iterable

from surehook.delivery.url import CallbackUrl, UrlRefused, parse_callback_url
from surehook.errors import ConfigError

_SCHEME = "https://"
_BELOW = "*."


class TrustedOrigins:
    """Which URLs are the operator's own."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._exact: set[tuple[str, int]] = set()
        self._below: set[tuple[str, int]] = set()
        for entry in entries:
            rest = entry[len(_SCHEME) :]
            wild = rest.startswith(_BELOW)
            origin = _origin(entry, rest.removeprefix(_BELOW), wild)
            (self._below if wild else self._exact).add(origin)

    def cover(self, text: str) -> bool:
        """Whether a callback URL is of one of them."""
        if not self._exact and not self._below:
            return False
        try:
            url = parse_callback_url(text)
        except UrlRefused:
            return False
        return url.origin in self._exact or (url.address is None and self._covered_above(url))

    def _covered_above(self, url: CallbackUrl) -> bool:
        _, _, parent = url.host.partition(".")
        while parent:
            if (parent, url.port) in self._below:
                return True
            _, _, parent = parent.partition(".")
        return False


def _origin(entry: str, rest: str, wild: bool) -> tuple[str, int]:
    try:
        url = parse_callback_url(_SCHEME + rest)
    except UrlRefused as refusal:
        raise ConfigError(f"verification.trusted: {entry!r}: {refusal.message}") from None
    if wild and (url.address is not None or "." not in url.host):
        raise ConfigError(
            f"verification.trusted: {entry!r} covers too much.",
            "Behind *. there must be a domain of your own, such as https://*.example.com.",
        )
    return url.origin
