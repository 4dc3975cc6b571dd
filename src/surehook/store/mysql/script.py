"""Splits a script as the engines' own clients do: at the delimiter, which a line may change. Pure.

A trigger's body holds semicolons, so scripts say `DELIMITER //` before one. Our driver sends one
statement at a time; an administrator may feed the same text to `mysql` or `mariadb`.
"""

from __future__ import annotations

import re

_DELIMITER = re.compile(r"^DELIMITER (\S+)$")
_COMMENT = re.compile(r"^\s*--( .*)?$")


def statements(script: str) -> list[str]:
    """The statements in order, without comment lines."""
    found: list[str] = []
    delimiter, lines = ";", []
    for line in script.splitlines():
        change = _DELIMITER.match(line)
        if change:
            delimiter = change[1]
        elif not _COMMENT.match(line):
            lines.append(line)
            if _code(line).endswith(delimiter):
                text = "\n".join(lines).strip()
                found.append(_code(text).removesuffix(delimiter).strip())
                lines = []
    assert not "".join(lines).strip(), f"the script ends in the middle of: {lines}"
    return [text for text in found if text]


def _code(text: str) -> str:
    """Without a comment that ends the last line."""
    head, newline, last = text.rpartition("\n")
    return head + newline + re.sub(r"\s+-- [^']*$", "", last).rstrip()


def replaceable(statement: str) -> list[str]:
    """For a server without CREATE OR REPLACE for triggers and functions: drop, then create."""
    made = re.match(r"CREATE OR REPLACE (TRIGGER|FUNCTION) (\w+)", statement)
    if made is None:
        return [statement]
    return [
        f"DROP {made[1]} IF EXISTS {made[2]}",
        statement.replace("CREATE OR REPLACE", "CREATE", 1),
    ]
