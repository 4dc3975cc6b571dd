"""Scenario: a fault in plain words, what must hold under it, and how it is brought about.

Reads and writes nothing; the scenarios are in faults/scenarios, one file each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from faults.world import World

ENGINES = ("postgresql", "mariadb")
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Bound:
    """What a measured figure must be. `short`: the number in a short run, where it is a count."""

    figure: str
    at_most: float | None = None
    at_least: float | None = None
    exactly: float | None = None
    unit: str = ""
    short: float | None = None

    def __post_init__(self) -> None:
        given = [one for one in (self.at_most, self.at_least, self.exactly) if one is not None]
        assert len(given) == 1, f"{self.figure}: one of at_most, at_least, exactly"

    def number(self, long: bool) -> float:
        if self.short is not None and not long:
            return self.short
        return next(one for one in (self.at_most, self.at_least, self.exactly) if one is not None)

    def holds(self, value: float, long: bool) -> bool:
        number = self.number(long)
        if self.at_most is not None:
            return value <= number
        return value >= number if self.at_least is not None else value == number

    def words(self, long: bool) -> str:
        number = self.number(long)
        sign = "≤ " if self.at_most else "≥ " if self.at_least else ""
        return f"{sign}{number:,.10g}{f' {self.unit}' if self.unit else ''}"


# What holds under every fault; World.figures() measures them.
PROMISES = (
    Bound("lost", at_most=0),
    Bound("phantom", at_most=0),
    Bound("second ids", at_most=0),
    Bound("broken invariants", at_most=0),
    Bound("unexpected exits", at_most=0),
)


class Scenario(ABC):
    name: ClassVar[str]
    fault: ClassVar[str]
    """In plain words: the row of the table."""
    bounds: ClassVar[tuple[Bound, ...]]
    """Beside PROMISES. Every figure that has a bound must be measured."""
    engines: ClassVar[tuple[str, ...]] = ENGINES
    long_only: ClassVar[bool] = False

    def missing(self) -> str | None:
        """What this machine lacks for it, in one line; None = it can run."""
        return None

    @abstractmethod
    async def run(self, world: World) -> Figures:
        """Bring the fault about; what was measured."""

    def all_bounds(self) -> tuple[Bound, ...]:
        return (*PROMISES, *self.bounds)


@dataclass(frozen=True)
class Result:
    """What came of one scenario on one engine."""

    scenario: str
    fault: str
    engine: str
    figures: Figures = field(default_factory=dict)
    bounds: Mapping[str, str] = field(default_factory=dict)
    missed: tuple[str, ...] = ()
    seconds: float = 0.0
    not_run: str = ""  # why
    error: str = ""  # what stopped it
    logs: str = ""  # where they were kept

    @property
    def passed(self) -> bool:
        return not self.missed and not self.error

    @property
    def word(self) -> str:
        return "not run" if self.not_run else "pass" if self.passed else "FAIL"


def judge(scenario: Scenario, engine: str, figures: Figures, long: bool, seconds: float) -> Result:
    """The figures beside their bounds; one that was not measured is missed."""
    missed = []
    for bound in scenario.all_bounds():
        value = figures.get(bound.figure)
        if value is None:
            missed.append(f"{bound.figure} was not measured")
        elif not bound.holds(value, long):
            wanted = bound.words(long)
            missed.append(f"{bound.figure} is {value:,.4g}, must be {wanted}")
    return Result(
        scenario.name,
        scenario.fault,
        engine,
        dict(figures),
        {bound.figure: bound.words(long) for bound in scenario.all_bounds()},
        tuple(missed),
        seconds,
    )
