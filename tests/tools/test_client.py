"""The client that is generated from the API's routes, and the blocking one from the other."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from msgspec import UNSET, Struct, UnsetType

from surehook.api.app import ROUTES
from surehook.client import AsyncClient, Client, results
from tools import client

SOMEWHERE = ("http://127.0.0.1:1", "shk_x")


def calls_of(kind: Any) -> dict[str, inspect.Signature]:
    """Every public method, those of the groups included: its parameters, whatever it returns."""
    made = kind(*SOMEWHERE)
    groups = {"": made, **{name: group for name, group in vars(made).items() if name[0] != "_"}}
    return {
        f"{group}.{name}".lstrip("."): inspect.signature(method).replace(return_annotation=None)
        for group, one in groups.items()
        for name, method in inspect.getmembers(one, inspect.ismethod)
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_calls_with_the_same_parameters() -> None:
    blocking = calls_of(Client)
    assert blocking == calls_of(AsyncClient)
    assert {"publish", "events.get", "subscriptions.update", "dead_letters.page"} <= set(blocking)


def test_every_route_of_the_api_has_a_call() -> None:
    folder = client.CLIENT
    sources = [folder / "generated" / "namespaces.py", folder / "asynchronous.py"]
    text = "".join(path.read_text() for path in [*sources, folder / "calls.py"])
    for route in ROUTES:
        if route.path.startswith("/v1/"):
            head, _, tail = route.path.partition("{id}")
            assert f'"{head}{{int(' in text if tail or "{id}" in route.path else f'"{head}"' in text
            assert tail in text


def test_a_result_has_every_field_of_its_answers() -> None:
    for shape in client._shapes():
        fields = getattr(results, shape.__name__).__struct_fields__
        assert set(shape.__struct_fields__) <= set(fields)


class Inner(Struct):
    id: int


class Shape(Struct):
    count: int
    text: str
    items: list[int]
    optional: str | None
    event_id: int
    inner: Inner
    sure: bool
    sometimes: int | UnsetType = UNSET
    perhaps: bool | UnsetType = UNSET


@pytest.mark.parametrize(
    ("field", "declared"),
    [
        ("count", "count: int"),
        ("text", 'text: str = ""'),
        ("items", "items: list[int] = field(default_factory=list)"),
        ("optional", "optional: str | None = None"),
        ("event_id", "event_id: int"),
        ("inner", "inner: Inner"),
        ("sure", "sure: bool = False"),
        ("sometimes", "sometimes: int | None = None"),
        ("perhaps", "perhaps: bool | None = None"),
    ],
)
def test_a_field_that_an_older_server_may_lack_has_a_default(field: str, declared: str) -> None:
    kind = client._hints(Shape)[field]
    assert client._result_field(field, kind, first=field == "count") == declared
