"""Signatures by Standard Webhooks: `v1` (HMAC-SHA256) and `v1a` (ed25519).

Reads   secrets, the message's id, the database's time, the body
Writes  nothing; a secret's text leaves this module only through `reveal()`

    signed bytes         <webhook-id> "." <webhook-timestamp> "." <body>
    webhook-signature    "v1,<base64>" or "v1a,<base64>", one per live secret, blanks between
    whsec_<base64>       a shared secret of 24 to 64 random bytes
    whsk_<base64>        an ed25519 private key: 64 bytes, seed and public key (or the seed alone)
    whpk_<base64>        its public key, for the receiver
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Iterable, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from surehook import __version__
from surehook.errors import UsageError

USER_AGENT = f"surehook/{__version__}"

_SHARED = "whsec_"
_PRIVATE = "whsk_"
_PUBLIC = "whpk_"
_NEW_SECRET_BYTES = 32


class SecretRefused(UsageError):
    """A secret is not of a known form; the message never shows it."""


class SharedSecret:
    """A `whsec_` secret: signs with HMAC-SHA256."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, signed: bytes) -> str:
        digest = hmac.digest(self._key, signed, "sha256")
        return "v1," + binascii.b2a_base64(digest, newline=False).decode("ascii")

    def reveal(self) -> str:
        return _SHARED + base64.b64encode(self._key).decode("ascii")


class SigningKey:
    """A `whsk_` private key: signs with ed25519."""

    __slots__ = ("_key",)

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def sign(self, signed: bytes) -> str:
        signature = self._key.sign(signed)
        return "v1a," + binascii.b2a_base64(signature, newline=False).decode("ascii")

    def reveal(self) -> str:
        both = self._key.private_bytes_raw() + self._key.public_key().public_bytes_raw()
        return _PRIVATE + base64.b64encode(both).decode("ascii")

    def public_key(self) -> str:
        """The `whpk_` text to give to the receiver."""
        raw = self._key.public_key().public_bytes_raw()
        return _PUBLIC + base64.b64encode(raw).decode("ascii")


Signer = SharedSecret | SigningKey


def new_shared_secret() -> SharedSecret:
    """A fresh `whsec_` secret."""
    return SharedSecret(secrets.token_bytes(_NEW_SECRET_BYTES))


def new_signing_key() -> SigningKey:
    """A fresh ed25519 key pair."""
    return SigningKey(Ed25519PrivateKey.generate())


def parse_secret(text: str) -> Signer:
    """The signer for a `whsec_` or `whsk_` text; SecretRefused for anything else."""
    if text.startswith(_SHARED):
        key = _decode(text.removeprefix(_SHARED))
        if not 24 <= len(key) <= 64:
            raise SecretRefused("A whsec_ secret must hold 24 to 64 bytes.")
        return SharedSecret(key)
    if text.startswith(_PRIVATE):
        return _signing_key(_decode(text.removeprefix(_PRIVATE)))
    raise SecretRefused("A secret must start with whsec_ or whsk_.")


def _signing_key(raw: bytes) -> SigningKey:
    if len(raw) not in (32, 64):
        raise SecretRefused("A whsk_ key must hold 32 or 64 bytes.")
    key = Ed25519PrivateKey.from_private_bytes(raw[:32])
    if raw[32:] and raw[32:] != key.public_key().public_bytes_raw():
        raise SecretRefused("The two halves of the whsk_ key do not belong together.")
    return SigningKey(key)


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SecretRefused("The secret is not valid base64.") from None


def message_id(installation: str, event_id: int, subscription_id: int) -> str:
    """The same for every attempt and requeue: receivers can recognise a repetition; never
    that of another installation, whose events and subscriptions have the same numbers."""
    return f"msg_{installation}_{event_id}_{subscription_id}"


def signature_header(
    signers: Iterable[Signer], webhook_id: str, timestamp: int, body: bytes
) -> str:
    """The value of `webhook-signature`: one signature per live secret."""
    signed = f"{webhook_id}.{timestamp}.".encode("ascii") + body
    return " ".join([signer.sign(signed) for signer in signers])


def signed_headers(
    signers: Sequence[Signer],
    webhook_id: str,
    timestamp: int,
    body: bytes,
    event_type: str,
    custom: Iterable[tuple[str, str]] = (),
) -> tuple[tuple[str, str], ...]:
    """Every header of a delivery that does not belong to the connection.

    `timestamp` is the database's time in whole seconds: the worker's clock may be wrong, and a
    receiver refuses what is five minutes off. Custom headers cannot replace ours.
    """
    ours = (
        ("content-type", "application/json"),
        ("user-agent", USER_AGENT),
        ("webhook-id", webhook_id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signature_header(signers, webhook_id, timestamp, body)),
        ("webhook-event-type", event_type),
    )
    if not custom:
        return ours
    taken = {name for name, _ in ours}
    return ours + tuple(header for header in custom if header[0].lower() not in taken)
