"""Logins: which user and password each login has. Reads the configuration; writes nothing."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass

from surehook.config import Config, without_password
from surehook.model.roles import BY_LOGIN


@dataclass(frozen=True, slots=True)
class DatabaseAccess:
    """Where the database is and which secrets it needs: from the configuration, or embedded."""

    url: str
    role_secret: str | None
    encryption_key: str | None = None  # of the subscriptions' secrets

    def __repr__(self) -> str:  # no secret in a log or a traceback
        return f"DatabaseAccess({without_password(self.url)})"


@dataclass(frozen=True, slots=True)
class Login:
    """How to log in; user None means: as the URL says."""

    name: str
    url: str
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:  # never show the password, in a log or a traceback
        return f"Login({self.name}, {without_password(self.url)}, user={self.user})"


def derived_password(role_secret: str, role: str) -> str:
    """The password of a role's login: the same on every machine that knows the secret."""
    digest = hmac.digest(role_secret.encode(), f"surehook role {role}".encode(), hashlib.sha256)
    return urlsafe_b64encode(digest).decode().rstrip("=")


def secret_fingerprint(role_secret: str) -> str:
    """Tells two role secrets apart without giving either away; kept as the roles' comment."""
    digest = hmac.digest(role_secret.encode(), b"surehook fingerprint", hashlib.sha256)
    return digest.hex()[:12]


def login(config: Config, access: DatabaseAccess, name: str) -> Login:
    """The login `name`: its own URL, else its own role, else the main login."""
    own_url = config.login_urls.get(name)
    if own_url:
        return Login(name, own_url)
    if not config.flag("database.roles") or access.role_secret is None:
        return Login(name, access.url)
    role = BY_LOGIN[name].name
    return Login(name, access.url, role, derived_password(access.role_secret, role))
