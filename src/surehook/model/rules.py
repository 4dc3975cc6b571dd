"""What an event's type, tenant, id and payload may be: each rule once, for every border.

Reads   what it is given       Writes  nothing

The API, the client, the outbox, the commands and the keys all ask here, so that what one of them
accepts, none of the others refuses.
"""

from __future__ import annotations

import re
import zlib

from surehook.errors import FieldRefused

DEPTH_MAX = 30
PAYLOAD_BYTES_MAX = 1024 * 1024
EVENT_TYPE_MAX = 100
TENANT_MAX = 100
EXTERNAL_ID_MAX = 255
NAME_MAX = 100

# Of one character of an event type, and of any other text. The second leaves out what a terminal
# or a log line would obey instead of show: control characters, line separators, and marks that
# change the direction of writing. It is a fixed list because str.isprintable() follows the Unicode
# version of the Python that runs, and sender and receiver need not run the same one.
EVENT_TYPE_CHARACTER = r"[A-Za-z0-9._-]"
TEXT_CHARACTER = r"[^\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"

_EVENT_TYPE = re.compile(f"{EVENT_TYPE_CHARACTER}{{1,{EVENT_TYPE_MAX}}}")
_TEXT = re.compile(f"{TEXT_CHARACTER[:-1]}\\ud800-\\udfff]*")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"?')
_BRACKETS_ONLY = bytes.maketrans(b"{}", b"[]")
_NO_MARKS = bytes(sorted(set(range(256)) - set(b'[]{}"')))


class Broken(FieldRefused, ValueError):
    """A rule is broken; `field` says where. A ValueError for those who call us as a library."""


class TooLarge(Broken):
    """The payload has more bytes than are allowed here."""


# ── Names ─────────────────────────────────────────────────────────────────────────────────────


def check_names(event_type: str, tenant: str | None, external_id: str | None) -> None:
    """Those of one event; None = not given."""
    check_event_type(event_type)
    if tenant is not None:
        check_tenant(tenant)
    if external_id is not None:
        check_external_id(external_id)


def check_event_type(value: str, field: str = "event_type") -> None:
    if not isinstance(value, str) or not _EVENT_TYPE.fullmatch(value):
        allowed = f"1 to {EVENT_TYPE_MAX} of A-Z, a-z, 0-9, '.', '_' and '-'"
        raise Broken(field, f"{_name(field)} must be {allowed}.")


def check_tenant(value: str, field: str = "tenant") -> None:
    _check_text(value, field, 0, TENANT_MAX)


def check_external_id(value: str, field: str = "external_id") -> None:
    _check_text(value, field, 1, EXTERNAL_ID_MAX)


def check_key_name(value: str, field: str = "name") -> None:
    _check_text(value, field, 1, NAME_MAX)


def _check_text(value: str, field: str, shortest: int, longest: int) -> None:
    if not isinstance(value, str) or not shortest <= len(value) <= longest:
        bounds = f"{shortest} to {longest}" if shortest else f"at most {longest}"
        raise Broken(field, f"{_name(field)} must be a text of {bounds} characters.")
    if not _TEXT.fullmatch(value):
        raise Broken(field, f"{_name(field)} contains {_kind_of_the_first_wrong(value)}.")


def _kind_of_the_first_wrong(value: str) -> str:
    wrong = next(character for character in value if not _TEXT.fullmatch(character))
    kind = "an unpaired surrogate" if "\ud800" <= wrong <= "\udfff" else "a control character"
    return f"{kind}, U+{ord(wrong):04X}"


def _name(field: str) -> str:
    """events/3/tenant → tenant"""
    return field.rpartition("/")[2]


# ── Payloads ──────────────────────────────────────────────────────────────────────────────────


def check_depth(encoded: bytes, field: str = "payload", around: int = 0) -> None:
    """`around`: the levels of the envelope that it is in."""
    if deeper_than(encoded, DEPTH_MAX + around):
        raise too_deep(field)


def too_deep(field: str = "payload") -> Broken:
    return Broken(field, f"The {_name(field)} is nested deeper than {DEPTH_MAX} levels.")


def check_size(encoded: bytes, bytes_max: int = PAYLOAD_BYTES_MAX, field: str = "payload") -> None:
    if len(encoded) > bytes_max:
        given = f"The {_name(field)} has {len(encoded)} bytes"
        raise TooLarge(field, f"{given}; at most {bytes_max} are allowed.")


def deeper_than(encoded: bytes, levels: int) -> bool:
    """Whether JSON is nested deeper than that. It looks at brackets only and never recurses, so
    that it can be asked before anything reads the JSON, valid or not."""
    if encoded.count(b"[") + encoded.count(b"{") <= levels:
        return False  # nearly every payload ends here
    brackets = _brackets(encoded)
    for _ in range(levels):  # each round takes the innermost level away
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def unbalanced(encoded: bytes) -> bool:
    """Whether it cannot be JSON because an array or an object does not end."""
    brackets = _brackets(encoded)
    return brackets.count(b"[") != brackets.count(b"]")


def _brackets(encoded: bytes) -> bytes:
    """The brackets outside of strings, all of one kind."""
    if b"\\" in encoded:
        encoded = _ESCAPE.sub(b"", encoded)
    # Two quotes side by side are a string without brackets, or the end of one and the beginning of
    # the next: without them every bracket is still on the same side of a quote.
    marks = encoded.translate(_BRACKETS_ONLY, _NO_MARKS).replace(b'""', b"")
    return _STRING.sub(b"", marks) if b'"' in marks else marks


# ── Buckets ───────────────────────────────────────────────────────────────────────────────────


def key_hash(tenant: str, external_id: str) -> int:
    """What decides the bucket of an event with a key: fixed, so that repetitions meet."""
    return zlib.crc32(f"{tenant}\0{external_id}".encode())
