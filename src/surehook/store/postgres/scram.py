"""The SCRAM-SHA-256 verifier of a password (RFC 5803), so that no statement carries the password.

Pure. PostgreSQL takes such a verifier in place of a password; libpq's own function for making one
is not offered by the driver, and the arithmetic is five lines of the standard library.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode

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


def is_of(password: str, kept: str | None) -> bool:
    """Whether what PostgreSQL keeps is a verifier of ours for this password."""
    found = re.fullmatch(rf"SCRAM-SHA-256\${ITERATIONS}:([A-Za-z0-9+/=]+)\$.*", kept or "")
    if kept is None or found is None:
        return False
    return hmac.compare_digest(verifier(password, b64decode(found[1])), kept)
