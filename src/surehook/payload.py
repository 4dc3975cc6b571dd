"""What an application publishes, checked before it travels: the payload's bytes, and the names.

Reads   what it is given       Writes  nothing

The client and the outbox share this, so that both refuse the same things in the same words. The
API checks again: these are for a clear error in the caller's own stack, at microseconds.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

PAYLOAD_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 30
TENANT_MAX = 100
EXTERNAL_ID_MAX = 255

_EVENT_TYPE = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_RAW = msgspec.json.Decoder(msgspec.Raw)


def encode(payload: object) -> bytes:
    """The payload as strict JSON; ValueError says what is wrong with it.

    bytes are JSON already and stay as they are, but for white space around the value. Anything
    else is encoded: what `json` knows, and dates, UUIDs, decimals, enums, dataclasses and msgspec
    structs as msgspec writes them. NaN and infinity are refused, not turned into something else.
    """
    if isinstance(payload, (bytes, bytearray, memoryview, msgspec.Raw)):
        encoded = _checked(bytes(payload))
    else:
        encoded = _encoded(payload)
    if _deeper_than(encoded, DEPTH_MAX):
        raise ValueError(f"the payload is nested deeper than {DEPTH_MAX} levels")
    return encoded


def _checked(given: bytes) -> bytes:
    try:
        given.decode("utf-8")
        return bytes(_RAW.decode(given))
    except UnicodeDecodeError:
        raise ValueError("the payload's bytes are not UTF-8") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"the payload's bytes are not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"the payload is nested deeper than {DEPTH_MAX} levels") from None


def _encoded(payload: object) -> bytes:
    try:
        text = json.dumps(
            payload,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
            default=_to_builtins,
        )
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("the payload holds half of a surrogate pair, which is no text") from None
    except RecursionError:
        raise ValueError(f"the payload is nested deeper than {DEPTH_MAX} levels") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"the payload cannot be written as JSON: {error}") from None


def _to_builtins(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _deeper_than(encoded: bytes, levels: int) -> bool:
    if encoded.count(b"{") + encoded.count(b"[") <= levels:
        return False  # nearly every payload ends here
    depth = 0
    for bracket in _STRING.sub(b"", encoded).translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"{[" else -1
        if depth > levels:
            return True
    return False


def check_size(encoded: bytes, bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
    if len(encoded) > bytes_max:
        raise ValueError(f"the payload has {len(encoded)} bytes; at most {bytes_max} are allowed")


def check_names(event_type: str, tenant: str | None, external_id: str | None) -> None:
    """ValueError for what the API would refuse."""
    if not isinstance(event_type, str) or not _EVENT_TYPE.fullmatch(event_type):
        raise ValueError(
            f"event_type must be 1 to 100 of A-Z a-z 0-9 . _ - and not {str(event_type)[:120]!r}"
        )
    if tenant is not None:
        _check_text("tenant", tenant, 0, TENANT_MAX)
    if external_id is not None:
        _check_text("external_id", external_id, 1, EXTERNAL_ID_MAX)


def _check_text(name: str, value: str, shortest: int, longest: int) -> None:
    if not isinstance(value, str) or not shortest <= len(value) <= longest:
        raise ValueError(f"{name} must be a text of {shortest} to {longest} characters")
    if "\0" in value or not _is_unicode(value):
        raise ValueError(f"{name} holds a NUL or half of a surrogate pair")


def _is_unicode(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
