"""What a command takes and shows follows from the declaration alone."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import click
import pytest
from click.testing import CliRunner
from msgspec import UNSET, Meta, Struct, UnsetType

from surehook.cli.declared import columns, facts_of, filter_options, setting_options
from surehook.model.fields import Setting, Shown


class Colour(StrEnum):
    RED = "Red"
    GREEN = "Green"


class Shop(Struct, frozen=True, kw_only=True):
    id: Annotated[int, Shown("id", always=True)]
    name: Annotated[str, Setting(), Shown("name", argument=True, help="Another name.")]
    team: Annotated[str | None, Setting(None), Shown("team", always=True, help="Whose it is.")]
    floor: Annotated[Annotated[int, Meta(ge=0)] | None, Setting(None)]
    open: Annotated[bool, Setting(True), Shown(option="-")]
    plan: Annotated[Literal["small", "big"], Setting("small", once=True)]
    updated_at: str | None
    key: str | UnsetType = UNSET


class ShopsQuery(Struct, frozen=True, kw_only=True):
    tenant: str | None = None
    colour: Colour | None = None
    street_id: Annotated[int, Meta(ge=1)] | None = None
    open: Annotated[bool | None, Shown(option="--open/--closed")] = None
    built_from: datetime | None = None
    limit: int = 50


def ran(decorator: Any, *arguments: str) -> tuple[dict[str, Any], str]:
    """The values that a command with these options gets, and what was printed."""
    got: dict[str, Any] = {}

    def body(**options: Any) -> None:
        got.update(options)

    return got, CliRunner().invoke(click.command()(decorator(body)), arguments).output


def settings(change: bool) -> Any:
    return setting_options(Shop, change=change, first=(), own={})


def test_what_must_be_given_is_an_argument_and_every_other_setting_an_option() -> None:
    got, _ = ran(settings(change=False), "Corner", "--team", "north", "--plan", "big")
    assert got == {"name": "Corner", "team": "north", "floor": None, "plan": "big"}
    _, help_text = ran(settings(change=False), "--help")
    assert "--team TEXT" in help_text and "Whose it is." in help_text
    assert "[default: small]" in help_text


def test_a_change_takes_what_is_not_decided_once_and_clears_what_may_be_absent() -> None:
    got, _ = ran(settings(change=True), "--name", "Corner", "--clear", "team", "--clear", "floor")
    assert got == {"name": "Corner", "team": None, "floor": None, "clear": ("team", "floor")}
    _, help_text = ran(settings(change=True), "--help")
    assert "--clear [team|floor]" in help_text and "--plan" not in help_text


def test_a_setting_that_a_command_spells_in_its_own_way_replaces_the_option() -> None:
    closed = click.option("--closed", is_flag=True)
    own = setting_options(Shop, change=False, first=("plan",), own={"open": closed})
    got, _ = ran(own, "Corner", "--closed")
    assert got["closed"] is True
    _, help_text = ran(own, "--help")
    assert help_text.index("--plan") < help_text.index("--team") < help_text.index("--closed")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("--colour", "green"), {"colour": "Green"}),
        (("--street-id", "7"), {"street_id": 7}),
        (("--closed",), {"open": False}),
        (("--tenant", ""), {"tenant": ""}),
    ],
)
def test_a_filter_is_an_option_of_its_type(
    given: tuple[str, ...], expected: dict[str, object]
) -> None:
    got, _ = ran(filter_options(ShopsQuery), *given)
    assert {name: value for name, value in got.items() if value is not None} == expected


def test_filters_explain_themselves_and_refuse_what_they_cannot_be() -> None:
    _, help_text = ran(filter_options(ShopsQuery, without=("colour",)), "--help")
    assert "Only of this street." in help_text and "Built then or later" in help_text
    assert "--limit" not in help_text and "--colour" not in help_text
    _, output = ran(filter_options(ShopsQuery), "--colour", "Blue")
    assert "it is one of Red, Green" in output


def test_columns_and_facts_are_those_that_are_declared() -> None:
    shop = Shop(id=3, name="Corner", team=None, floor=2, open=True, plan="big", updated_at=None)
    shown = columns(Shop, first=("team",), name=lambda one: one.name.upper())
    assert [(name, column(shop)) for name, column in shown.items()] == [
        *(("team", None), ("id", 3), ("name", "CORNER")),
    ]
    assert facts_of(Shop, shop, without=("plan",)) == [
        *(("id", 3), ("team", None), ("name", "Corner"), ("floor", 2), ("open", True)),
    ]
