"""Lists in pages: where one ended, the next goes on, whatever was added meanwhile.

Reads   rows of the observer        Writes  nothing

A cursor is the key of the last row, wrapped, so no client depends on its form.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from surehook.actions.keys import Scope
from surehook.api.problems import invalid
from surehook.api.routes import Answer, Call, Routes
from surehook.model.moments import encode
from surehook.model.resources.shared import BIGGEST_ID, Page
from surehook.store.observer import Found

Item = TypeVar("Item")

_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)
_ids = msgspec.json.Decoder(tuple[int])
_times = msgspec.json.Decoder(tuple[datetime, int])


def before_id(cursor: str | None) -> int:
    """Where a list in order of ids goes on."""
    return BIGGEST_ID if cursor is None else _decoded(cursor, _ids)[0]


def before_time(cursor: str | None) -> tuple[datetime, int]:
    """Where a list in order of time goes on."""
    return (_END_OF_TIME, BIGGEST_ID) if cursor is None else _decoded(cursor, _times)


def add_list(
    routes: Routes,
    page: object,
    query: type[msgspec.Struct],
    *,
    scope: Scope = Scope.READ,
    before: Callable[[str | None], object] = before_id,
    shown: Callable[[Call, list[Any]], Awaitable[list[Any]]] | None = None,
) -> None:
    """GET of all that the tag names, by the query's filters. `shown`: what a page shows of them."""
    name = routes.tag.replace(" ", "_")

    async def handler(call: Call) -> Answer:
        fetch = getattr(call.api.observer, name)
        found: Page[Any] = await _page(call, fetch, before(call.query.cursor))
        return Answer(200, Page(await shown(call, found.items), found.next) if shown else found)

    handler.__name__ = f"list_{name}"
    handler.__doc__ = f"List {routes.tag}, newest first."
    path = f"/v1/{name.replace('_', '-')}"
    routes("GET", path, scope, page, query=query, client=f"{name}.list")(handler)


async def _page(
    call: Call, fetch: Callable[..., Awaitable[Found[Item]]], before: object
) -> Page[Item]:
    """What `fetch` finds for the query's filters, of the tenant that the key may see."""
    filters = msgspec.structs.asdict(call.query)
    count, _ = filters.pop("limit"), filters.pop("cursor")
    if call.key.tenant is not None:
        if filters["tenant"] not in (None, call.key.tenant):
            return Page([], None)
        filters["tenant"] = call.key.tenant
    found = await fetch(before, count, **filters)
    return Page(found.items, encoded_cursor(found.last))


def encoded_cursor(last: tuple[object, ...] | None) -> str | None:
    return None if last is None else urlsafe_b64encode(encode(last)).decode().rstrip("=")


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
