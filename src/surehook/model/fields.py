"""What a declaration says of a field beside its type and limits, and what follows from it. Pure.

A resource is one frozen struct, in the order in which people see its fields. Annotations say the
rest: msgspec's Meta the limits and the description, `Setting` that its owner decides it, `Shown`
how the command line shows it. Bodies of requests, parameters of statements, columns, options and
the client are derived: the fields are listed nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, UnsetType

from surehook.model.moments import Moment

Stored = Literal["plain", "staged", "sealed"]


@dataclass(frozen=True, slots=True)
class Setting:
    """The owner decides it. No default: it must be given at creation."""

    default: object = NODEFAULT
    once: bool = False  # at creation only
    stored: Stored = "plain"  # else the store has its own statement for it
    ceiling: str = ""  # the setting of the configuration that bounds it

    @property
    def clearable(self) -> bool:
        return self.default is None and not self.once


@dataclass(frozen=True, slots=True)
class Shown:
    """At the command line: `column` is its heading in lists, `always`: also where it is empty."""

    column: str = ""
    always: bool = False
    option: str = ""  # instead of --name-with-dashes
    argument: bool = False  # by its place, not by name
    help: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """Where a value comes from, if not from the column of the same name; "" = from no column."""

    expression: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a declaration, taken apart."""

    name: str
    type: Any  # as msgspec wants it
    setting: Setting | None
    shown: Shown
    column: str | None  # an expression with {} for the table; None = not stored
    record: type[Struct] | None  # a struct inside: its columns are this one's


@cache
def fields(resource: type[Struct]) -> tuple[Field, ...]:
    """A resource's fields in order."""
    hints = get_type_hints(resource, include_extras=True)
    return tuple(_field(name, hints[name]) for name in resource.__struct_fields__)


def _field(name: str, kind: Any) -> Field:
    notes = list(_annotations(kind))
    setting = next((note for note in notes if isinstance(note, Setting)), None)
    shown = next((note for note in notes if isinstance(note, Shown)), Shown())
    column = next(
        (note.expression or None for note in notes if isinstance(note, Column)), f"{{}}.{name}"
    )
    return Field(name, kind, setting, shown, column, _struct_in(kind))


def _annotations(kind: Any) -> Iterator[object]:
    """Those of the type itself and of the members of a union."""
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        yield from notes
        yield from _annotations(inner)
    elif get_origin(kind) is not None:
        for member in get_args(kind):
            yield from _annotations(member)


def _members(kind: Any) -> Iterator[Any]:
    """The types that a value may have, without annotations."""
    if get_origin(kind) in (Annotated, Union, UnionType):
        for member in get_args(kind)[: 1 if get_origin(kind) is Annotated else None]:
            yield from _members(member)
    else:
        yield kind


def _struct_in(kind: Any) -> type[Struct] | None:
    structs = (one for one in _members(kind) if isinstance(one, type) and issubclass(one, Struct))
    return next(structs, None)


# ── Bodies ────────────────────────────────────────────────────────────────────────────────────


def settings(resource: type[Struct]) -> dict[str, Setting]:
    return {one.name: one.setting for one in fields(resource) if one.setting is not None}


def new_body(name: str, doc: str, *declared: type[Struct]) -> type[Struct]:
    """What creates one: every setting."""
    return _body(
        name,
        doc,
        [
            (one.name, one.type)
            if one.setting.default is NODEFAULT
            else (one.name, _or_none(one), one.setting.default)
            for resource in declared
            for one in fields(resource)
            if one.setting is not None
        ],
    )


def _or_none(one: Field) -> Any:
    """What may be left out, for someone else to decide, may also be null."""
    assert one.setting is not None
    nullable = NoneType in _members(one.type)
    return one.type if nullable or one.setting.default is not None else one.type | None


def changes_body(name: str, doc: str, *declared: type[Struct]) -> type[Struct]:
    """What changes one: any of the settings that are not decided once and for all."""
    return _body(
        name,
        doc,
        [
            (one.name, one.type | UnsetType, UNSET)
            for resource in declared
            for one in fields(resource)
            if one.setting is not None and not one.setting.once
        ],
    )


def _body(name: str, doc: str, made: list[Any]) -> type[Struct]:
    return msgspec.defstruct(
        name,
        made,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
        namespace={"__doc__": doc},
    )


# ── Columns ───────────────────────────────────────────────────────────────────────────────────


def columns(resource: type[Struct], table: str, prefix: str = "") -> Iterator[str]:
    """The select list of a resource; with a prefix, that of one inside another, from where it was
    selected under its own names."""
    of = f"{table}." if table else ""
    for one in fields(resource):
        if one.record is not None or one.column is None:
            continue
        text = f"{of}{one.name}" if prefix else one.column.replace("{}.", of)
        label = f"{prefix}{one.name}"
        yield text if text == f"{of}{label}" else f"{text} AS {label}"


def labels(resource: type[Struct], inside: Container[str], prefix: str = "") -> Iterator[str]:
    """The names of the columns that a row of this resource has, in order. Of the records inside it
    a row has those that are named."""
    for one in fields(resource):
        if one.column is None:
            continue
        if one.record is None:
            yield f"{prefix}{one.name}"
        elif one.name in inside:
            yield from labels(one.record, (), f"{prefix}{one.name}_")


def plain(resource: type[Struct]) -> list[str]:
    """The settings that a statement takes and writes as they are."""
    return [name for name, one in settings(resource).items() if one.stored == "plain"]


@cache
def builder(
    record: type[Struct], columns: tuple[str, ...], prefix: str = ""
) -> Callable[[Sequence[Any]], Any]:
    """From a row with these columns to the record; what it has no column for is None or absent."""
    absent = {one.name: None for one in msgspec.structs.fields(record) if one.required}
    own: list[tuple[str, int, Callable[[Any], Any]]] = []
    inner: list[tuple[str, int, Callable[[Sequence[Any]], Any]]] = []
    for one in fields(record):
        label = f"{prefix}{one.name}"
        if one.record is None and label in columns:
            own.append((one.name, columns.index(label), _reader(one.type)))
        elif one.record is not None and f"{label}_id" in columns:
            make = builder(one.record, columns, f"{label}_")
            inner.append((one.name, columns.index(f"{label}_id"), make))

    def build(row: Sequence[Any]) -> Any:
        made = absent | {name: read(row[at]) for name, at, read in own}
        for name, first, make in inner:
            made[name] = None if row[first] is None else make(row)
        return record(**made)

    return build


def _reader(kind: Any) -> Callable[[Any], Any]:
    """From a column's value to a field's: JSON stays as it is, a list is kept with commas."""
    members = {get_origin(member) or member for member in _members(kind)}
    if msgspec.Raw in members:
        return lambda value: msgspec.Raw(value.encode())
    if list in members:
        return lambda value: value.split(",")
    return _value


def _value(value: Any) -> Any:
    return Moment.of(value) if isinstance(value, datetime) else value


def column_names(resource: type[Struct]) -> Iterator[str]:
    """The columns of the table that a resource is kept in."""
    for one in fields(resource):
        if one.record is None and one.column == f"{{}}.{one.name}":
            yield one.name
