"""What `@statement` makes of a method, and which store `store_of` finds. Needs no database."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from surehook.model.resources.key import Key
from surehook.store import store_of
from surehook.store.contract import Store, statement
from surehook.store.key_checks import KeyCheckStore
from surehook.store.mysql.worker import MysqlWorkerStore
from surehook.store.postgres.worker import PostgresWorkerStore
from surehook.store.worker import WorkerStore


class Pair(msgspec.Struct, frozen=True):
    name: str
    number: int


class FakeDatabase:
    """Answers every statement with the same rows, and keeps what it was asked."""

    dialect = "postgres"

    def __init__(self, *rows: tuple[object, ...]) -> None:
        self.rows = rows
        self.asked: list[tuple[str, dict[str, object]]] = []

    async def all(self, name: str, **values: object) -> Any:
        self.asked.append((name, values))
        return self.rows

    async def records(self, name: str, **values: object) -> Any:
        return [("by column name", *row) for row in await self.all(name, **values)]


class Example(Store):
    @statement
    async def records(self) -> list[Pair]:
        raise AssertionError("its body is its statement")

    @statement
    async def maybe_record(self) -> Pair | None: ...

    @statement
    async def tuples(self) -> list[tuple[str, bool, float | None]]:
        raise AssertionError("its body is its statement")

    @statement
    async def column(self) -> list[str]:
        raise AssertionError("its body is its statement")

    @statement
    async def seconds(self) -> float | None: ...

    @statement
    async def waits(self) -> bool:
        raise AssertionError("its body is its statement")

    @statement
    async def keys(self, tenant: str) -> list[Key]:
        raise AssertionError("its body is its statement")

    @statement
    async def maybe_key(self) -> Key | None: ...

    @statement
    async def note(self, bucket: int, text: str | None) -> None: ...


@pytest.mark.parametrize(
    ("method", "rows", "answer"),
    [
        ("records", [("a", 1), ("b", 2)], [Pair("a", 1), Pair("b", 2)]),
        ("records", [], []),
        ("maybe_record", [("a", 1)], Pair("a", 1)),
        ("maybe_record", [], None),
        ("tuples", [("a", 1, None)], [("a", True, None)]),
        ("column", [("a",), ("b",)], ["a", "b"]),
        ("seconds", [(Decimal("0.5"),)], 0.5),
        ("seconds", [(None,)], None),
        ("seconds", [], None),
        ("waits", [(0,)], False),
    ],
)
async def test_the_answer_is_what_the_method_says_on_every_engine(
    method: str, rows: list[tuple[object, ...]], answer: object
) -> None:
    database: Any = FakeDatabase(*rows)
    found = await getattr(Example(database), method)()
    assert found == answer and type(found) is type(answer)
    assert database.asked == [(method, {})]


async def test_rows_of_a_declared_resource_are_read_by_the_names_of_their_columns() -> None:
    database: Any = FakeDatabase((1, "shop"))
    record: Any = ("by column name", 1, "shop")
    assert await Example(database).keys("acme") == [record]
    assert await Example(database).maybe_key() == record
    assert database.asked == [("keys", {"tenant": "acme"}), ("maybe_key", {})]


async def test_arguments_become_the_parameters_of_their_name() -> None:
    database: Any = FakeDatabase()
    await Example(database).note(3, text="x")
    assert database.asked == [("note", {"bucket": 3, "text": "x"})]


@pytest.mark.parametrize(
    ("dialect", "kind"), [("postgres", PostgresWorkerStore), ("mysql", MysqlWorkerStore)]
)
def test_a_store_is_that_of_its_engine(dialect: str, kind: type) -> None:
    database: Any = FakeDatabase()
    database.dialect = dialect
    assert type(store_of(WorkerStore, database, "worker 1")) is kind


def test_a_contract_of_statements_alone_is_its_own_store() -> None:
    database: Any = FakeDatabase()
    assert type(store_of(KeyCheckStore, database)) is KeyCheckStore
