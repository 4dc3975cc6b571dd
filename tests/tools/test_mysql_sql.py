"""PostgreSQL's statements in the words of MySQL. Needs no database; both engines run the result."""

from __future__ import annotations

import re

import pytest

from surehook.model import statements
from surehook.model.roles import BY_LOGIN
from tools import mysql_sql


@pytest.mark.parametrize(
    ("postgres", "mysql"),
    [
        ("SELECT id FROM events WHERE tenant = :tenant", None),
        ("SELECT :x::bigint", "SELECT :x"),
        ("SELECT surehook_now()", "SELECT UTC_TIMESTAMP(6)"),
        (
            "SELECT id FROM t WHERE at < surehook_now() - interval '1 second' * :seconds",
            "SELECT id FROM t WHERE at < UTC_TIMESTAMP(6) - INTERVAL :seconds SECOND",
        ),
        ("SELECT id FROM t WHERE id = ANY (:ids)", "SELECT id FROM t WHERE id IN :ids"),
        ("SELECT 'a ' || b || ' c' FROM t", "SELECT CONCAT('a ', b, ' c') FROM t"),
        (
            "SELECT count(*) FILTER (WHERE a) FROM t",
            "SELECT COUNT(CASE WHEN a THEN 1 END) FROM t",
        ),
        ("SELECT a IS DISTINCT FROM b FROM t", "SELECT NOT a <=> b FROM t"),
        (
            "SELECT id FROM t WHERE (at, id) < (:at, :id) ORDER BY at DESC",
            "SELECT id FROM t WHERE at <= :at AND ( at < :at OR id < :id ) ORDER BY at DESC",
        ),
        (
            "SELECT EXTRACT(epoch FROM a - b) FROM t",
            "SELECT (TIMESTAMPDIFF(MICROSECOND, b, a) / 1e6) FROM t",
        ),
        (
            "WITH w AS MATERIALIZED (SELECT 1 AS a) SELECT a FROM w",
            "WITH w AS ( SELECT 1 AS a ) SELECT a FROM w",
        ),
        (
            "SELECT id FROM jobs j /*mysql FORCE INDEX (PRIMARY) */ WHERE a",
            "SELECT id FROM jobs AS j FORCE INDEX (PRIMARY) WHERE a",
        ),
        (
            "INSERT INTO t (a) VALUES (:a) ON CONFLICT DO NOTHING RETURNING id",
            "INSERT INTO t ( a ) VALUES (:a)",
        ),
        (
            "SELECT id FROM t WHERE id = ANY (:ids) AND b = ANY (string_to_array(:bs, ','))",
            "SELECT id FROM t WHERE id IN :ids AND FIND_IN_SET(b, :bs)",
        ),
        ("SELECT {Event e}, {Verification v AS verification} FROM events AS e", None),
        (
            "UPDATE t SET a = :a, {Subscription:changes} WHERE id = :id RETURNING id",
            "UPDATE t SET a = :a, {Subscription:changes} WHERE id = :id",
        ),
    ],
)
def test_a_statement_says_the_same_in_the_words_of_mysql(postgres: str, mysql: str | None) -> None:
    """None = no word of it differs."""
    assert " ".join(mysql_sql.in_mysql(postgres).split()) == (mysql or postgres)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x FROM unnest(:ids::bigint[]) AS given(x)",
        "SELECT a.id FROM a CROSS JOIN LATERAL (SELECT b.id FROM b WHERE b.id = a.id) AS c",
        "SELECT pg_current_snapshot()",
    ],
)
def test_what_mysql_has_no_words_for_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write this statement by hand"):
        mysql_sql.in_mysql(text)


@pytest.mark.parametrize("login", sorted(BY_LOGIN))
def test_every_statement_is_on_both_engines_unless_a_file_says_otherwise(login: str) -> None:
    postgres, mysql = (statements.load(engine, login) for engine in ("postgres", "mysql"))
    assert set(postgres) - set(mysql) == set(mysql_sql.only_on_postgres(login))


def test_what_is_written_by_hand_is_not_generated() -> None:
    by_hand = {name for name, _, _ in mysql_sql.statements_of("mysql", "worker")}
    made = re.findall(r"-- name: (\w+)", mysql_sql.generated("worker"))
    assert made and not by_hand & set(made)
