"""What a MySQL or MariaDB database has compared with what the migrations make, and repairing it.

Reads   the catalogue, the scripts that migrate runs       Writes  (repair) the parts that differ

A database beside ours, in which to run the migrations once more, is more than an owner may have
here. So the scripts themselves are read: they are ours, and a test on each server compares what is
read out of them with what they make. The servers keep the bodies of triggers and functions as they
were sent; keys and foreign keys are compared by name and by the columns they are of, columns by
type, collation and whether they take NULL, checks by what they say of which columns. Each server
has its own spelling of these, so both sides are brought to one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from surehook.errors import Declined
from surehook.store.mysql.connection import Connection
from surehook.store.mysql.script import replaceable
from surehook.store.mysql.server import Server
from surehook.store.shape import Fault, Name, faults, listed

_FOUND = """
SELECT 'table', table_name, table_name, CONCAT(engine, ' ', table_collation)
FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'
UNION ALL
SELECT 'column', table_name, column_name, CONCAT_WS(' ', column_type, collation_name,
    IF(is_nullable = 'NO', 'NOT NULL', NULL))
FROM information_schema.columns WHERE table_schema = DATABASE()
UNION ALL
SELECT 'key', table_name, index_name, CONCAT(IF(non_unique, 'KEY', 'UNIQUE KEY'), ' (',
    GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', '), ')')
FROM information_schema.statistics WHERE table_schema = DATABASE()
GROUP BY table_name, index_name, non_unique
UNION ALL
SELECT 'foreign key', table_name, constraint_name, CONCAT(
    GROUP_CONCAT(column_name ORDER BY ordinal_position SEPARATOR ', '), ' REFERENCES ',
    referenced_table_name)
FROM information_schema.key_column_usage
WHERE table_schema = DATABASE() AND referenced_table_name IS NOT NULL
GROUP BY table_name, constraint_name, referenced_table_name
UNION ALL
SELECT 'trigger', event_object_table, trigger_name,
    CONCAT(action_timing, ' ', event_manipulation, ' ', action_statement)
