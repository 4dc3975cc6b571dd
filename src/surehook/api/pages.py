"""Lists in pages: where one ended, the next goes on, whatever was added meanwhile.

Reads   rows of the observer        Writes  nothing

A cursor is the key of the last row, wrapped so that nobody builds on its form.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from surehook.api.auth import Key
from surehook.api.problems import invalid
from surehook.api.shapes import Page, rfc3339
from surehook.model.resources.shared import BIGGEST_ID
from surehook.store.database import Row
from surehook.store.observer import Found

Shape = TypeVar("Shape", bound=msgspec.Struct)

_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)
_ids = msgspec.json.Decoder(tuple[int])
_times = msgspec.json.Decoder(tuple[datetime, int])


def shaped(shape: type[Shape], row: Row) -> Shape:
    """A row whose columns stand in the order of the shape's fields."""
    return shape(*[rfc3339(value) if isinstance(value, datetime) else value for value in row])


def before_id(cursor: str | None) -> int:
    """Where a list in order of ids goes on."""
    return BIGGEST_ID if cursor is None else _decoded(cursor, _ids)[0]


def before_time(cursor: str | None) -> tuple[datetime, int]:
    """Where a list in order of time goes on."""
    return (_END_OF_TIME, BIGGEST_ID) if cursor is None else _decoded(cursor, _times)


async def page_of(
    key: Key, asked: str | None, fetch: Callable[[str | None], Awaitable[Found]], shape: type[Shape]
) -> Page[Shape]:
    """A page of what `fetch` finds for the tenant that the key may see and that was asked for."""
    if key.tenant is not None and asked not in (None, key.tenant):
        return Page([], None)
    found = await fetch(asked if key.tenant is None else key.tenant)
    return Page([shaped(shape, row) for row in found.rows], encoded_cursor(found.last))


def encoded_cursor(last: tuple[object, ...] | None) -> str | None:
    if last is None:
        return None
    return urlsafe_b64encode(msgspec.json.encode(last)).decode().rstrip("=")


Keys = TypeVar("Keys")


def _decoded(cursor: str, decoder: msgspec.json.Decoder[Keys]) -> Keys:
    try:
        text = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        key = decoder.decode(text)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise invalid("It is not a cursor of this list.", "cursor") from None
    if not all(_storable(part) for part in key):  # type: ignore[attr-defined]
        raise invalid("It is not a cursor of this list.", "cursor")
    return key


def _storable(part: object) -> bool:
    if isinstance(part, datetime):
        return part.tzinfo is not None and part.year > 1900
    return isinstance(part, int) and 0 <= part <= BIGGEST_ID
