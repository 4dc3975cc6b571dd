"""The tests' plain SQL, written for PostgreSQL, in the words of MySQL and MariaDB. Pure.

A test says once what it wants to see or to have; this says it again. Only what tests use is known
here: parameters, casts, intervals, = ANY, generate_series; the rest are the rules by which our own
statements are translated (tools/mysql_sql.py).
What only one engine has (sessions, locks, dumps) is not translated but written twice, in
dialects.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache

from sqlglot import exp

from tools import mysql_sql
from tools.mysql_sql import NOW, Node, Rules, raw

NAMES = {"json_build_object": "JSON_OBJECT"}
MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}
TEXT = {exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR, exp.DataType.Type.CHAR}
INTEGERS = {exp.DataType.Type.INT, exp.DataType.Type.BIGINT, exp.DataType.Type.SMALLINT}
# A parameter's place in the translated text; no statement of ours contains such a thing.
_PLACE = re.compile(r"⟦(\d+)⟧")
# Statements that read or write rows; all else (SET, SHOW, KILL, DDL …) is nobody's to translate.
_ROWS = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", re.IGNORECASE)


def in_mysql(sql: str, values: Sequence[object]) -> str:
    """The statement with its values in it."""
    text = _translated(sql) if _ROWS.match(sql) else sql
    return _PLACE.sub(lambda place: literal(values[int(place[1]) - 1]), text)


def literal(value: object) -> str:
    """A value as SQL text; a list as the inside of IN (…)."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(int(value))
        case int() | Decimal():
            return str(value)
        case float():
            return repr(value)
        case datetime():
            assert value.tzinfo is not None, "a time without a zone is nobody's time"
            return f"TIMESTAMP'{value.astimezone(UTC).replace(tzinfo=None).isoformat(' ')}'"
        case bytes():
            return f"x'{value.hex()}'"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0")
            return f"'{escaped}'"
        case list() | tuple() | set() | range():
            return ", ".join(literal(one) for one in value) or "NULL"
    raise TypeError(f"no SQL for {type(value).__name__}")


@cache
def _translated(sql: str) -> str:
    return mysql_sql.translated(sql, RULES)


# ── One rule per kind of node ─────────────────────────────────────────────────────────────────


def _parameter(node: Node) -> Node:
    return raw(f"⟦{node.name}⟧")


def _cast(node: Node) -> Node:
    """A cast that MySQL knows stays; its enums and arrays are texts and lists there."""
    kind = node.args["to"].this
    if kind in TEXT or kind in INTEGERS or kind is exp.DataType.Type.DOUBLE:
        return node
    inner: Node = node.this
    return inner


def _function(node: Node) -> Node:
    if node.name.lower() in NAMES:
        node.set("this", NAMES[node.name.lower()])
    return mysql_sql.clock(node)


def _now(_: Node) -> Node:
    return raw(NOW)


def _database(_: Node) -> Node:
    return raw("DATABASE()")


def _any(node: Node) -> Node:
    """x = ANY ($1) → x IN ($1): a list's literal is its items."""
    if not isinstance(node.expression, exp.Any):
        return node
    items = node.expression.this.unnest()
    return exp.In(this=node.this, expressions=[items])


def _default(node: Node) -> Node:
    if node.name.upper() == "DEFAULT" and not node.args.get("table"):
        return raw("DEFAULT")
    return node


def _series(node: Node) -> Node:
    """generate_series(a, b) AS g → a table with a column g.

    From a JSON array of the right length: both engines have JSON_TABLE, and an ordinary table
    expression needs no WITH in front of an INSERT.
    """
    if not isinstance(node.this, exp.ExplodingGenerateSeries):
        return node
    first, last = (node.this.args[name].sql("mysql") for name in ("start", "end"))
    name = node.alias or "g"
    array = f"CONCAT('[0', REPEAT(',0', {last} - {first}), ']')"
    ordinal = f"JSON_TABLE({array}, '$[*]' COLUMNS (n FOR ORDINALITY)) AS numbered"
    return raw(f"(SELECT n + {first} - 1 AS {name} FROM {ordinal}) AS {name}")


# ── Intervals ─────────────────────────────────────────────────────────────────────────────────


def _sum(node: Node) -> Node:
    """moment + interval: MySQL has no value of that kind, only this form of addition."""
    length = _microseconds(node.expression)
    if length is None:
        return node
    sign = "+" if isinstance(node, exp.Add) else "-"
    return raw(f"({node.this.sql('mysql')} {sign} INTERVAL ROUND({length}) MICROSECOND)")


def _microseconds(node: Node) -> str | None:
    """How long an interval is; None if it is none."""
    match node:
        case exp.Interval():
            unit = node.args["unit"].name.upper().removesuffix("S")
            return str(round(float(node.name) * MICROSECONDS[unit]))
        case exp.Mul():
            length = _microseconds(node.this)
            return length and f"{length} * ({node.expression.sql('mysql')})"
        case exp.Case():
            return _microseconds_of_case(node)
    return None


def _microseconds_of_case(node: exp.Case) -> str | None:
    if _microseconds(node.args["ifs"][0].args["true"]) is None:
        return None
    parts = [
        f"WHEN {branch.this.sql('mysql')} THEN {_microseconds(branch.args['true'])}"
        for branch in node.args["ifs"]
    ]
    if node.args.get("default"):
        parts.append(f"ELSE {_microseconds(node.args['default'])}")
    return f"CASE {' '.join(parts)} END"


RULES: Rules = {
    exp.Parameter: _parameter,
    exp.Cast: _cast,
    exp.Anonymous: _function,
    exp.CurrentTimestamp: _now,
    exp.CurrentDatabase: _database,
    exp.EQ: _any,
    exp.Column: _default,
    exp.Filter: mysql_sql.filtered,
    exp.Ordered: mysql_sql.ordered,
    exp.Table: _series,
    exp.Extract: mysql_sql.epoch,
    exp.Add: _sum,
    exp.Sub: _sum,
}