FROM information_schema.triggers WHERE trigger_schema = DATABASE()
UNION ALL
SELECT 'function', '', routine_name, routine_definition
FROM information_schema.routines WHERE routine_schema = DATABASE()
"""
# MariaDB says which table a check is of; in MySQL its name is the only one in the whole database.
_CHECKS = {
    True: "SELECT table_name, check_clause, constraint_name, level = 'Column' "
    "FROM information_schema.check_constraints WHERE constraint_schema = DATABASE()",
    False: "SELECT t.table_name, c.check_clause, c.constraint_name, 0 "
    "FROM information_schema.check_constraints c "
    "JOIN information_schema.table_constraints t USING (constraint_schema, constraint_name) "
    "WHERE c.constraint_schema = DATABASE() AND t.constraint_type = 'CHECK'",
}
_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+) \((.*)\)\s*ENGINE\b.*", re.S)
_ALTER = re.compile(r"ALTER TABLE (\w+)\s+(.*)", re.S)
_INDEX = re.compile(r"CREATE (UNIQUE )?INDEX (?:IF NOT EXISTS )?(\w+) ON (\w+) \((.*)\)", re.S)
_TRIGGER = re.compile(
    r"CREATE OR REPLACE TRIGGER (\w+)\s+(BEFORE|AFTER) (\w+) ON (\w+)\s+FOR EACH ROW\s+"
    r"(?:(?:FOLLOWS|PRECEDES) \w+\s+)?(.*)",
    re.S,
)
_FUNCTION = re.compile(
    r"CREATE OR REPLACE FUNCTION (\w+)\(.*?\)\s+RETURNS \w+(?:\(\d+\))?\s+"
    r"(?:(?:NOT DETERMINISTIC|DETERMINISTIC|NO SQL|CONTAINS SQL|READS SQL DATA"
    r"|SQL SECURITY \w+)\s+)*(.*)",
    re.S,
)
_DROP = re.compile(r"DROP (TABLE|TRIGGER|FUNCTION|INDEX) (?:IF EXISTS )?(\w+)")
_KEY = re.compile(r"(?:(UNIQUE|PRIMARY) )?(?:KEY|INDEX)(?: IF NOT EXISTS)? ?(\w+)? ?\((.*)\)", re.S)
_FOREIGN = re.compile(
    r"CONSTRAINT (\w+)\s+FOREIGN KEY \((.*?)\)\s+REFERENCES (\w+) \((.*?)\).*", re.S
)
_CHECK = re.compile(r"(?:CONSTRAINT \w+ )?CHECK \((.*)\)", re.S)
_COLUMN = re.compile(r"(\w+) (\w+) ?(\([^)]*\))?(.*)", re.S)
_OF_TEXT = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
_WIDTH = re.compile(r"(int)\(\d+\)")  # of numbers; MariaDB shows one, MySQL none
_CHARSET = re.compile(r"\b_[a-z0-9]+(?=\\?')")  # _utf8mb4'…': MySQL's way to show a text
_UNIQUE = re.compile(r"CONSTRAINT (\w+)\s+UNIQUE(?: KEY)?\s+\((.*?)\)", re.S)


@dataclass(slots=True)
class Expected:
    """The parts that the scripts make, and the statements that make each again."""

    parts: dict[Name, str] = field(default_factory=dict)
    again: dict[Name, list[str]] = field(default_factory=dict)

    def add(self, part: Name, definition: str, *again: str) -> None:
        self.parts[part] = definition
        self.again[part] = list(again)

    def drop(self, kind: str, name: str, table: str | None = None) -> None:
        for part in [
            part
            for part in self.parts
            if part.name == name and part.kind == kind and table in (None, part.table)
        ]:
            del self.parts[part], self.again[part]


# ── What the scripts make ─────────────────────────────────────────────────────────────────────


def expected(scripts: Iterable[str], server: Server) -> Expected:
    """From the statements of all scripts, in their order."""
    made = Expected()
    for statement in scripts:
        _read(made, statement, server)
    return made


def _read(made: Expected, statement: str, server: Server) -> None:
    plain = _plain(statement)
    if found := _TABLE.fullmatch(plain):
        table = found[1]
        convert = (
            f"ALTER TABLE {table} ENGINE = InnoDB, "
            f"CONVERT TO CHARACTER SET utf8mb4 COLLATE {server.collation}"
        )
        made.add(Name("table", table, table), f"InnoDB {server.collation}", convert)
        for item in _items(found[2]):
            _read_item(made, table, item, server)
    elif found := _ALTER.fullmatch(plain):
        for item in _items(found[2]):
            _read_change(made, found[1], item, server)
    elif found := _INDEX.fullmatch(plain):
        unique = "UNIQUE " if found[1] else ""
        _add_key(made, found[3], found[2], f"{unique}KEY", found[4])
    elif found := _TRIGGER.fullmatch(statement):
        name, timing, verb, table, body = found.groups()
        made.drop("trigger", name)
        part = Name("trigger", table, name)
        made.add(part, _plain(f"{timing} {verb} {body}"), *replaceable(statement))
    elif found := _FUNCTION.fullmatch(statement):
        made.add(Name("function", "", found[1]), _plain(found[2]), *replaceable(statement))
    elif found := _DROP.match(plain):
        made.drop("key" if found[1] == "INDEX" else found[1].lower(), found[2])


def _read_item(made: Expected, table: str, item: str, server: Server) -> None:
    """A column, a key or a constraint of a table."""
    if found := _KEY.fullmatch(item):
        unique, name, columns = found.groups()
        if unique == "PRIMARY":
            _add_key(made, table, "PRIMARY", "UNIQUE KEY", columns)
        else:
            _add_key(made, table, name, "UNIQUE KEY" if unique else "KEY", columns)
    elif found := _FOREIGN.fullmatch(item):
        name, columns, other, _ = found.groups()
        part = Name("foreign key", table, name)
        made.add(part, f"{columns} REFERENCES {other}", f"ALTER TABLE {table} ADD {item}")
    elif found := _UNIQUE.fullmatch(item):
        _add_key(made, table, found[1], "UNIQUE KEY", found[2])
    elif found := _CHECK.fullmatch(item):
        _add_check(made, table, found[1], f"ADD {item}")
    elif found := _COLUMN.fullmatch(item):
        column, kind, size, rest = found[1], found[2].lower(), found[3] or "", f" {found[4]}"
        made.add(Name("column", table, column), _column(kind, size, rest, server))
        if " PRIMARY KEY" in rest:
            _add_key(made, table, "PRIMARY", "UNIQUE KEY", column)
        elif re.search(r" UNIQUE\b", rest):
            _add_key(made, table, column, "UNIQUE KEY", column)
        if found := re.search(r" CHECK \((.*)\)$", rest):
            # MariaDB keeps it in the column's definition, MySQL as one of the table's.
            again = f"MODIFY COLUMN {item}" if server.is_mariadb else f"ADD CHECK ({found[1]})"
            _add_check(made, table, found[1], again)


def _column(kind: str, size: str, rest: str, server: Server) -> str:
    """As the catalogue has it."""
    spelled = {"boolean": "tinyint", "integer": "int"}.get(kind, kind) + size.replace(", ", ",")
    collation = [server.collation] if kind in _OF_TEXT else []
    needed = ["NOT NULL"] if " NOT NULL" in rest else []
    return " ".join([spelled, *collation, *needed])


def _add_check(made: Expected, table: str, clause: str, again: str) -> None:
    """Known by its columns: unnamed ones have other names on every server."""
    columns = {part.name for part in made.parts if part.kind == "column" and part.table == table}
    part = Name("check", table, ", ".join(sorted(columns & set(re.findall(r"\w+", clause)))))
    made.add(part, _said(clause), again)


def _said(clause: str) -> str:
    """What a check says, without the servers' own spaces, brackets, quotes and letter cases."""
    texts = _CHARSET.sub("", clause).replace("\\'", "'").split("'")
    return "'".join(
        text if number % 2 else re.sub(r"[\s()`]", "", text).lower()
        for number, text in enumerate(texts)
    )


