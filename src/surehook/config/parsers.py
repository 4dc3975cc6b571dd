"""What a setting's value may be. Pure.

A parser takes what the file or the environment gave; it returns the value, or raises ValueError
with the words that complete "<setting> must be …".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

Value = str | int | float | bool | Path | tuple[str, ...] | None

_ORIGIN = re.compile(
    r"https://(?:(?:\*\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?",
    re.ASCII,
)


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a non-empty text")
    return value


def path(value: object) -> Path:
    return Path(text(value)).expanduser()


def flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError("on or off")


def whole(smallest: int, largest: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(value) if isinstance(value, (int, str)) else None
        except ValueError:
            number = None
        if number is None or isinstance(value, bool) or not smallest <= number <= largest:
            raise ValueError(f"a whole number from {smallest} to {largest}")
        return number

    return parse


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def duration(smallest: float, largest: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        match = _DURATION.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
        seconds = float(match[1]) * _UNIT_SECONDS[match[2]] if match else -1.0
        if not smallest <= seconds <= largest:
            raise ValueError(
                f"a duration from {in_words(smallest)} to {in_words(largest)}, "
                "such as 30, 30s, 5m or 1h"
            )
        return seconds

    return parse


def in_words(seconds: float) -> str:
    """A duration as one would write it in the file."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= _UNIT_SECONDS[unit] and seconds % _UNIT_SECONDS[unit] == 0:
            return f"{seconds / _UNIT_SECONDS[unit]:g}{unit}"
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"


def one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return parse


def database_url(value: object) -> str:
    """What is wrong is said without the URL, which may hold a password."""
    url = text(value)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("a URL with a host name or address, IPv6 in [brackets]") from None
    if parts.scheme not in ("postgresql", "postgres", "mysql", "mariadb"):
        raise ValueError("a URL that begins with postgresql:// or mysql://")
    hosts = parts.netloc.rpartition("@")[2].split(",")  # PostgreSQL takes several
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    for name, given in parse_qsl(parts.query):
        ports += given.split(",") if name == "port" else []
    if not all(port == "" or _is_port(port, 1) for port in ports):
        raise ValueError("a URL whose port is a number from 1 to 65535")
    return url


def _is_port(given: str, smallest: int) -> bool:
    digits = given.isascii() and given.isdigit() and len(given) <= 5
    return digits and smallest <= int(given) <= 65535


def networks(value: object) -> tuple[str, ...]:
    items = _items(value, "networks such as 10.0.0.0/8")
    for item in items:
        try:
            ip_network(item)
        except ValueError as wrong:
            # The whole list is shown behind this; of several it has to say which.
            which = f" (look at {item!r}: {wrong})" if len(items) > 1 else ""
            raise ValueError(f"networks such as 10.0.0.0/8{which}") from None
    return items


def origins(value: object) -> tuple[str, ...]:
    wanted = "origins such as https://hooks.example.com or https://*.example.com"
    items = _items(value, wanted)
    for item in items:
        if not _ORIGIN.fullmatch(item):
            which = f" (look at {item!r})" if len(items) > 1 else ""
            raise ValueError(f"{wanted}, without a path{which}")
    return items


def _items(value: object, wanted: str) -> tuple[str, ...]:
    items = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise ValueError(f"a list of {wanted}")
    return tuple(str(item) for item in items)


def address(value: object) -> str:
    host, _, port = text(value).rpartition(":")
    if not host or not host.isprintable() or not _is_port(port, 0) or not _is_name(host):
        raise ValueError("host:port, such as 127.0.0.1:8080 or [::1]:8080")
    return text(value)


def address_or_word(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value is False and "off" in words:  # TOML's own word for it
            return "off"
        if value in words:
            return str(value)
        try:
            return address(value)
        except ValueError as wrong:
            raise ValueError(f"{', '.join(words)}, or {wrong}") from None

    return parse


def _is_name(host: str) -> bool:
    """Whether it can be looked up at all."""
    try:
        host.encode("idna")
    except UnicodeError:  # a label is empty or too long, or of no language
        return False
    return True


def proxy(value: object) -> str:
    try:
        parts = urlsplit(text(value))
        usable = parts.scheme == "http" and parts.path in ("", "/") and parts.port != 0
    except ValueError:  # half an IPv6 address, or a port beyond 65535
        usable = False
    if not usable or not parts.hostname or not _is_name(parts.hostname):
        raise ValueError("a URL such as http://proxy.example.com:3128")
    return text(value)


def at_least(length: int) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or len(value) < length:
            raise ValueError(f"a text of at least {length} characters")
        return value

    return parse


def toml_value(value: Value) -> str:
    """A value as one would write it in the file."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return f'"{in_words(value)}"'
        case int():
            return str(value)
        case tuple():
            return "[" + ", ".join(f'"{item}"' for item in value) + "]"
        case _:
            return f'"{value}"'
