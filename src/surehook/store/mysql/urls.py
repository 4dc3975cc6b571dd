"""Takes a mysql:// or mariadb:// URL apart. Reads the certificate files that it names.

    mysql://user:password@host:3306/database?ssl-mode=VERIFY_IDENTITY&ssl-ca=/etc/ca.pem
    mariadb://user@localhost/database?unix_socket=/run/mysqld/mysqld.sock

Everything is percent-encoded as usual in URLs. ssl-mode is what the engines' own clients call it:
DISABLED, PREFERRED (the default: encrypted where the server can, but anyone may be that server),
REQUIRED (encrypted or not at all), VERIFY_CA (signed by ssl-ca), VERIFY_IDENTITY (and for this
host; the default when ssl-ca is given). ssl-cert and ssl-key: a certificate of our own.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cache
from urllib.parse import parse_qsl, unquote, urlsplit

from surehook.errors import ConfigError
from surehook.store.logins import Login

PORT = 3306
SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_PARAMETERS = {"ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "unix_socket"}
_LOCAL = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect, and as whom."""

    host: str
    port: int
    unix_socket: str | None
    user: str
    password: str
    database: str
    # Each is tried in turn: None = not encrypted.
    encryption: tuple[ssl.SSLContext | None, ...]

    def __repr__(self) -> str:  # no password in a traceback
        return f"Target({self.user}@{self.unix_socket or self.host}:{self.port}/{self.database})"


def target(login: Login) -> Target:
    """From the login's URL; its own user and password go before the URL's."""
    try:
        parts = urlsplit(login.url)
        port = parts.port or PORT
    except ValueError:
        raise unusable("it is not a URL") from None
    options = _options(parts.query)
    database = unquote(parts.path.removeprefix("/"))
    user = login.user or unquote(parts.username or "")
    if not user or not database or "/" in database:
        raise unusable("it must name a user and a database: mysql://user@host/database")
    password = login.password if login.user else unquote(parts.password or "")
    host = unquote(parts.hostname or "localhost")
    unix_socket = options.get("unix_socket")
    return Target(
        host=host,
        port=port,
        unix_socket=unix_socket,
        user=user,
        password=password or "",
        database=database,
        encryption=_encryption(options, local=bool(unix_socket) or host in _LOCAL),
    )


def unusable(reason: str) -> ConfigError:
    """The reason never quotes the URL: it may hold a password."""
    return ConfigError(
        f"The database URL cannot be used ({reason}).",
        "Special characters in a user or password must be percent-encoded.",
    )


def _options(query: str) -> dict[str, str]:
    options = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        known = name.lower().replace("_", "-") if name.lower().startswith("ssl") else name.lower()
        if known not in _PARAMETERS:
            raise unusable(f"it has a parameter {name}; known are {', '.join(sorted(_PARAMETERS))}")
        options[known] = value
    return options


def _encryption(options: dict[str, str], local: bool) -> tuple[ssl.SSLContext | None, ...]:
    default = "VERIFY_IDENTITY" if "ssl-ca" in options else "DISABLED" if local else "PREFERRED"
    mode = options.get("ssl-mode", default).upper()
    if mode not in SSL_MODES:
        raise unusable(f"ssl-mode is one of {', '.join(SSL_MODES)}")
    if mode == "DISABLED":
        return (None,)
    try:
        context = _context(mode, *map(options.get, ("ssl-ca", "ssl-cert", "ssl-key")))
    except (OSError, ssl.SSLError) as error:
        raise unusable(f"a certificate cannot be read: {error}") from None
    return (context, None) if mode == "PREFERRED" else (context,)


@cache  # loading all authorities of the system takes a tenth of a second
def _context(mode: str, ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "VERIFY_IDENTITY"
    if not mode.startswith("VERIFY"):
        context.verify_mode = ssl.CERT_NONE
    elif ca:
        context.load_verify_locations(ca)
    else:
        context.load_default_certs()
    if cert:
        context.load_cert_chain(cert, key)
    return context
