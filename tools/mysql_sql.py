"""PostgreSQL's statements in the words of MySQL and MariaDB: what `make generate` writes.

Reads   store/postgres/*.sql, and store/mysql/*.sql for what is written by hand there
Writes  nothing: tools/generate.py writes store/mysql/generated/*.sql

A statement that store/mysql/x.sql does not have is the one of store/postgres/x.sql, translated, but
for those that its line `-- Only on PostgreSQL: …` names. Hot ones stay written by hand: there each
engine goes its own way. A hint for MySQL is a comment in PostgreSQL's text:

    FROM webhook_delivery_jobs j /*mysql FORCE INDEX (uniq_job_saga_attempt) */
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files

import sqlglot
from sqlglot import exp

Node = exp.Expr
Rules = Mapping[type, Callable[[Node], Node]]

NOW = "UTC_TIMESTAMP(6)"
CLOCKS = ("surehook_now", "statement_timestamp", "clock_timestamp")

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
# {Subscription s} and the like stand for columns: they are filled in when the file is loaded.
_DERIVED = re.compile(r"\{[^}]*\}")
# What needs something that both engines of this dialect lack: it has to be written by hand.
_UNTRANSLATABLE = re.compile(r"\b(LATERAL|UNNEST|ANY|ON CONFLICT|pg_\w+)\b", re.IGNORECASE)


def translated(sql: str, rules: Rules, pretty: bool = False) -> str:
    """A statement in other words, node by node."""
    parsed: Node = sqlglot.parse_one(sql, read="postgres")
    # From the leaves upwards: what a rule looks at below it is already in its last form, except
    # intervals, which only have a form together with what they are added to.
    for node in list(parsed.walk(bfs=False))[::-1]:
        rule = rules.get(type(node))
        if rule is None:
            continue
        changed = rule(node)
        if node is parsed:
            parsed = changed
        elif changed is not node:
            node.replace(changed)
    return parsed.sql("mysql", pretty=pretty, unsupported_level=sqlglot.ErrorLevel.RAISE)


def in_mysql(sql: str) -> str:
    """A statement with :parameters and {columns}."""
    text = _PARAMETER.sub(r"'⟦\1⟧'", sql)
    held: list[str] = []

    def hold(found: re.Match[str]) -> str:
        held.append(found[0])
        place = f"derived_{len(held) - 1}"
        return f"{place} = {place}" if found[0].endswith(":changes}") else place

    text = translated(_DERIVED.sub(hold, text), RULES, pretty=True)
    text = re.sub(r"derived_(\d+)( = derived_\1)?", lambda found: held[int(found[1])], text)
    text = re.sub(r"/\* mysql (.*?) \*/", r"\1", text)
    text = re.sub(r"'⟦(\w+)⟧'", r":\1", text)
    if wrong := _UNTRANSLATABLE.search(text):
        raise ValueError(f"{wrong[0]} has no words in MySQL: write this statement by hand")
    return text


def generated(login: str) -> str:
    """The statements of a login that are not written by hand for MySQL; empty if all are."""
    own = {name for name, _, _ in statements_of("mysql", login)} | {*only_on_postgres(login)}
    parts = []
    for name, kind, body in statements_of("postgres", login):
        if name in own:
            continue
        try:
            text = in_mysql(body)
        except (ValueError, sqlglot.errors.SqlglotError) as error:
            raise SystemExit(f"{login}.sql, {name}: {error}") from error
        # Nothing is returned by what writes: the driver says how many rows and which ids.
        kind = ":none" if re.match(r"INSERT|UPDATE|DELETE", text) else kind
        parts.append(f"-- name: {name} {kind}\n{text};\n")
    return "\n".join(parts)


def statements_of(dialect: str, login: str) -> list[tuple[str, str, str]]:
    """Name, what comes back (with its record) and text."""
    pieces = re.split(r"^-- name: (\w+) (.+)$", _read(dialect, login), flags=re.MULTILINE)
    bodies = (re.sub(r"^\s*--.*$", "", body, flags=re.MULTILINE) for body in pieces[3::3])
    return list(zip(pieces[1::3], pieces[2::3], bodies, strict=True))


def only_on_postgres(login: str) -> list[str]:
    """What MySQL does in other statements, or in Python."""
    lines = re.findall(r"^-- Only on PostgreSQL: (.*)", _read("mysql", login), re.MULTILINE)
    return [name for line in lines for name in line.split(", ")]


def _read(dialect: str, login: str) -> str:
    file = files("surehook.store").joinpath(dialect, f"{login}.sql")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


# ── One rule per kind of node ─────────────────────────────────────────────────────────────────


def raw(text: str) -> Node:
    return exp.Var(this=text)


def _uncast(node: Node) -> Node:
    """MySQL converts unasked; its enums and arrays are texts and lists."""
    inner: Node = node.this
    return inner


def clock(node: Node) -> Node:
    return raw(NOW) if node.name.lower() in CLOCKS else node


def _is_distinct(node: Node) -> Node:
    return exp.Not(this=exp.NullSafeEQ(this=node.this, expression=node.expression))


def _concatenation(node: Node) -> Node:
    """a || b || c → CONCAT(a, b, c), where the outermost stands."""
    if isinstance(node.parent, exp.DPipe):
        return node
    return exp.Anonymous(this="CONCAT", expressions=_operands(node))


def _operands(node: Node) -> list[Node]:
    if isinstance(node, exp.DPipe):
        return [*_operands(node.this), *_operands(node.expression)]
    return [node.unnest() if isinstance(node, exp.Paren) else node]


def filtered(node: Node) -> Node:
    """count(*) FILTER (WHERE x) → COUNT(CASE WHEN x THEN 1 END)"""
    counted = node.this
    value = exp.Literal.number(1) if isinstance(counted.this, exp.Star) else counted.this
    case = exp.Case(ifs=[exp.If(this=node.expression.this, true=value)])
    made: Node = type(counted)(this=case)
    return made


def _unmaterialized(node: Node) -> Node:
    node.set("materialized", None)
    return node


def _row_before(node: Node) -> Node:
    """(a, b) < (x, y): MySQL uses an index only for the longer form."""
    if not isinstance(node.this, exp.Tuple):
        return node
    (a, b), (x, y) = (
        [one.sql("mysql") for one in side.expressions] for side in (node.this, node.expression)
    )
    return sqlglot.parse_one(f"{a} <= {x} AND ({a} < {x} OR {b} < {y})", read="mysql")


def _plus_interval(node: Node) -> Node:
    """moment - interval '1 second' * :x → moment - INTERVAL :x SECOND"""
    length = node.expression
    if not (isinstance(length, exp.Mul) and isinstance(length.this, exp.Interval)):
        return node
    unit = exp.Var(this=length.this.args["unit"].name.upper().removesuffix("S"))
    made: Node = type(node)(
        this=node.this, expression=exp.Interval(this=length.expression, unit=unit)
    )
    return made


def _any(node: Node) -> Node:
    """x = ANY (:list) → x IN :list, which the driver writes with its brackets; and of a text with
    commas, ANY (string_to_array(:text, ',')) → FIND_IN_SET(x, :text)."""
    if not isinstance(node.expression, exp.Any):
        return node
    among = node.expression.this.unnest()
    if isinstance(among, exp.StringToArray):
        return exp.Anonymous(this="FIND_IN_SET", expressions=[node.this, among.this])
    return exp.In(this=node.this, field=among)


def epoch(node: Node) -> Node:
    """EXTRACT(EPOCH FROM later - earlier) → seconds"""
    if node.name.upper() != "EPOCH" or not isinstance(node.expression, exp.Sub):
        return node
    later, earlier = node.expression.left.sql("mysql"), node.expression.right.sql("mysql")
    return raw(f"(TIMESTAMPDIFF(MICROSECOND, {earlier}, {later}) / 1e6)")


def ordered(node: Node) -> Node:
    """Nobody orders by what may be NULL: each engine's own order of NULLs will do."""
    node.set("nulls_first", not node.args.get("desc"))
    return node


def _write(node: Node) -> Node:
    """Without what comes back; a row that is there already is the driver's Duplicate."""
    node.set("returning", None)
    node.set("conflict", None)
    return node


RULES: Rules = {
    exp.Cast: _uncast,
    exp.Anonymous: clock,
    exp.NullSafeNEQ: _is_distinct,
    exp.DPipe: _concatenation,
    exp.Filter: filtered,
    exp.CTE: _unmaterialized,
    exp.LT: _row_before,
    exp.Add: _plus_interval,
    exp.Sub: _plus_interval,
    exp.EQ: _any,
    exp.Extract: epoch,
    exp.Ordered: ordered,
    exp.Insert: _write,
    exp.Update: _write,
}
