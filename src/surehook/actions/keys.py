"""Keys: what applications and people show to be let in.

Role    key_admin
Reads   api_keys
Writes  INSERT api_keys, UPDATE api_keys (revoked_at)
Never   keeps a key itself: it is shown once, and only its hash is stored

A key has 256 random bits, so that its plain SHA-256 cannot be searched; a slow hash would add
nothing but the cost.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from surehook.errors import FieldRefused, NotFound
from surehook.model import rules
from surehook.model.resources.key import Key
from surehook.store.keys import KeyStore

PREFIX = "shk_"


class Scope(StrEnum):
    """What a key allows; admin implies the others."""

    INGEST = "ingest"
    READ = "read"
    OPERATOR = "operator"
    ADMIN = "admin"


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


class Keys:
    """Create and revoke."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store

    async def create(self, name: str, scopes: Sequence[str], tenant: str | None = None) -> Key:
        """A new key, shown this once. FieldRefused names what is wrong."""
        rules.check_key_name(name)
        known = [scope for scope in Scope if scope in scopes]
        if not known or set(scopes) - set(known):
            raise FieldRefused("scopes", f"scopes must be some of {', '.join(Scope)}.")
        if tenant is not None:
            rules.check_tenant(tenant)
        secret = new_secret()
        made = await self._store.create(name, hash_of(secret), ",".join(known), tenant)
        return msgspec.structs.replace(made, key=secret)

    async def revoke(self, key_id: int, tenant: str | None = None) -> Key:
        """From now on (2 s at most) the key is refused. Repeating it changes nothing."""
        key = await self._store.revoke(key_id, tenant)
        if key is None:
            raise NotFound(f"There is no key {key_id}.")
        return key

    async def list(self, tenant: str | None = None) -> list[Key]:
        """Every key, newest first; with a tenant, those bound to it."""
        return await self._store.list_keys(tenant)
