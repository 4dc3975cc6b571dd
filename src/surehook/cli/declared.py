"""Options, columns and facts of the commands, taken from what model/resources declares. Pure.

A command names the resource, or the query. What it spells in its own way it hands over by the
field's name (`own`); `first` are the fields that come before the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
from msgspec import NODEFAULT, UNSET, Struct, UnsetType

from surehook.cli.arguments import Finite, OneOf, moment, number
from surehook.model.fields import Field, Setting, fields

Decorator = Callable[[Callable[..., None]], Callable[..., None]]
Columns = dict[str, Callable[[Any], object]]

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


def filter_options(
    query: type[Struct], first: Sequence[str] = (), without: Sequence[str] = ()
) -> Decorator:
    """An option for each filter of a list."""
    found = _ordered(fields(query), first)
    return _all(
        _option(one, one.shown.help or _filter_help(one))
        for one in found
        if one.name not in (*OF_PAGES, *without)
    )


def _filter_help(one: Field) -> str:
    kind = _plain(one.type)
    what, _, end = one.name.rpartition("_")
    if one.name == "tenant":
        return "Only of this tenant; '' is for those without one."
    if kind is datetime and end == "from":
        return f"{what.capitalize()} then or later; 1h is an hour ago."
    if kind is datetime:
        return f"{what.capitalize()} before."
    if kind is int:
        return f"Only of this {what}."
    if kind is bool:
        return "Only those that are, or are not."
    return f"Only with this {one.name.replace('_', ' ')}."


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
    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for one in reversed(list(decorators)):
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


def facts_of(
    resource: type[Struct], item: object, without: Sequence[str] = ()
) -> list[tuple[str, object]]:
    """What is always shown, then the rest of what there is."""
    found = [
        (one, getattr(item, one.name))
        for one in fields(resource)
        if one.record is None and one.name not in without
    ]
    always = [(one.name, value) for one, value in found if one.shown.always]
    return always + [
        (one.name, value) for one, value in found if not one.shown.always and value not in EMPTY
    ]


def _ordered(found: Iterable[Field], first: Sequence[str]) -> list[Field]:
    return sorted(found, key=lambda one: (*first, one.name).index(one.name))
