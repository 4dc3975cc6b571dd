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
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

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
    answer = _answer(get_type_hints(method)["return"])

    @wraps(method)
    async def run(*arguments: P.args, **named: P.kwargs) -> Returned:
        values: dict[str, Any] = dict(zip(names, arguments, strict=False)) | named
        store = values.pop("self")
        answered: Returned = answer(await store._database.all(method.__name__, **values))
        return answered

    return run


def _answer(kind: Any) -> Callable[[Sequence[Row]], Any]:
    if kind is NoneType:
        return lambda _rows: None
    if get_origin(kind) is list:
        make = _maker(get_args(kind)[0])
        return lambda rows: [make(row) for row in rows]
    if get_origin(kind) is UnionType:  # T | None
        make = _maker(get_args(kind)[0])
        return lambda rows: make(rows[0]) if rows and rows[0][0] is not None else None
    make = _maker(kind)
    return lambda rows: make(rows[0])


def _maker(kind: Any) -> Callable[[Row], Any]:
    """A row as a record, as a tuple, or its only column."""
    if get_origin(kind) is tuple:
        return lambda row: tuple(map(_value, get_args(kind), row))
    if isinstance(kind, type) and issubclass(kind, Struct):
        return lambda row: kind(*row)
    return (lambda row: kind(row[0])) if kind in _CONVERTED else itemgetter(0)


def _value(kind: Any, value: Any) -> Any:
    return kind(value) if kind in _CONVERTED else value
