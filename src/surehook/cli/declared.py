"""What commands take and show, from what model/resources declares: options, lists, columns, facts.

Reads   declarations; a list from the API       Writes  standard output

A command names the resource, or the query. What it spells in its own way it hands over by the
field's name (`own`); `first` are the fields that come before the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import islice
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
from msgspec import NODEFAULT, UNSET, Struct, UnsetType

from surehook.cli.arguments import Finite, OneOf, moment, number
from surehook.cli.connection import Api, through_api
from surehook.cli.output import as_lines_option, limit_option, note, table, write_json
from surehook.model.fields import Field, Setting, fields

Decorator = Callable[[Callable[..., None]], Callable[..., None]]
Columns = dict[str, Callable[[Any], object]]

PAGE_MAX = 200
OF_PAGES = ("limit", "cursor")
NO_OPTION = "-"
EMPTY: tuple[object, ...] = (None, UNSET, [], "")


# ── Options ───────────────────────────────────────────────────────────────────────────────────


def setting_options(
    *declared: type[Struct], change: bool, first: Sequence[str], own: Mapping[str, Decorator]
) -> Decorator:
    """Arguments and options for what can be set at creation, or for what can be changed."""
    found = [
        (one, one.setting)
        for one in _ordered((one for kind in declared for one in fields(kind)), first)
        if one.setting is not None and not (change and one.setting.once)
    ]
    made = [
        own[one.name] if one.name in own else _setting(one, setting, change)
        for one, setting in found
        if one.name in own or one.shown.option != NO_OPTION
    ]
    if change:
        clearable = click.Choice([one.name for one, setting in found if setting.clearable])
        text = "Take this setting away; may be repeated."
        made.append(click.option("--clear", multiple=True, type=clearable, help=text))
    return _all(made)


def _setting(one: Field, setting: Setting, change: bool) -> Decorator:
    if one.shown.argument and not change:
        return click.argument(one.name)
    default = "" if setting.default in (None, NODEFAULT) else f"[default: {setting.default}]"
    return _option(one, one.shown.help or default)


def list_command(
    group: click.Group,
    items: str,
    query: type[Struct],
    shown: Columns,
    empty: str,
    first: Sequence[str] = (),
) -> None:
    """`… list` of a group: at most so many; whether there are more is noted."""

    @group.command("list", help=f"List {items.replace('_', ' ')}, newest first.")
    @filter_options(query, first)
    @limit_option
    @as_lines_option
    @through_api
    def command(api: Api, limit: int, as_json: bool, **filters: Any) -> None:
        with api.client() as client:
            found = getattr(client, items).list(limit=min(PAGE_MAX, limit + 1), **filters)
            page = islice(found, limit)
            if as_json:
                for item in page:
                    write_json(item)
            else:
                table_of(shown, page, empty)
            if next(found, None) is not None:
                note(f"There are more than {limit}; --limit shows more, a filter fewer.")


def filter_options(
    query: type[Struct], first: Sequence[str] = (), without: Sequence[str] = ()
) -> Decorator:
    """An option for each filter of a list."""
    return _all(
        _option(one, one.shown.help or _filter_help(one))
        for one in _ordered(fields(query), first)
        if one.name not in (*OF_PAGES, *without)
    )


def _filter_help(one: Field) -> str:
    what, _, end = one.name.rpartition("_")
    texts = {
        "tenant": "Only of this tenant; '' is for those without one.",
        "id": f"Only of this {what}.",
        "from": f"{what.capitalize()} then or later; 1h is an hour ago.",
        "until": f"{what.capitalize()} before.",
    }
    if _plain(one.type) is bool:
        return "Only those that are, or are not."
    return texts.get(end, f"Only with this {one.name.replace('_', ' ')}.")


def _option(one: Field, text: str) -> Decorator:
    name = one.shown.option or f"--{one.name.replace('_', '-')}"
    return click.option(name, one.name, default=None, help=text, **_kind(one))


def _kind(one: Field) -> dict[str, Any]:
    """What click must know of the type."""
    kind = _plain(one.type)
    if kind is datetime:
        return {"type": moment, "metavar": "TIME"}
    if kind is int and one.name.endswith("_id"):
        return {"type": number, "metavar": "ID"}
    if kind in (int, float):
        return {"type": int if kind is int else Finite()}
    if get_origin(kind) is Literal:
        return {"type": click.Choice(get_args(kind))}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        words = one.name.split("_")
        return {"type": OneOf(" ".join(words), kind), "metavar": words[-1].upper()}
    return {"metavar": "NAME"} if one.name == "tenant" else {}


def _plain(kind: Any) -> Any:
    """The type without its annotations, and without what stands for its absence."""
    if get_origin(kind) is Annotated:
        return _plain(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return next(_plain(one) for one in get_args(kind) if one not in (NoneType, UnsetType))
    return kind


def _all(decorators: Iterable[Decorator]) -> Decorator:
    last_first = list(decorators)[::-1]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for one in last_first:
            command = one(command)
        return command

    return decorate


# ── What is shown ─────────────────────────────────────────────────────────────────────────────


def columns(
    resource: type[Struct], first: Sequence[str] = (), **own: Callable[[Any], object]
) -> Columns:
    """The columns of a list."""
    return {
        one.shown.column: own.get(one.name) or attrgetter(one.name)
        for one in _ordered(fields(resource), first)
        if one.shown.column
    }


def table_of(shown: Columns, items: Iterable[Any], empty: str) -> None:
    rows = [[column(item) for column in shown.values()] for item in items]
    table(list(shown), rows, empty)


def facts_of(
    resource: type[Struct], item: object, without: Sequence[str] = ()
) -> list[tuple[str, object]]:
    """What is always shown, then the rest of what there is."""
    found = sorted(fields(resource), key=lambda one: not one.shown.always)
    return [
        (one.name, value)
        for one in found
        if one.record is None and one.name not in without
        if (value := getattr(item, one.name)) not in EMPTY or one.shown.always
    ]


def _ordered(found: Iterable[Field], first: Sequence[str]) -> list[Field]:
    return sorted(found, key=lambda one: (*first, one.name).index(one.name))
