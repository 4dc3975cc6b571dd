"""Mutants: which are made of a condition, and that those which are explained exist.
Running them takes hours: `make mutants`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.mutants import python, sql
from tools.mutants.__main__ import explained
from tools.mutants.mutant import Mutant, numbered
from tools.mutants.targets import TARGETS, Target

REPOSITORY = Path(__file__).parents[2]


def ids(targets: tuple[Target, ...]) -> list[str]:
    return [target.path.removeprefix("src/surehook/") for target in targets]


def changed(content: str) -> list[str]:
    """What becomes of a statement, in one line each."""
    edits = [Mutant("", "", edit) for edit in sql.edits(content)]
    return [" ".join(mutant.applied(content).split()) for mutant in edits]


@pytest.mark.parametrize(
    ("statement", "mutants"),
    [
        ("SELECT 1 FROM t", []),
        ("DELETE FROM t WHERE a = 1", ["DELETE FROM t WHERE ((a = 1) OR TRUE)"]),
        (
            "DELETE FROM t WHERE a = :a AND b < 2",
            [
                "DELETE FROM t WHERE ((a = :a) OR TRUE) AND b < 2",
                "DELETE FROM t WHERE a = :a AND ((b < 2) OR TRUE)",
                "DELETE FROM t WHERE a = :a AND b >= 2",
                "DELETE FROM t WHERE a = :a AND b <= 2",
            ],
        ),
        (
            "DELETE FROM t WHERE a = 1 OR b",
            [
                "DELETE FROM t WHERE ((a = 1) AND FALSE) OR b",
                "DELETE FROM t WHERE a = 1 OR ((b) AND FALSE)",
                "DELETE FROM t WHERE a = 1 OR NOT (b)",
            ],
        ),
        (
            "UPDATE t SET a = a + 1 WHERE (s IN ('x', 'y')) IS TRUE",
            [
                "UPDATE t SET a = a + 1 WHERE (((s IN ('x', 'y')) IS TRUE) OR TRUE)",
                "UPDATE t SET a = a + 1 WHERE (s NOT IN ('x', 'y')) IS TRUE",
                "UPDATE t SET a = a + 1 WHERE (s IN ('y')) IS TRUE",
                "UPDATE t SET a = a + 1 WHERE (s IN ('x')) IS TRUE",
                "UPDATE t SET a = a + 2 WHERE (s IN ('x', 'y')) IS TRUE",
            ],
        ),
        (
            "UPDATE t SET a = CASE WHEN b IS NULL THEN 1 ELSE LEAST(2, c) END",
            [
                "UPDATE t SET a = CASE WHEN ((b IS NULL) OR TRUE) THEN 1 ELSE LEAST(2, c) END",
                "UPDATE t SET a = CASE WHEN b IS NOT NULL THEN 1 ELSE LEAST(2, c) END",
                "UPDATE t SET a = CASE WHEN b IS NULL THEN 1 ELSE GREATEST(2, c) END",
            ],
        ),
        (
            "SELECT a FROM t JOIN u ON u.id = t.id WHERE a BETWEEN 1 AND 2 ORDER BY a",
            [
                "SELECT a FROM t JOIN u ON ((u.id = t.id) OR TRUE) WHERE a BETWEEN 1 AND 2 "
                "ORDER BY a",
                "SELECT a FROM t JOIN u ON u.id = t.id WHERE ((a BETWEEN 1 AND 2) OR TRUE) "
                "ORDER BY a",
                "SELECT a FROM t JOIN u ON u.id = t.id WHERE a NOT BETWEEN 1 AND 2 ORDER BY a",
            ],
        ),
        (
            "INSERT INTO t SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = 1) "
            "ON CONFLICT DO NOTHING",
            [
                "INSERT INTO t SELECT 1 WHERE ((NOT EXISTS (SELECT 1 FROM u WHERE u.a = 1)) "
                "OR TRUE) ON CONFLICT DO NOTHING",
                "INSERT INTO t SELECT 1 WHERE NOT NOT EXISTS (SELECT 1 FROM u WHERE u.a = 1) "
                "ON CONFLICT DO NOTHING",
                "INSERT INTO t SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM u "
                "WHERE ((u.a = 1) OR TRUE)) ON CONFLICT DO NOTHING",
            ],
        ),
    ],
)
def test_each_part_of_a_condition_is_left_out_turned_round_or_moved_by_one(
    statement: str, mutants: list[str]
) -> None:
    assert changed(statement) == mutants


def test_of_python_conditions_limits_and_results_are_changed() -> None:
    content = 'def f(a: int) -> bool:\n    "é"\n    return a >= 3 and not a % 2\n'
    made = [mutant.applied(content) for mutant in python.of_file("f.py", content)]
    assert [text.splitlines()[-1].strip() for text in made] == [
        "return None",
        "return (not a % 2)",
        "return (a >= 3)",
        "return (a < 3) and not a % 2",
        "return (a > 3) and not a % 2",
        "return a >= (4) and not a % 2",
        "return a >= 3 and (a % 2)",
        "return a >= 3 and not a % (3)",
    ]


def test_two_mutants_that_say_the_same_have_two_names() -> None:
    content = "SELECT 1 WHERE a = 1 UNION SELECT 2 WHERE a = 1"
    mutants = numbered(Mutant("x.sql", "s", edit) for edit in sql.edits(content))
    assert [mutant.name for mutant in mutants] == [
        "x.sql s: always a = 1",
        "x.sql s: always a = 1 (2)",
    ]


@pytest.mark.parametrize("target", TARGETS, ids=ids(tuple(TARGETS)))
def test_a_target_has_mutants_of_all_that_it_names_and_tests_that_exist(target: Target) -> None:
    places = {mutant.place for mutant in target.mutants(REPOSITORY)}
    assert places and set(target.names) <= places
    assert all((REPOSITORY / test).exists() for test in target.tests)


@pytest.mark.parametrize(
    "target",
    [target for target in TARGETS if target.path.endswith(".py")],
    ids=ids(tuple(target for target in TARGETS if target.path.endswith(".py"))),
)
def test_a_mutant_of_python_is_python(target: Target) -> None:
    content = (REPOSITORY / target.path).read_text(encoding="utf-8")
    for mutant in target.mutants(REPOSITORY):
        ast.parse(mutant.applied(content))


def test_what_is_explained_exists_and_has_a_reason() -> None:
    mutants = [mutant for target in TARGETS for mutant in target.mutants(REPOSITORY)]
    for one in explained():
        assert any(one.about(mutant) for mutant in mutants), one.name
        assert one.reason.endswith(".")
