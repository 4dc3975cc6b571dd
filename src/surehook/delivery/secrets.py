"""Secrets at rest: sealed with AES-256-GCM under a key from the configuration.

Reads   the keys it was made with
Writes  nothing

    surehook-sealed:1:<key id>:<base64url of nonce, ciphertext and tag>

The key id is a fingerprint of the key, so a sealed text says which key opens it without anyone
having to name keys. To rotate: put the new key first and keep the old one behind it; new texts are
sealed with the first, old ones still open, and rotating a subscription's secret moves it to the
new key. `context` (say "subscription_secrets") is authenticated with the text: one that is copied
into another place does not open there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from surehook.errors import ConfigError

KEY_BYTES = 32
SETTING = "SUREHOOK_ENCRYPTION_KEY"

_MARK = "surehook-sealed:1"
_NONCE_BYTES = 12
HOW_TO_MAKE = f'Make one with: python -c "import secrets; print(secrets.token_hex({KEY_BYTES}))"'


class SealingError(ConfigError):
    """A secret cannot be sealed or opened with the keys at hand; never shows key or secret."""


def parse_keys(setting: str) -> tuple[bytes, ...]:
    """Keys as hexadecimal or base64 text, separated by commas, the one in use first."""
    texts = [text.strip() for text in setting.split(",") if text.strip()]
    return tuple(_parse_key(text, place) for place, text in enumerate(texts, start=1))


def _parse_key(text: str, place: int) -> bytes:
    try:
        if len(text) == 2 * KEY_BYTES:
            key = bytes.fromhex(text)
        else:
            key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise SealingError(
            f"Key {place} in {SETTING} is not {KEY_BYTES} bytes in hexadecimal or base64.",
            HOW_TO_MAKE,
        )
    return key


def key_id(key: bytes) -> str:
    """A short fingerprint that distinguishes keys and reveals nothing about them."""
    return hashlib.sha256(b"surehook key id\0" + key).hexdigest()[:12]


class Sealer:
    """Seals with the first key, opens with any."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if any(len(key) != KEY_BYTES for key in keys):
            raise SealingError(f"An encryption key must have {KEY_BYTES} bytes.", HOW_TO_MAKE)
        self._ciphers = {key_id(key): AESGCM(key) for key in keys}
        self._current = key_id(keys[0]) if keys else None

    def seal(self, secret: str, context: str) -> str:
        """The sealed text; different each time."""
        if self._current is None:
            raise SealingError(
                f"{SETTING} is not set, and without it no secret can be stored.", HOW_TO_MAKE
            )
        nonce = secrets.token_bytes(_NONCE_BYTES)
        head = f"{_MARK}:{self._current}"
        sealed = self._ciphers[self._current].encrypt(
            nonce, secret.encode("utf-8"), _bound(head, context)
        )
        return f"{head}:{base64.urlsafe_b64encode(nonce + sealed).decode('ascii')}"

    def open(self, sealed: str, context: str) -> str:
        """The secret, or SealingError that says what is wrong with key or text."""
        head, identity, raw = _take_apart(sealed)
        cipher = self._ciphers.get(identity)
        if cipher is None:
            raise self._no_such_key(identity)
        try:
            secret = cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _bound(head, context))
        except (InvalidTag, ValueError):
            raise SealingError(
                f"A stored secret does not open with key {identity}: it was changed or moved.",
                "Rotate the subscription's secret.",
            ) from None
        return secret.decode("utf-8")

    @property
    def has_keys(self) -> bool:
        return bool(self._ciphers)

    def require_key_of(self, sealed: str) -> None:
        """SealingError if it is sealed with a key that is none of ours."""
        try:
            identity = _take_apart(sealed)[1]
        except SealingError:
            return  # damaged: another matter
        if identity not in self._ciphers:
            raise self._no_such_key(identity)

    def _no_such_key(self, identity: str) -> SealingError:
        if not self._ciphers:
            return SealingError(
                f"{SETTING} is not set, and a stored secret is sealed with key {identity}.",
                "Set it to the key that was used when the secret was stored.",
            )
        known = ", ".join(self._ciphers)
        return SealingError(
            f"A stored secret is sealed with key {identity}; {SETTING} has {known}.",
            "Add the old key behind the new one, separated by a comma.",
        )


def _bound(head: str, context: str) -> bytes:
    return f"{head}:{context}".encode()


def _take_apart(sealed: str) -> tuple[str, str, bytes]:
    head, _, encoded = sealed.rpartition(":")
    mark, _, identity = head.rpartition(":")
    try:
        raw = base64.b64decode(encoded.replace("-", "+").replace("_", "/"), validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if mark != _MARK or len(raw) < _NONCE_BYTES + 16:
        raise SealingError("A stored secret is not in the sealed form.")
    return head, identity, raw
