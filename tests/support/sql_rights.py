"""What a SQL statement needs: verb, table and column, found by parsing it. Pure; no database.

    needs("UPDATE t SET a = $1 WHERE b = $2")  →  UPDATE t(a), SELECT t(b)

The rules are the engines': a column named anywhere but as a target must be readable; ON CONFLICT DO
NOTHING needs nothing; FOR UPDATE needs the right to update some column; a table that is only
counted needs the right to read some column; rows may be deleted only where the role may forget
them. A name that cannot be resolved is an error, so that nothing slips through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import exp

from surehook.model.roles import TABLES_ON, Role, Verb
from surehook.model.statements import Statement

Node = Any  # sqlglot's own types differ from call to call
Tables = Mapping[str, tuple[str, ...]]

ANY = "(any)"  # some column, no matter which
HOT = ("events", "webhook_delivery_sagas", "webhook_delivery_jobs", "dead_letters")


class Unclear(Exception):
    """The statement cannot be understood, so it cannot be said to be safe."""


@dataclass(frozen=True, order=True)
class Need:
    verb: Verb
    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.verb} {self.table}({self.column})"


@dataclass
class Found:
    """What one statement needs, which hot tables it reads in all buckets, what it calls."""

    needs: set[Need] = field(default_factory=set)
    unbucketed: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)  # tables whose rows it deletes

    @property
    def written(self) -> set[str]:
        written = {need.table for need in self.needs if need.verb is not Verb.SELECT}
        return written | self.forgotten

    def missing(self, role: Role) -> set[str]:
        """What the role may not do."""
        missing = {str(need) for need in self.needs if not _granted(role, need)}
        return missing | {f"DELETE {table}" for table in self.forgotten - {*role.may_delete}}


def _granted(role: Role, need: Need) -> bool:
    columns = role.columns(need.verb, need.table)
    return bool(columns) if need.column == ANY else need.column in columns


@dataclass
class Scope:
    """The names that one query sees: its own sources, then those around it."""

    known: Tables
    outer: Scope | None = None
    tables: dict[str, str] = field(default_factory=dict)  # alias → real table
    # alias → columns of a subquery, CTE or function
    derived: dict[str, frozenset[str]] = field(default_factory=dict)
    outputs: frozenset[str] = frozenset()  # ORDER BY may name these

    def resolve(self, column: exp.Column) -> tuple[Scope, str] | None:
        """The scope and alias of the real table a column belongs to; None if it is derived."""
        qualifier, name = column.table, column.name
        scope: Scope | None = self
        while scope is not None:
            for alias, columns in scope.derived.items():
                if name in columns and qualifier in ("", alias):
                    return None
            for alias, table in scope.tables.items():
                if name in self.known[table] and qualifier in ("", alias):
                    return scope, alias
            if not qualifier and name in scope.outputs:
                return None
            scope = scope.outer
        raise Unclear(f"{column.sql()} belongs to no table of the statement")


# The tables and columns of the engines' catalogues that statements of ours ask.
CATALOGUES = ("pg_catalog", "information_schema")
CATALOGUE = {
    "pg_class": frozenset({"oid", "relname", "relkind", "relnamespace"}),
    "tables": frozenset({"table_schema", "data_length", "index_length"}),
}
Names = Mapping[str, frozenset[str]]  # the CTEs in reach and their columns


def parsable(engine: str, statement: Statement) -> str:
    """A statement with something in place of its parameters that the parser understands."""
    if engine == "postgres":
        return statement.numbered()
    # There a parameter may stand for whole rows or conditions: see store/mysql/values.py.
    text = re.sub(r"\bVALUES :\w+", "VALUES (1)", statement.text)
    text = re.sub(r"\bIN \(:\w+\)", "IN ((1, 1))", text)
    text = re.sub(r"\bIN :\w+", "IN (1)", text)
    text = re.sub(r" CHARACTER SET \w+ PATH\b", " PATH", text)
    return re.sub(r"(?<![:\w]):[a-z_]+\b", "?", text)


def outputs(text: str, engine: str) -> list[str]:
    """The names of the columns that a statement returns, in order."""
    statement = _parsed(text, engine)
    while isinstance(statement, exp.SetOperation):
        statement = statement.left
    return [one.alias_or_name for one in statement.args.get("returning") or statement.selects]


def _parsed(text: str, engine: str) -> Node:
    # The parser knows JOIN after any function but unnest in UPDATE … FROM: give it another name.
    statements = sqlglot.parse(text.replace("unnest(", "rows_of("), read=engine)
    if len(statements) != 1 or statements[0] is None:
        raise Unclear("not exactly one statement")
    return statements[0]


def analyse(text: str, engine: str = "postgres") -> Found:
    """Everything about one statement, as `parsable` gives it."""
    statement = _parsed(text, engine)
    found = Found()
    _Visit(found, TABLES_ON[engine]).query(statement, {}, None)
    for call in statement.find_all(exp.Func):
        found.functions.add((call.name if isinstance(call, exp.Anonymous) else call.key).lower())
    return found


class _Visit:
    def __init__(self, found: Found, known: Tables) -> None:
        self._found = found
        self._known = known

    def _table(self, name: str) -> str:
        if name not in self._known:
            raise Unclear(f"there is no table {name}")
        return name

    def query(self, node: Node, names: Names, outer: Scope | None) -> frozenset[str]:
        """Visit a query and return the names of its columns."""
        names = self._common_tables(node, names, outer)
        match node:
            case exp.Select():
                return self._select(node, names, outer)
            case exp.SetOperation():
                columns = self.query(node.left, names, outer)
                self.query(node.right, names, outer)
                for part in ("order", "limit", "offset"):
                    scope = Scope(self._known, outer, outputs=columns)
                    self._expressions(node.args.get(part), names, scope)
                return columns
            case exp.Subquery():
                return self.query(node.this, names, outer)
            case exp.Insert():
                return self._insert(node, names, outer)
            case exp.Update():
                return self._update(node, names, outer)
            case exp.Delete() if node.args.get("where"):
                return self._delete(node, names, outer)
            case _:
                raise Unclear(f"{node.key.upper()} is no statement that a component may use")

    def _common_tables(self, node: Node, names: Names, outer: Scope | None) -> Names:
        clause = node.args.get("with_")
        for table in clause.expressions if clause else ():
            body = table.this
            if clause and clause.args.get("recursive") and isinstance(body, exp.SetOperation):
                first = self.query(body.left, names, outer)
                names = {**names, table.alias: first}
            names = {**names, table.alias: self.query(body, names, outer)}
        return names

    # ── Statements ───────────────────────────────────────────────────────────────────────────

    def _select(self, node: exp.Select, names: Names, outer: Scope | None) -> frozenset[str]:
        scope = Scope(self._known, outer)
        joins = self._sources(node, names, scope)
        columns = frozenset(one.alias_or_name for one in node.expressions)
        for one in node.expressions:
            if isinstance(one, exp.Star) and not scope.tables:  # of derived rows only: harmless
                columns |= frozenset().union(*scope.derived.values())
            elif one.is_star and getattr(one, "table", "") in scope.derived:  # the same: given.*
                columns |= scope.derived[one.table]
            else:
                self._expressions(one, names, scope)
        self._conditions(node, joins, names, scope)
        scope.outputs = columns  # seen by what follows, not by what stands before
        for part in ("group", "having", "order", "limit", "offset", "distinct", "windows"):
            self._expressions(node.args.get(part), names, scope)
        for table in scope.tables.values():
            self._need(Verb.SELECT, table, ANY)
        self._locks(node, scope)
        return columns

    def _locks(self, node: exp.Select, scope: Scope) -> None:
        for lock in node.args.get("locks") or ():
            if not lock.args.get("update"):
                continue  # a share lock needs no more than reading
            named = [table.name for table in lock.expressions]
            for alias in named or scope.tables:
                self._need(Verb.UPDATE, scope.tables[alias], ANY)

    def _insert(self, node: exp.Insert, names: Names, outer: Scope | None) -> frozenset[str]:
        target = node.this
        if not isinstance(target, exp.Schema):
            raise Unclear("INSERT without a list of columns")
        table = self._table(target.this.name)
        columns = [column.name for column in target.expressions]
        for column in columns:
            self._need(Verb.INSERT, table, column)
        if table in HOT and "bucket" not in columns:
            self._found.unbucketed.add(table)
        if isinstance(node.expression, exp.Values):
            self._expressions(node.expression, names, Scope(self._known, outer))
        else:
            self.query(node.expression, names, outer)
        conflict = node.args.get("conflict")
        if conflict and (conflict.expressions or conflict.args.get("conflict_keys")):
            raise Unclear("ON CONFLICT that names columns or updates needs more rights than INSERT")
        alias = target.this.alias or table
        return self._returning(node, names, Scope(self._known, outer, {alias: table}))

    def _update(self, node: exp.Update, names: Names, outer: Scope | None) -> frozenset[str]:
        scope = Scope(self._known, outer)
        joins = self._sources(node, names, scope, node.this)
        # MySQL may update a table that is joined: its alias stands before the columns.
        aliases = {assignment.this.table for assignment in node.expressions} - {""}
        if len(aliases) > 1:
            raise Unclear("an UPDATE of several tables")
        table = scope.tables[aliases.pop() if aliases else node.this.alias_or_name]
        for assignment in node.expressions:
            self._need(Verb.UPDATE, table, assignment.this.name)
            self._expressions(assignment.expression, names, scope)
        self._conditions(node, joins, names, scope)
        for real in set(scope.tables.values()) - {table}:
            self._need(Verb.SELECT, real, ANY)
        return self._returning(node, names, scope)

    def _delete(self, node: exp.Delete, names: Names, outer: Scope | None) -> frozenset[str]:
        scope = Scope(self._known, outer)
        joins = self._sources(node, names, scope, node.this)
        self._found.forgotten.add(scope.tables[node.this.alias_or_name])
        self._conditions(node, joins, names, scope)
        return frozenset()

    def _returning(self, node: Node, names: Names, scope: Scope) -> frozenset[str]:
        clause = node.args.get("returning")
        if clause is None:
            return frozenset()
        for one in clause.expressions:
            self._expressions(one, names, scope)
        return frozenset(one.alias_or_name for one in clause.expressions)

    # ── Parts ────────────────────────────────────────────────────────────────────────────────

    def _sources(self, node: Node, names: Names, scope: Scope, *target: Node) -> list[Node]:
        """Take up the target, FROM and JOIN; returns the conditions of the joins."""
        conditions = []
        clause = node.args.get("from_")
        first = [*target, *([clause.this] if clause else [])]
        joins = [*(node.args.get("joins") or ()), *(node.args.get("laterals") or ())]
        for one in first:
            joins = [*(one.args.get("joins") or ()), *joins]
            self._source(one, names, scope)
        for join in joins:
            self._source(join.this if isinstance(join, exp.Join) else join, names, scope)
            if join.args.get("on") is not None:
                conditions.append(join.args["on"])
            if join.args.get("using"):
                raise Unclear("JOIN … USING hides which columns it reads")
        return conditions

    def _source(self, node: Node, names: Names, scope: Scope) -> None:
        alias = node.alias_or_name
        match node:
            case exp.Table() if node.name.upper() == "DUAL":
                pass  # MySQL's word for no table
            case exp.Table() if node.db in CATALOGUES:  # everybody's to read
                scope.derived[alias] = CATALOGUE[node.name]
            case exp.Table() if node.name in names:
                scope.derived[alias] = names[node.name]
            case exp.Table() if isinstance(node.this, exp.Func):
                self._expressions(node.this, names, scope)
                scope.derived[alias] = _columns_of_function(node)
            case exp.Table():
                scope.tables[alias] = self._table(node.name)
            case exp.Subquery():
                scope.derived[alias] = self.query(node.this, names, scope)
            case exp.Lateral() if isinstance(node.this, exp.Subquery):
                scope.derived[alias] = self.query(node.this.this, names, scope)
            case _:
                raise Unclear(f"{node.sql()} as a source")

    def _conditions(self, node: Node, joins: list[Node], names: Names, scope: Scope) -> None:
        where = node.args.get("where")
        conditions = [*joins, *([where.this] if where else [])]
        bucketed: set[str] = set()
        for condition in conditions:
            self._expressions(condition, names, scope)
            bucketed.update(_bucketed(condition, scope))
        for alias, table in scope.tables.items():
            if table in HOT and alias not in bucketed:
                self._found.unbucketed.add(table)

    def _expressions(self, node: Node | None, names: Names, scope: Scope) -> None:
        """Every column and every subquery below this node."""
        if node is None:
            return
        match node:
            case exp.Select() | exp.SetOperation() | exp.Subquery():
                self.query(node, names, scope)
            case exp.Column():
                owner = scope.resolve(node)
                if owner is not None:
                    self._need(Verb.SELECT, owner[0].tables[owner[1]], node.name)
            case exp.Star() if not isinstance(node.parent, exp.Count):
                raise Unclear("* hides which columns it reads")
            case _:
                for child in node.iter_expressions():
                    self._expressions(child, names, scope)

    def _need(self, verb: Verb, table: str, column: str) -> None:
        if column != ANY and column not in self._known[table]:
            raise Unclear(f"{table} has no column {column}")
        self._found.needs.add(Need(verb, table, column))


def _columns_of_function(node: exp.Table) -> frozenset[str]:
    """The columns that a function's alias names, or those of the catalogue function we use."""
    if node.this.name.lower() == "pg_control_system":
        return frozenset({"system_identifier"})
    if isinstance(node.this, exp.JSONTable):
        return frozenset(column.name for column in node.this.args["schema"].expressions)
    return frozenset(node.alias_column_names)


def _bucketed(condition: Node, scope: Scope) -> Iterator[str]:
    """The aliases whose bucket this condition pins down, as a term that must hold."""
    for term in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        if isinstance(term, exp.And | exp.Paren):
            yield from _bucketed(term.unnest() if isinstance(term, exp.Paren) else term, scope)
        elif isinstance(term, exp.EQ | exp.In):
            for side in _pinned(term):
                if isinstance(side, exp.Column) and side.name == "bucket":
                    owner = scope.resolve(side)
                    if owner is not None and owner[0] is scope:
                        yield owner[1]


def _pinned(term: exp.EQ | exp.In) -> list[Node]:
    """What an equation says exactly; (a, bucket) IN (…) says each row's."""
    if isinstance(term, exp.EQ):
        return [term.left, term.right]
    return list(term.this.expressions) if isinstance(term.this, exp.Tuple) else []
