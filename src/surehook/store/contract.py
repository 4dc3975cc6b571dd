"""What a store is: a login's statements as methods. Each engine implements those that differ.

A method is one of three: `@statement`, which is the statement of its name; a few lines around
statements, the same on every engine; or abstract. What an engine does in its own way is in
store/<engine>/<the same file>.py.
"""

from __future__ import annotations

import inspect
from abc import ABC
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from operator import itemgetter
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from surehook.model.resources import DECLARED
from surehook.store.database import Database, Row

P = ParamSpec("P")
Returned = TypeVar("Returned")

# What an engine returns as something else: MySQL's booleans are numbers.
_CONVERTED = (bool, float, bytes)


class Store(ABC):  # noqa: B024 (what is abstract is each login's)
    """A login's statements on one database."""

    def __init__(self, database: Database) -> None:
        self._database = database


def statement(method: Callable[P, Awaitable[Returned]]) -> Callable[P, Awaitable[Returned]]:
    """Run the statement of the method's name with the method's arguments, and return what the
    method's annotation says: nothing, a list, or the first row (None only if it may be)."""
    names = tuple(inspect.signature(method).parameters)
    returned = get_type_hints(method)["return"]
    answer = _answer(returned)
    fetch = "records" if _is_declared(returned) else "all"

    @wraps(method)
    async def run(*arguments: P.args, **named: P.kwargs) -> Returned:
        values: dict[str, Any] = dict(zip(names, arguments, strict=False)) | named
        store = values.pop("self")
        rows = await getattr(store._database, fetch)(method.__name__, **values)
        answered: Returned = answer(rows)
        return answered

    return run


def _answer(kind: Any) -> Callable[[Sequence[Row]], Any]:
    if kind is NoneType:
        return lambda _rows: None
    if get_origin(kind) is list:
        make = _maker(get_args(kind)[0])
        return lambda rows: [make(row) for row in rows]
    if get_origin(kind) in (UnionType, Union):  # T | None
        make = _maker(get_args(kind)[0])
        return lambda rows: make(rows[0]) if rows and not _is_null(rows[0]) else None
    make = _maker(kind)
    return lambda rows: make(rows[0])


def _is_declared(kind: Any) -> bool:
    """Whether the rows are of a resource: those are read by the names of their columns."""
    return any(one in DECLARED.values() for one in (kind, *get_args(kind)))


def _is_null(row: Any) -> bool:
    return not isinstance(row, Struct) and row[0] is None


def _maker(kind: Any) -> Callable[[Row], Any]:
    """A row as a record, as a tuple, or its only column."""
    if _is_declared(kind):
        return lambda record: record
    if get_origin(kind) is tuple:
        return lambda row: tuple(map(_value, get_args(kind), row))
    if isinstance(kind, type) and issubclass(kind, Struct):
        return lambda row: kind(*row)
    return (lambda row: kind(row[0])) if kind in _CONVERTED else itemgetter(0)


def _value(kind: Any, value: Any) -> Any:
    return kind(value) if kind in _CONVERTED else value
