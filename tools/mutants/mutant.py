"""What a mutant is. Imports nothing of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a text: what is from `start` to `end` becomes `text`."""

    start: int
    end: int
    text: str
    says: str


@dataclass(frozen=True, slots=True)
class Mutant:
    path: str
    place: str  # a statement, trigger or function
    edit: Edit
    number: int = 1  # of those that say the same about the same place

    @property
    def name(self) -> str:
        again = f" ({self.number})" if self.number > 1 else ""
        return f"{self.path} {self.place}: {self.edit.says}{again}"

    def applied(self, content: str) -> str:
        return content[: self.edit.start] + self.edit.text + content[self.edit.end :]


def numbered(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Each with a name of its own."""
    seen: Counter[str] = Counter()
    found = []
    for mutant in mutants:
        seen[mutant.name] += 1
        found.append(replace(mutant, number=seen[mutant.name]))
    return found
