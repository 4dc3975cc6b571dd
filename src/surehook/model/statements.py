"""Loads named SQL statements from a file. Reads the .sql files of the package; writes nothing.

A file holds statements like this one:

    -- name: lease_jobs :many
    -- Why it is shaped so.
    UPDATE … WHERE bucket = :bucket …;

`:many`, `:one` and `:none` say what comes back: rows, one row or nothing, no rows at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, cast

from surehook.errors import Bug

Returns = Literal["many", "one", "none"]

_HEADER = re.compile(r"^-- name: (\w+) :(many|one|none)$", re.MULTILINE)
# What was meant as a header: taken for a comment, its statement would run as part of the one above.
_MISSPELT = re.compile(r"^--\s*name(?:\s*:.*|\s+\w+\s+:\w+)$", re.MULTILINE | re.IGNORECASE)
# A parameter is :word; a cast is ::word, a slice or a time inside a literal has a digit or quote.
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement with its parameters in the order in which they first appear."""

    name: str
    returns: Returns
    text: str
    parameters: tuple[str, ...]

    def numbered(self) -> str:
        """The text with $1, $2, … in place of :names."""
        return _PARAMETER.sub(lambda m: f"${self.parameters.index(m[1]) + 1}", self.text)


def parse(content: str, source: str) -> dict[str, Statement]:
    """The statements of one file by name; refuses duplicates, unnamed SQL and two in one."""
    pieces = _HEADER.split(content)
    if any(line and not line.startswith("--") for line in pieces[0].splitlines()):
        raise Bug(f"{source} has SQL before its first `-- name:` line.")
    statements: dict[str, Statement] = {}
    for name, returns, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        if name in statements:
            raise Bug(f"{source} defines {name} twice.")
        lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
        text = "\n".join(lines).strip().removesuffix(";")
        wrong = _MISSPELT.search(body)
        if wrong:
            raise Bug(f"{source}: `{wrong[0]}` is no `-- name: words :many|one|none`.")
        if not text:
            raise Bug(f"{source}: {name} is empty.")
        if ";" in text:
            raise Bug(f"{source}: {name} holds more than one statement.")
        parameters = tuple(dict.fromkeys(_PARAMETER.findall(text)))
        statements[name] = Statement(name, cast(Returns, returns), text, parameters)
    return statements


def load(dialect: str, component: str) -> dict[str, Statement]:
    """The statements that `component` may use on `dialect`; a login for others' use has none.

    Those that `make generate` wrote are in a file of the same name; a name is in one of them.
    """
    folder = files("surehook.store").joinpath(dialect)
    found = [folder.joinpath(f"{component}.sql"), folder.joinpath("generated", f"{component}.sql")]
    texts = [file.read_text(encoding="utf-8") for file in found if file.is_file()]
    return parse("\n".join(texts), f"{dialect}/{component}.sql")
