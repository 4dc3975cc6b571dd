"""What a MySQL or MariaDB database has compared with what the migrations make, and repairing it.

Reads   the catalogue, the scripts that migrate runs       Writes  (repair) the parts that differ

A database beside ours, in which to run the migrations once more, is more than an owner may have
here. So the scripts themselves are read: they are ours, and a test on each server compares what is
read out of them with what they make. The servers keep the bodies of triggers and functions as they
were sent; columns, keys and foreign keys are compared by name and by the columns they are of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from surehook.errors import AnswerIsNo
from surehook.store.mysql.connection import Connection
from surehook.store.mysql.script import replaceable
from surehook.store.mysql.server import Server
from surehook.store.shape import Fault, Name, faults, listed

_FOUND = """
SELECT 'table', table_name, table_name, CONCAT(engine, ' ', table_collation)
FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'
UNION ALL
SELECT 'column', table_name, column_name, ''
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
            _read_item(made, table, item)
    elif found := _ALTER.fullmatch(plain):
        for item in _items(found[2]):
            _read_change(made, found[1], item)
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


def _read_item(made: Expected, table: str, item: str) -> None:
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
    elif not item.startswith(("CONSTRAINT ", "CHECK ")):
        column = item.split()[0]
        made.add(Name("column", table, column), "")
        if " PRIMARY KEY" in item:
            _add_key(made, table, "PRIMARY", "UNIQUE KEY", column)
        elif re.search(r" UNIQUE\b", item):
            _add_key(made, table, column, "UNIQUE KEY", column)


def _read_change(made: Expected, table: str, item: str) -> None:
    if item.startswith("ADD "):
        _read_item(made, table, re.sub(r"^ADD (COLUMN )?(IF NOT EXISTS )?", "", item))
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
    return {Name(*map(_text, row[:3])): _plain(_text(row[3])) for row in rows}


def _text(value: object) -> str:
    """MySQL's catalogue has binary columns; a body that we may not see is NULL."""
    return value.decode() if isinstance(value, bytes) else str(value or "")


async def compare(connection: Connection, made: Expected) -> list[Fault]:
    return faults(made.parts, await parts(connection))


# ── Putting it right ──────────────────────────────────────────────────────────────────────────


def refuse_if_lost(wrong: list[Fault]) -> None:
    """What cannot be put right without data that is gone."""
    lost = [one for one in wrong if one.part.kind in ("table", "column") and one.found is None]
    if lost:
        raise AnswerIsNo(
            f"The schema is damaged: {listed(lost)}.",
            "Restore a backup, or put it back by hand: `surehook migrate` repairs keys, functions, "
            "triggers and grants, not tables or columns that are gone.",
        )


def repair(fault: Fault, made: Expected) -> list[str]:
    """The statements that make one part what it should be."""
    part, again = fault.part, made.again[fault.part]
    if fault.found is None or part.kind not in ("key", "foreign key"):
        return again
    gone = "PRIMARY KEY" if part.name == "PRIMARY" else f"{part.kind.upper()} {part.name}"
    head = f"ALTER TABLE {part.table} "
    return [f"{head}DROP {gone}, {again[0].removeprefix(head)}"]
