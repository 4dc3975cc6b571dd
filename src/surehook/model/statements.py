"""Loads named SQL statements from a file. Reads the .sql files of the package; writes nothing.

A file holds statements like this one:

    -- name: lease_jobs :many
    -- Why it is shaped so.
    UPDATE … WHERE bucket = :bucket …;

`:many`, `:one` and `:none` say what comes back: rows, one row or nothing, no rows at all; a record
named behind it is what a row becomes. Braces stand for what follows from a declaration:

    {Subscription s}                     its columns, of the table s
    {Verification v AS verification}     those of a record inside another: verification_id, …
    {Subscription:names}, {…:values}     the settings that are written as they are
    {Subscription:changes}               the same, each set only if :changed names it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Literal, cast

from msgspec import Struct

from surehook.errors import Bug
from surehook.model import fields
from surehook.model.resources import DECLARED

Returns = Literal["many", "one", "none"]

_HEADER = re.compile(r"^-- name: (\w+) :(many|one|none)(?: (\w+))?$", re.MULTILINE)
# {Subscription s}, {Verification v AS verification}, {Subscription:names}: from declarations.
_DERIVED = re.compile(r"\{(\w+)(?::(\w+)| ?(\w*)(?: AS (\w+))?)\}")
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
    record: type[Struct] | None = None  # what a row is
    columns: tuple[str, ...] = ()  # the record's fields that a row has, in order

    def numbered(self) -> str:
        """The text with $1, $2, … in place of :names."""
        return _PARAMETER.sub(lambda m: f"${self.parameters.index(m[1]) + 1}", self.text)


# One changed column among all that may be: what is not named stays as it is.
_IS_NAMED = {
    "postgres": "'{0}' = ANY (string_to_array(:changed, ','))",
    "mysql": "FIND_IN_SET('{0}', :changed)",
}


def derived(text: str, dialect: str) -> tuple[str, set[str]]:
    """The text with what follows from declarations in place of {…}, and the names of the records
    inside another that it selects."""
    records: set[str] = set()

    def fill(found: re.Match[str]) -> str:
        name, what, table, inside = found.groups()
        declared = _declared(name)
        if what is None:
            records.add(inside)
            return ", ".join(fields.columns(declared, table, f"{inside}_" if inside else ""))
        names = fields.plain(declared)
        changed = f"{{0}} = CASE WHEN {_IS_NAMED[dialect]} THEN :{{0}} ELSE {{0}} END"
        form = {"names": "{0}", "values": ":{0}", "changes": changed}[what]
        if what == "changes":
            names = [one for one in names if not fields.settings(declared)[one].once]
        return ", ".join(form.format(one) for one in names)

    return _DERIVED.sub(fill, text), records


def _declared(name: str) -> type[Struct]:
    if name not in DECLARED:
        raise Bug(f"There is no declaration {name}.")
    return DECLARED[name]


def parse(content: str, source: str, dialect: str = "postgres") -> dict[str, Statement]:
    """The statements of one file by name; refuses duplicates, unnamed SQL and two in one."""
    pieces = _HEADER.split(content)
    if any(line and not line.startswith("--") for line in pieces[0].splitlines()):
        raise Bug(f"{source} has SQL before its first `-- name:` line.")
    statements: dict[str, Statement] = {}
    for name, returns, record, body in zip(
        pieces[1::4], pieces[2::4], pieces[3::4], pieces[4::4], strict=True
    ):
        if name in statements:
            raise Bug(f"{source} defines {name} twice.")
        lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
        text = "\n".join(lines).strip().removesuffix(";")
        wrong = _MISSPELT.search(body)
        if wrong:
            raise Bug(f"{source}: `{wrong[0]}` is not `-- name: words :many|one|none`.")
        if not text:
            raise Bug(f"{source}: {name} is empty.")
        if ";" in text:
            raise Bug(f"{source}: {name} holds more than one statement.")
        text, inside = derived(text, dialect)
        kind = _declared(record) if record else None
        columns = () if kind is None else tuple(fields.labels(kind, inside))
        parameters = tuple(dict.fromkeys(_PARAMETER.findall(text)))
        statements[name] = Statement(name, cast(Returns, returns), text, parameters, kind, columns)
    return statements


@cache  # the package's files do not change; a process opens several logins
def load(dialect: str, login: str) -> Mapping[str, Statement]:
    """The statements that `login` may use on `dialect`; a login for others' use has none.

    Those that `make generate` wrote are in a file of the same name; a name is in one of them.
    """
    folder = files("surehook.store").joinpath(dialect)
    found = [folder.joinpath(f"{login}.sql"), folder.joinpath("generated", f"{login}.sql")]
    texts = [file.read_text(encoding="utf-8") for file in found if file.is_file()]
    return MappingProxyType(parse("\n".join(texts), f"{dialect}/{login}.sql", dialect))
