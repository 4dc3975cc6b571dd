"""What follows from a declaration: bodies, columns, records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET, Meta, Struct, UnsetType

from surehook.model import fields
from surehook.model.fields import Column, Setting
from surehook.model.moments import Moment

AT = datetime(2026, 11, 15, 20, 55, 1, tzinfo=UTC)


class Part(Struct, frozen=True, kw_only=True):
    id: int
    made_at: datetime


class Thing(Struct, frozen=True, kw_only=True):
    id: int
    owner: Annotated[str, Setting(None, once=True)]
    name: Annotated[str, Meta(max_length=5), Setting()]
    size: Annotated[Annotated[int, Meta(ge=1)] | None, Setting(None)]
    url: Annotated[str, Setting(stored="staged")]
    origin: Annotated[int | None, Column("NULLIF({}.origin, 0)")]
    computed: Annotated[str | None, Column("")]
    part: Part | None
    secret: Annotated[str | UnsetType, Column("")] = UNSET


New: Any = fields.new_body("New", "A new one.", Thing)
Changes: Any = fields.changes_body("Changes", "Another one.", Thing)


def test_a_new_body_has_every_setting_and_only_those() -> None:
    given = msgspec.json.decode(b'{"name": "a", "url": "b"}', type=New)
    assert (given.owner, given.name, given.size, given.url) == (None, "a", None, "b")
    for wrong in (b'{"name": "a"}', b'{"name": "a", "url": "b", "id": 1}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(wrong, type=New)


def test_changes_are_what_is_named_and_never_what_is_decided_once() -> None:
    given = msgspec.json.decode(b'{"size": null}', type=Changes)
    assert given.size is None and given.name is UNSET
    with pytest.raises(msgspec.ValidationError, match="owner"):
        msgspec.json.decode(b'{"owner": "me"}', type=Changes)


@pytest.mark.parametrize("body", [b'{"name": "abcdef"}', b'{"size": 0}', b'{"name": null}'])
def test_limits_hold_for_changes_too(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=Changes)


def test_columns_are_named_after_the_fields() -> None:
    assert list(fields.columns(Thing, "t")) == [
        *("t.id", "t.owner", "t.name", "t.size", "t.url"),
        "NULLIF(t.origin, 0) AS origin",
    ]
    assert list(fields.columns(Part, "p", "part_")) == [
        "p.id AS part_id",
        "p.made_at AS part_made_at",
    ]
    assert list(fields.column_names(Thing)) == ["id", "owner", "name", "size", "url"]


def test_a_row_becomes_a_record_by_its_columns_names() -> None:
    columns = tuple(fields.labels(Thing, {"part"}))
    row = [{"id": 1, "part_id": 2, "part_made_at": AT}.get(name, name) for name in columns]
    made = fields.builder(Thing, columns)(row)
    assert (made.id, made.owner, made.url, made.origin) == (1, "owner", "url", "origin")
    assert made.computed is None and made.secret is UNSET
    assert made.part == Part(id=2, made_at=AT) and isinstance(made.part.made_at, Moment)


def test_a_record_inside_is_none_where_its_row_is_missing_or_was_not_asked_for() -> None:
    for inside in ({"part"}, set[str]()):
        columns = tuple(fields.labels(Thing, inside))
        row = [None if name.startswith("part") else 1 for name in columns]
        assert fields.builder(Thing, columns)(row).part is None
