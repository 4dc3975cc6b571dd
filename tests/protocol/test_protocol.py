"""The protocol's model, explored whole: every promise holds in every state, and whatever keeps it
is needed. `python -m protocol` prints the histories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest

from protocol import delivery, eligibility, reading
from protocol.claims import BREAKS, GIVEN_BACK, HOLDS, LIMIT_RAISED, Claim
from protocol.delivery import Delivery
from protocol.explore import Step, explore
from surehook.model.states import JOB_MOVES, SAGA_MOVES


def cases(claims: tuple[Claim, ...]) -> list[Any]:
    return [
        pytest.param(claim, id=claim.name, marks=[pytest.mark.long] if claim.long else [])
        for claim in claims
    ]


@pytest.mark.parametrize("claim", cases(HOLDS))
def test_every_promise_holds_in_every_state(claim: Claim) -> None:
    found = explore(claim.model)
    assert found.broken is None, "\n".join(found.history)


@pytest.mark.parametrize("claim", cases(BREAKS))
def test_without_one_part_of_the_protocol_a_promise_is_broken(claim: Claim) -> None:
    assert explore(claim.model).broken == claim.breaks


def test_each_part_that_keeps_a_promise_is_left_out_once() -> None:
    for rules in (
        delivery.Rules,
        reading.SnapshotRules,
        reading.GapRules,
        eligibility.Rules,
    ):
        variants: list[Any] = [claim.model for claim in BREAKS]
        own = [variant.rules for variant in variants if type(variant.rules) is rules]
        names = [field.name for field in fields(rules)]
        left_out = [[name for name in names if not getattr(one, name)] for one in own]
        assert sorted(left_out) == sorted([name] for name in names)


def test_the_model_makes_every_move_of_the_state_machines_by_everyone_who_may() -> None:
    """A move that is new in states.py is unknown here until the model has it."""
    made = set()
    for scenario in (GIVEN_BACK, LIMIT_RAISED):
        model = Delivery(scenario)
        assert explore(model).broken is None
        made |= model.made
    permitted = {(move.name, by) for move in SAGA_MOVES for by in move.by}
    permitted |= {(move.name, by) for move in JOB_MOVES for by in move.by}
    assert made == permitted


# ── The explorer ──────────────────────────────────────────────────────────────────────────────


@dataclass
class Counter:
    """Counts up by 1 or 2; a fault sends it to -1, from where only `way_back` leads on."""

    limit: int
    way_back: bool
    goal: str = "it reaches the limit"

    def start(self) -> int:
        return 0

    def steps(self, state: int) -> Iterator[Step[int]]:
        if 0 <= state < self.limit:
            yield Step("one", state + 1)
            yield Step("two", state + 2)
            yield Step("trip", -1, fault=True)
        elif state < 0 and self.way_back:
            yield Step("get up", 0)

    def broken(self, state: int) -> str | None:
        return "it stays within the limit" if state > self.limit else None

    def settled(self, state: int) -> bool:
        return state == self.limit


def test_a_promise_that_is_broken_is_told_by_the_shortest_history() -> None:
    found = explore(Counter(limit=4, way_back=True))
    assert found.broken == "it stays within the limit"
    assert found.history == ("one", "two", "two")


def test_a_state_from_which_nothing_can_be_settled_is_found() -> None:
    class Careful(Counter):
        def steps(self, state: int) -> Iterator[Step[int]]:
            yield from (step for step in super().steps(state) if step.state <= self.limit)

    assert explore(Careful(limit=3, way_back=True)).broken is None
    found = explore(Careful(limit=3, way_back=False))
    assert (found.broken, found.history) == ("it reaches the limit", ("trip",))
