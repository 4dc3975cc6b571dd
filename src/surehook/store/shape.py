"""What a database has compared with what the migrations make of it, part by part. Pure.

A part is an index, a trigger, a function, …, known by its kind and name, with a definition that
two databases of one server spell alike. What is there beside the expected parts is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SHOWN_MAX = 5


@dataclass(frozen=True, slots=True, order=True)
class Name:
    kind: str  # table, column, constraint, index, function, trigger, …
    table: str  # "" for what belongs to none
    name: str

    def __str__(self) -> str:
        if self.kind == "table" or not self.table:
            return f"{self.kind} {self.name}"
        return f"{self.kind} {self.name} on {self.table}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A part that is missing or is not what it should be."""

    part: Name
    expected: str
    found: str | None

    def __str__(self) -> str:
        return f"{self.part} {'is missing' if self.found is None else 'was changed'}"


def faults(expected: Mapping[Name, str], found: Mapping[Name, str]) -> list[Fault]:
    """In the order of `expected`; what belongs to a missing table is not named again."""
    wrong = [
        Fault(part, definition, found.get(part))
        for part, definition in expected.items()
        if found.get(part) != definition
    ]
    gone = {fault.part.name for fault in wrong if _is_gone(fault)}
    return [fault for fault in wrong if fault.part.table not in gone or _is_gone(fault)]


def _is_gone(fault: Fault) -> bool:
    return fault.part.kind == "table" and fault.found is None


def listed(wrong: Iterable[object]) -> str:
    """The first few, for one line."""
    words = [str(one) for one in wrong]
    more = f" and {len(words) - SHOWN_MAX} more" if len(words) > SHOWN_MAX else ""
    return ", ".join(words[:SHOWN_MAX]) + more
