"""The SCRAM-SHA-256 verifier of a password (RFC 5803), so that no statement carries the password.

Pure. PostgreSQL takes such a verifier in place of a password; libpq's own function for making one
is not offered by the driver, and the arithmetic is five lines of the standard library.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64encode

ITERATIONS = 4096


def verifier(password: str, salt: bytes | None = None) -> str:
    """What PostgreSQL stores for this password."""
    salt = salt or secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    return (
        f"SCRAM-SHA-256${ITERATIONS}:{b64encode(salt).decode()}"
        f"${b64encode(stored).decode()}:{b64encode(server).decode()}"
    )
