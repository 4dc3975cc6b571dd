"""A password as the server stores it, so that no statement and no log carries the password. Pure.

MariaDB  mysql_native_password: the SHA-1 of the SHA-1. Ours are 256 random bits, so that nobody
         finds them by trying.
MySQL    caching_sha2_password: SHA-256 crypt with 5,000 rounds, as Unix systems know it
         (specification by Ulrich Drepper), but with a salt of 20 characters.
"""

from __future__ import annotations

import hashlib
import secrets

ROUNDS = 5000
SALT_LENGTH = 20
_LETTERS = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# In which order crypt writes the bytes of its digest, three at a time.
_ORDER = [tuple((first + 21 * step) % 30 for first in (0, 10, 20)) for step in range(10)]


def native(password: str) -> str:
    """What MariaDB stores."""
    inner = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
    return "*" + hashlib.sha1(inner, usedforsecurity=False).hexdigest().upper()


def caching_sha2(password: str, salt: str | None = None) -> str:
    """What MySQL stores."""
    salt = salt or "".join(secrets.choice(_LETTERS) for _ in range(SALT_LENGTH))
    digest = _sha256_crypt(password.encode(), salt.encode())
    return f"$A${ROUNDS // 1000:03}${salt}{digest}"


def _sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def _stretched(block: bytes, length: int) -> bytes:
    return (block * (length // len(block) + 1))[:length]


def _sha256_crypt(password: bytes, salt: bytes) -> str:
    second = _sha256(password, salt, password)
    first = [password, salt, _stretched(second, len(password))]
    length = len(password)
    while length:
        first.append(second if length & 1 else password)
        length >>= 1
    digest = _sha256(*first)
    p = _stretched(_sha256(password * len(password)), len(password))
    s = _stretched(_sha256(salt * (16 + digest[0])), len(salt))
    for number in range(ROUNDS):
        digest = _sha256(
            p if number & 1 else digest,
            s if number % 3 else b"",
            p if number % 7 else b"",
            digest if number & 1 else p,
        )
    return _letters(digest)


def _letters(digest: bytes) -> str:
    triples = [(digest[a], digest[b], digest[c], 4) for a, b, c in _ORDER]
    return "".join(
        _LETTERS[(high << 16 | middle << 8 | low) >> 6 * place & 63]
        for high, middle, low, count in [*triples, (0, digest[31], digest[30], 3)]
        for place in range(count)
    )
