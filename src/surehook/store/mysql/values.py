"""How Python values are written into a MySQL statement, and how they come back. Pure.

The driver sends text, so a value becomes a literal here, in one pass over the statement: what
stands inside a value is never looked at again. A list is what follows IN; the classes below are
for the other places where many values stand. In a row DATETIME is aware and UTC, TINYINT is a
boolean (numbers are SMALLINT or more), and a decimal is an int or a float.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from asyncmy.constants import FIELD_TYPE
from asyncmy.converters import conversions

from surehook.errors import Bug
from surehook.model.statements import Statement

Escape = Callable[[str], str]  # a text → a quoted literal, as the session's SQL mode wants it

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


class Rows(list[Sequence[object]]):
    """(1, 'a'), (2, 'b'): what follows VALUES, or stands inside IN ( … )."""


class Table(list[Sequence[object]]):
    """Rows as one JSON text, for JSON_TABLE."""


class Ranges(list[tuple[int, int]]):
    """id BETWEEN 1 AND 5 OR id BETWEEN 9 AND 9: a condition on `id`."""


def moment(value: datetime) -> str:
    """As DATETIME(6) keeps it: UTC, without saying so."""
    if value.tzinfo is None:
        raise Bug("A time without a zone is on its way to the database.")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def literal(value: object, escape: Escape) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "1" if value else "0"
        case str():  # enums too
            return escape(str(value))
        case int():
            return str(int(value))
        case float():
            return repr(value)
        case datetime():
            return f"'{moment(value)}'"
        case bytes():
            return f"X'{value.hex()}'"
        case Rows():
            return ",".join(_in_brackets(row, escape) for row in value)
        case Table():
            return escape(json.dumps([[_plain(item) for item in row] for row in value]))
        case Ranges():
            pairs = (f"id BETWEEN {int(a)} AND {int(b)}" for a, b in value)
            return f"({' OR '.join(pairs) or 'FALSE'})"
        case list() | tuple() | set():
            return _in_brackets(value, escape) if value else "(NULL)"
    raise Bug(f"There is no MySQL literal for a {type(value).__name__}.")


def _in_brackets(values: Iterable[object], escape: Escape) -> str:
    return f"({','.join([literal(value, escape) for value in values])})"


def _plain(value: object) -> object:
    return moment(value) if isinstance(value, datetime) else value


def pieces(statement: Statement) -> list[str]:
    """The statement's text and the names of its parameters, in turn."""
    return _PARAMETER.split(statement.text)


def rendered(parts: Sequence[str], values: dict[str, object], escape: Escape) -> str:
    """The statement with its values in place."""
    literals = {name: literal(value, escape) for name, value in values.items()}
    return "".join(literals[part] if number % 2 else part for number, part in enumerate(parts))


# ── Coming back ───────────────────────────────────────────────────────────────────────────────


def _aware(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


def _decimal(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _boolean(text: str) -> bool:
    return text != "0"


# The driver's own, with our ways for these types.
CONVERSIONS: dict[Any, Any] = {
    **conversions,
    FIELD_TYPE.DATETIME: _aware,
    FIELD_TYPE.TIMESTAMP: _aware,
    FIELD_TYPE.TINY: _boolean,
    FIELD_TYPE.DECIMAL: _decimal,
    FIELD_TYPE.NEWDECIMAL: _decimal,
}
