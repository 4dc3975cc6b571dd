"""What JSON is accepted: RFC 8259 to the letter, not too deep, no key twice in our own envelope.

Reads   bytes of a request      Writes  nothing

msgspec checks the grammar of everything, also of what it keeps as Raw: no NaN, no lone surrogate
escape, no control character, nothing after the end. What it leaves open stands here. None of it
builds the payload's values, so that a payload costs a few microseconds and its numbers may be of
any size.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn, TypeVar

import msgspec
from msgspec.inspect import (
    EnumType,
    ListType,
    LiteralType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from surehook.api.problems import Problem, invalid
from surehook.model import rules

Shape = TypeVar("Shape")

_AT = re.compile(r" - at `(?:key in )?\$(.*)`$")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")


def decode(decoder: msgspec.json.Decoder[Shape], body: bytes, inside: str = "") -> Shape:
    """The body as its shape, or the problem that names the field. The depth was checked before."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as wrong:
        refuse(str(wrong), decoder.type, inside)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        reason = str(wrong) if isinstance(wrong, msgspec.DecodeError) else "It is not UTF-8."
        raise _not_json(reason) from None


def check_depth(body: bytes, around: int, field: str) -> None:
    """Before anything descends into a body: it is nested at most as deep as a payload may be, and
    the levels `around` it."""
    if rules.deeper_than(body, rules.DEPTH_MAX + around):
        if rules.unbalanced(body):
            raise _not_json("The brackets do not match.")
        raise rules.too_deep(field)


def _not_json(reason: str) -> Problem:
    return invalid(f"The body is not JSON as RFC 8259 defines it: {reason}", "body")


def refuse(message: str, shape: object, inside: str = "") -> NoReturn:
    """Raise what msgspec says about a value of this shape, with the field's name taken out of it
    and, where only some values are permitted, with these."""
    place = _AT.search(message)
    names = [inside] if inside else []
    if place:
        path = [name for name in re.split(r"[.\[\]]+", place[1]) if name]
        names += path
        message = message[: place.start()]
        if message.startswith("Invalid enum value"):
            message += f": it is one of {', '.join(permitted(shape, path))}"
    missing = _MISSING.search(message) or _UNKNOWN.search(message)
    if missing:
        names.append(missing[1])
    raise invalid(f"{message}.", "/".join(names) or "body")


def permitted(shape: object, path: list[str]) -> list[str]:
    """The values that an enumeration in this place of a shape has, as they are to be written."""
    kind = type_info(shape)
    for name in path:
        inner = next(one for one in _alternatives(kind) if isinstance(one, StructType | ListType))
        if isinstance(inner, ListType):
            kind = inner.item_type
        else:
            kind = next(field.type for field in inner.fields if field.encode_name == name)
    for one in _alternatives(kind):
        if isinstance(one, EnumType):
            return [str(member.value) for member in one.cls]
        if isinstance(one, LiteralType):
            return [str(value) for value in one.values]
    return []


def _alternatives(kind: Type) -> tuple[Type, ...]:
    return kind.types if isinstance(kind, UnionType) else (kind,)


def payload_text(raw: bytes, field: str = "payload") -> str:
    """The payload exactly as it was sent; its grammar was checked when it was decoded."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise invalid("The payload is not UTF-8.", field) from None


def refuse_repeated_keys(body: bytes, raw: bytes, names: int, texts: int, inside: str = "") -> None:
    """Refuse an object that has a key twice. `raw` is the part of it that was kept as Raw.

    Outside of that part a body has two quotes for each of its `names` and of its `texts` (values
    that are strings), unless a key is repeated: its quotes are then too many. Only a
    backslash outside of the raw part makes it necessary to look closer.
    """
    if ((b"\\" in body) and body.count(b"\\") != raw.count(b"\\")) or body.count(b'"') - raw.count(
        b'"'
    ) != 2 * (names + texts):
        refuse_any_repeated_key(body, inside)


def refuse_any_repeated_key(body: bytes, inside: str = "") -> None:
    """The same, slowly: by reading all of it."""
    outermost: list[str] = []

    def pairs(items: list[tuple[str, object]]) -> None:
        outermost[:] = [name for name, _ in items]

    # The outermost object ends last: what is inside of a payload may repeat keys as it likes.
    json.loads(body, object_pairs_hook=pairs, parse_int=str, parse_float=str)
    for name in outermost:
        if outermost.count(name) > 1:
            field = f"{inside}/{name}" if inside else name
            raise invalid(f"Duplicate key {name}.", field)
