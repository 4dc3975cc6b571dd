"""The payload that an application publishes, as strict JSON.

Reads   what it is given       Writes  nothing

The client and the outbox share this. The API checks the same rules again: here a broken one is an
error in the caller's own stack, at the cost of microseconds.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from surehook.model import rules
from surehook.model.rules import Broken

_RAW = msgspec.json.Decoder(msgspec.Raw)


def encode(payload: object) -> bytes:
    """The payload as strict JSON; Broken, a ValueError, says what is wrong with it.

    bytes are JSON already and stay as they are, but for white space around the value. Anything
    else is encoded: what `json` knows, and dates, UUIDs, decimals, enums, dataclasses and msgspec
    structs as msgspec writes them. NaN and infinity are refused, not turned into something else.
    """
    if isinstance(payload, (bytes, bytearray, memoryview, msgspec.Raw)):
        return _checked(bytes(payload))
    encoded = _encoded(payload)
    rules.check_depth(encoded)
    return encoded


def _checked(given: bytes) -> bytes:
    rules.check_depth(given)  # before anything descends into it
    try:
        given.decode("utf-8")
        return bytes(_RAW.decode(given))
    except UnicodeDecodeError:
        raise Broken("payload", "The payload's bytes are not UTF-8.") from None
    except msgspec.DecodeError as error:
        raise Broken("payload", f"The payload's bytes are not JSON: {error}.") from None


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
        raise Broken("payload", "The payload contains an unpaired surrogate.") from None
    except RecursionError:
        raise rules.too_deep() from None
    except (TypeError, ValueError) as error:
        raise Broken("payload", f"The payload cannot be written as JSON: {error}.") from None


def _to_builtins(value: Any) -> Any:
    return msgspec.to_builtins(value)
