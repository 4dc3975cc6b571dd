"""The verification challenge, sender's side: what is sent and what answer proves the secret.

Reads   a challenge, the response body, the secrets that were challenged
Writes  nothing; a response body given here is never kept

The receiver's side is surehook.receive; the exact bytes are described in docs/verification.md.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable

import msgspec

from surehook.model import rules
from surehook.receive import VERIFICATION_TYPE, challenge_response

_RESPONSE = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CODE_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"  # nothing that is misread for something else
_CODE_LENGTH = 12  # 58 bits: with a handful of attempts in 15 minutes, beyond guessing


class _Answer(msgspec.Struct):
    response: str


def new_challenge() -> str:
    """256 random bits as 43 URL-safe characters."""
    return secrets.token_urlsafe(32)


def new_code() -> str:
    """A one-time code for people, such as 7QXM-2KPA-9DTR."""
    text = "".join(secrets.choice(_CODE_ALPHABET) for _ in range(_CODE_LENGTH))
    return "-".join(text[start : start + 4] for start in range(0, _CODE_LENGTH, 4))


def verification_id(subscription_id: int) -> str:
    """The `webhook-id` of a challenge; only those start with `vrf_`."""
    return f"vrf_{subscription_id}_{secrets.token_hex(8)}"


def challenge_body(challenge: str, code: str) -> bytes:
    """The body that is POSTed, signed like any delivery."""
    return msgspec.json.encode({"type": VERIFICATION_TYPE, "challenge": challenge, "code": code})


def answer_proves(answer: bytes, challenge: str, shared_secrets: Iterable[str]) -> bool:
    """Whether the answer could only be made by a holder of one of the secrets."""
    if rules.deeper_than(answer, rules.DEPTH_MAX):
        return False
    try:
        given = msgspec.json.decode(answer, type=_Answer).response
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    if not _RESPONSE.fullmatch(given):
        return False
    return any(
        [
            hmac.compare_digest(given, challenge_response(challenge, secret))
            for secret in shared_secrets
        ]
    )
