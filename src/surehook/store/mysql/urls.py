"""A mysql:// URL as the driver wants it. Pure but for the CA file that a URL may name."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from surehook.errors import ConfigError
from surehook.store.logins import Login

_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_OPTIONS = ("unix_socket", "ssl-mode", "ssl-ca")


def arguments(login: Login) -> dict[str, Any]:
    """Host, user, password, database, TLS."""
    try:
        parts = urlsplit(login.url)
        port = parts.port or 3306
    except ValueError:
        raise _unusable("its port is no number") from None
    options = dict(parse_qsl(parts.query))
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise _unusable(f"{unknown[0]} is none of {', '.join(_OPTIONS)}")
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        raise _unusable("it names no database")
    return {
        "host": parts.hostname or "localhost",
        "port": port,
        "user": login.user or unquote(parts.username or ""),
        "password": login.password or unquote(parts.password or ""),
        "database": database,
        "unix_socket": options.get("unix_socket"),
        "ssl": _tls(options),
    }


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    """By the names that the engines' own clients use; a CA alone means that it is to be checked.

    The driver cannot fall back, so `preferred` is what most servers accept: no TLS.
    """
    ca = options.get("ssl-ca")
    mode = options.get("ssl-mode", "verify_ca" if ca else "preferred").lower()
    if mode not in _MODES:
        raise _unusable(f"ssl-mode is one of {', '.join(_MODES)}")
    if mode in ("disabled", "preferred"):
        return None
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError):
        raise _unusable(f"ssl-ca {ca} cannot be read") from None
    context.check_hostname = mode == "verify_identity"
    if mode == "required":
        context.verify_mode = ssl.CERT_NONE
    return context


def _unusable(reason: str) -> ConfigError:
    """Never quotes the URL: a piece of a password may stand anywhere in it."""
    return ConfigError(
        f"The database URL cannot be used ({reason}).",
        "mysql://user:password@host:3306/database; special characters percent-encoded.",
    )
