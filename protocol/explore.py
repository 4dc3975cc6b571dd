"""Visits every state of a model, nearest first. Pure; imports nothing of ours.

What is found is therefore the shortest history that breaks a promise. If none does, each state is
asked one more thing: can everything still be settled from here, without a further fault?
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple, Generic[S]):
    """One atomic thing that a process, time or a fault may do next."""

    label: str
    state: S
    breaks: str | None = None  # the promise that doing this breaks, if any
    fault: bool = False  # may happen, but nothing may rely on it


class Model(Protocol[S]):
    """States are values: equal ones are one state."""

    goal: str  # what `settled` means, as a promise

    def start(self) -> S: ...

    def steps(self, state: S) -> Iterator[Step[S]]: ...

    def broken(self, state: S) -> str | None:
        """The promise that this state breaks, if any."""

    def settled(self, state: S) -> bool:
        """Whether all that was promised has been done."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What there was to see: all of it, or up to the first promise that was broken."""

    states: int
    steps: int
    broken: str | None = None
    history: tuple[str, ...] = ()


def explore(model: Model[S]) -> Explored:
    found = [model.start()]  # grows while it is walked
    numbers = {found[0]: 0}
    came_by: list[tuple[int, str]] = [(0, "")]
    reached_from: list[list[int]] = [[]]  # without a fault
    count = 0
    for here, state in enumerate(found):
        for step in model.steps(state):
            count += 1
            there = numbers.get(step.state)
            broken = step.breaks or (model.broken(step.state) if there is None else None)
            if broken:
                return Explored(len(found), count, broken, (*_history(came_by, here), step.label))
            if there is None:
                there = numbers[step.state] = len(found)
                found.append(step.state)
                came_by.append((here, step.label))
                reached_from.append([])
            if not step.fault:
                reached_from[there].append(here)
    settled = [number for number, state in enumerate(found) if model.settled(state)]
    stuck = _unable_to_settle(settled, reached_from)
    if stuck is not None:
        return Explored(len(found), count, model.goal, _history(came_by, stuck))
    return Explored(len(found), count)


def _unable_to_settle(settled: list[int], reached_from: list[list[int]]) -> int | None:
    """The first state from which no steps without a fault lead to a settled one."""
    hopeful = set(settled)
    waiting = list(settled)
    while waiting:
        for number in reached_from[waiting.pop()]:
            if number not in hopeful:
                hopeful.add(number)
                waiting.append(number)
    return next((number for number in range(len(reached_from)) if number not in hopeful), None)


def _history(came_by: list[tuple[int, str]], number: int) -> tuple[str, ...]:
    labels = []
    while number:
        number, label = came_by[number]
        labels.append(label)
    return tuple(reversed(labels))