def _read_change(made: Expected, table: str, item: str, server: Server) -> None:
    if item.startswith("ADD "):
        _read_item(made, table, re.sub(r"^ADD (COLUMN )?(IF NOT EXISTS )?", "", item), server)
    elif found := re.match(r"DROP (KEY|INDEX|COLUMN) (?:IF EXISTS )?(\w+)", item):
        made.drop("column" if found[1] == "COLUMN" else "key", found[2], table)


def _add_key(made: Expected, table: str, name: str, kind: str, columns: str) -> None:
    again = f"PRIMARY KEY ({columns})" if name == "PRIMARY" else f"{kind} {name} ({columns})"
    plain = re.sub(r"\(\d+\)| (ASC|DESC)\b", "", columns)
    made.add(Name("key", table, name), f"{kind} ({plain})", f"ALTER TABLE {table} ADD {again}")


def _plain(text: str) -> str:
    """Without comments, and with one space between any two words.

    The catalogue shows a body's quoted texts with half of their backslashes: they count as one.
    """
    words = " ".join(re.sub(r"(^|\s)-- .*$", "", text, flags=re.M).split())
    return re.sub(r"\\+", r"\\", words)


def _items(body: str) -> list[str]:
    """What commas separate outside of parentheses and quotes."""
    found, depth, start = [], 0, 0
    for position, character in enumerate(re.sub(r"'[^']*'", lambda q: "'" * len(q[0]), body)):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            found.append(body[start:position].strip())
            start = position + 1
    return [*found, body[start:].strip()]


# ── What there is ─────────────────────────────────────────────────────────────────────────────


async def parts(connection: Connection) -> dict[Name, str]:
    rows = await connection.fetch(_FOUND)
    found = {Name(*map(_text, row[:3])): _plain(_text(row[3])) for row in rows}
    for part in found:
        if part.kind == "column":
            found[part] = _WIDTH.sub(r"\1", found[part])
    for check in await _checks(connection):
        # Two about the same columns say more than what is expected of them.
        found[check.part] = " ".join(filter(None, [found.get(check.part), check.says]))
    return found


@dataclass(frozen=True, slots=True)
class _Check:
    part: Name
    says: str
    name: str
    in_column: bool  # it goes when the column is defined anew, and only then


async def _checks(connection: Connection) -> list[_Check]:
    rows = await connection.fetch(_CHECKS[connection.server.is_mariadb])
    return [
        _Check(Name("check", table, _columns(clause)), _said(clause), name, bool(in_column))
        for table, clause, name, in_column in ((*map(_text, row[:3]), row[3]) for row in rows)
    ]


def _columns(clause: str) -> str:
    return ", ".join(sorted(set(re.findall(r"`(\w+)`", clause))))


def _text(value: object) -> str:
    """MySQL's catalogue has binary columns; a body that we may not see is NULL."""
    return value.decode() if isinstance(value, bytes) else str(value or "")


async def compare(connection: Connection, made: Expected) -> list[Fault]:
    return faults(made.parts, await parts(connection))


# ── Putting it right ──────────────────────────────────────────────────────────────────────────


def refuse_if_lost(wrong: list[Fault]) -> None:
    """What cannot be put right without data that is gone."""
    converted = {one.part.table for one in wrong if one.part.kind == "table"}  # columns and all
    lost = [
        one
        for one in wrong
        if (one.part.kind in ("table", "column") and one.found is None)
        or (one.part.kind == "column" and one.part.table not in converted)
    ]
    if lost:
        raise Declined(
            f"The schema is damaged: {listed(lost)}.",
            "Restore a backup, or put it back by hand: `surehook migrate` repairs keys, checks, "
            "functions, triggers and grants, not tables or columns.",
        )


async def repair(connection: Connection, fault: Fault, made: Expected) -> list[str]:
    """The statements that make one part what it should be."""
    part, again = fault.part, made.again[fault.part]
    if part.kind == "check":
        others = [one for one in await _checks(connection) if one.part == part]
        drop = "DROP CONSTRAINT" if connection.server.is_mariadb else "DROP CHECK"
        drops = [f"{drop} `{one.name}`" for one in others if not one.in_column]
        return [f"ALTER TABLE {part.table} {', '.join([*drops, *again])}"]
    if fault.found is None or part.kind not in ("key", "foreign key"):
        return again
    gone = "PRIMARY KEY" if part.name == "PRIMARY" else f"{part.kind.upper()} {part.name}"
    head = f"ALTER TABLE {part.table} "
    return [f"{head}DROP {gone}, {again[0].removeprefix(head)}"]
