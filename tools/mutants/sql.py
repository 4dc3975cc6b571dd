"""Mutants of SQL: conditions without one of their parts, comparisons turned round or moved by one.

An equality is left out but not turned round: that would break the statement for whoever uses it.

Text in, text out: a condition is found by the words around it (WHERE, ON, WHEN, IF), so that what
is not touched stays as it was written, index hints and all. A part that is left out stays there as
`(… OR TRUE)`: the parameters of the statement are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tools.mutants.mutant import Edit, Mutant

_TOKEN = re.compile(
    r"(?P<skip>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<word>::?[A-Za-z_][\w]*(?:\[\])?|[A-Za-z_@$][\w.$@]*|\d+(?:\.\d+)?(?:e\d+)?)"
    r"|(?P<sign><=>|<>|<=|>=|>>|\|\||[-+*/%<>=&^(),;\[\]{}])",
    re.DOTALL,
)
# A condition begins behind one of these …
_BEGINS = {"WHERE", "ON", "WHEN", "HAVING", "IF", "ELSEIF"}
# … and ends before one of these, or where the bracket around it does.
_ENDS = {
    "THEN", "ELSE", "END", "GROUP", "ORDER", "LIMIT", "OFFSET", "FOR", "RETURNING", "UNION", "SET",
    "WHERE", "LOOP", "DO", "JOIN", "LEFT", "CROSS", "INNER", "STRAIGHT_JOIN", "FROM", "EXECUTE",
    "ON", "VALUES", ";",
}  # fmt: skip
_OPPOSITE = {
    "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
    "<=>": "<>", "IN": "NOT IN", "BETWEEN": "NOT BETWEEN",
    "EXISTS": "NOT EXISTS", "LIKE": "NOT LIKE",
}  # fmt: skip
_BY_ONE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_OTHER_FUNCTION = {"GREATEST": "LEAST", "LEAST": "GREATEST"}


class Token(NamedTuple):
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        return self.text.upper()


Tokens = Sequence[Token]


def tokens_of(content: str, start: int, end: int) -> list[Token]:
    found = []
    at = start
    while at < end:
        match = _TOKEN.match(content, at, end)
        if match is None:  # a character of plpgsql's own, such as := or $$
            at += 1
            continue
        if match.lastgroup != "skip":
            found.append(Token(match[0], match.start(), match.end()))
        at = match.end()
    return found


def edits(content: str, start: int = 0, end: int | None = None) -> Iterator[Edit]:
    """Every change of the conditions, and of what is reckoned, between two places of a text."""
    tokens = tokens_of(content, start, len(content) if end is None else end)
    for number, token in enumerate(tokens):
        if token.upper in _BEGINS and not _is_other_use(tokens, number):
            yield from _condition(content, tokens[number + 1 : _condition_end(tokens, number + 1)])
        if token.upper in _OTHER_FUNCTION:
            other = _OTHER_FUNCTION[token.upper]
            yield Edit(
                token.start, token.end, other, f"{token.text} → {other} {_near(tokens, number)}"
            )
    for before, token in pairwise(tokens):
        if before.text == "+" and token.text == "1":
            says = f"+ 1 → + 2 {_near(tokens, tokens.index(before))}"
            yield Edit(token.start, token.end, "2", says)


def _is_other_use(tokens: Tokens, number: int) -> bool:
    """ON CONFLICT, DROP … IF EXISTS, and ON of CREATE TRIGGER … ON a table."""
    following = tokens[number + 1].upper if number + 1 < len(tokens) else ""
    if following in ("CONFLICT", "TRUE", "DUPLICATE") or tokens[number].upper == "IF" == following:
        return True
    if tokens[number].upper == "ON":
        back = [token.upper for token in tokens[max(number - 9, 0) : number]]
        return "TRIGGER" in back
    return tokens[number].upper == "IF" and (
        following == "EXISTS" or tokens[number - 1].upper == "END"
    )


def _condition_end(tokens: Tokens, number: int) -> int:
    depth = 0
    cases = 0
    while number < len(tokens):
        word = tokens[number].upper
        cases += word == "CASE"
        if word == ")" and depth == 0:
            break
        depth += (word == "(") - (word == ")")
        if depth == 0 and cases == 0 and word in _ENDS and not _is_part(tokens, number):
            break
        if word == "END" and cases:
            cases -= 1
        number += 1
    return number


def _is_part(tokens: Tokens, number: int) -> bool:
    """IS DISTINCT FROM, and the function LEFT(…)."""
    around = [token.upper for token in tokens[number - 1 : number + 2]]
    return around[:2] == ["DISTINCT", "FROM"] or around[1:] == ["LEFT", "("]


# ── One condition ─────────────────────────────────────────────────────────────────────────────


def _condition(content: str, tokens: Tokens, *, inside: bool = False) -> Iterator[Edit]:
    """`inside`: of brackets, which as a whole are left out already."""
    if not tokens:
        return
    alternatives = _split(tokens, "OR")
    for alternative in alternatives:
        if len(alternatives) > 1:
            yield _made(content, alternative, "AND FALSE", "never")
        parts = _split(alternative, "AND")
        for part in parts:
            if len(parts) > 1 or (len(alternatives) == 1 and not inside):
                yield _made(content, part, "OR TRUE", "always")
            yield from _part(content, part)


def _made(content: str, tokens: Tokens, ending: str, says: str) -> Edit:
    start, end = tokens[0].start, tokens[-1].end
    text = content[start:end]
    return Edit(start, end, f"(({text}) {ending})", f"{says} {_one_line(text)}")


def _split(tokens: Tokens, word: str) -> list[Tokens]:
    """At a word outside of brackets and CASE; the AND of BETWEEN is not one."""
    parts: list[Tokens] = []
    depth = cases = begun = 0
    between = False
    for number, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        cases += (token.upper == "CASE") - (token.upper == "END")
        if depth or cases:
            continue
        if token.upper == "BETWEEN":
            between = True
        elif token.upper == "AND" and between:
            between = False
        elif token.upper == word:
            parts.append(tokens[begun:number])
            begun = number + 1
    return [*parts, tokens[begun:]]


def _part(content: str, tokens: Tokens) -> Iterator[Edit]:
    """A single comparison, or a condition in brackets."""
    while tokens and tokens[0].upper == "NOT":
        tokens = tokens[1:]
    if not tokens:
        return
    inner = _in_brackets(tokens)
    if inner and inner[0].upper != "SELECT":
        yield from _condition(content, inner, inside=True)
        return
    depth = 0
    changed = False
    for number, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if depth:
            continue
        if token.upper in _OPPOSITE or token.text == "=":
            changed = True
            yield from _turned(content, tokens, number)
        elif token.upper == "IS":
            changed = True
            yield _is_turned(content, tokens, number)
    if not changed and not inner:
        start, end = tokens[0].start, tokens[-1].end
        text = content[start:end]
        yield Edit(start, end, f"NOT ({text})", f"not {_one_line(text)}")


def _turned(content: str, tokens: Tokens, number: int) -> Iterator[Edit]:
    token = tokens[number]
    whole = _one_line(content[tokens[0].start : tokens[-1].end])
    for changes, how in ((_OPPOSITE, "opposite"), (_BY_ONE, "by one")):
        if token.upper in changes:
            other = changes[token.upper]
            yield Edit(token.start, token.end, other, f"{how} {whole}")
    if token.upper == "IN" and number + 1 < len(tokens) and tokens[number + 1].text == "(":
        yield from _fewer(tokens, number + 2)


def _fewer(tokens: Tokens, number: int) -> Iterator[Edit]:
    """A list of literals without one of them."""
    items = []
    while number < len(tokens) and re.match(r"['\d]", tokens[number].text):
        items.append(tokens[number])
        number += 2 if number + 1 < len(tokens) and tokens[number + 1].text == "," else 1
    if len(items) < 2:
        return
    for item in items:
        rest = ", ".join(one.text for one in items if one is not item)
        says = f"without {item.text} of {', '.join(one.text for one in items)}"
        yield Edit(items[0].start, items[-1].end, rest, says)


def _is_turned(content: str, tokens: Tokens, number: int) -> Edit:
    whole = _one_line(content[tokens[0].start : tokens[-1].end])
    after = tokens[number + 1]
    if after.upper == "NOT":
        return Edit(tokens[number].start, after.end, "IS", f"opposite {whole}")
    return Edit(tokens[number].start, tokens[number].end, "IS NOT", f"opposite {whole}")


def _in_brackets(tokens: Tokens) -> Tokens:
    """What is inside, if all of it is in one pair of brackets, which IS TRUE may follow."""
    if tokens[0].text != "(":
        return ()
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            rest = [one.upper for one in tokens[number + 1 :]]
            inside = tokens[1:number]
            known: tuple[list[str], ...] = (
                [],
                ["IS", "TRUE"],
                ["IS", "FALSE"],
                ["IS", "NOT", "TRUE"],
            )
            is_row = len(_split_commas(inside)) > 1
            return inside if rest in known and not is_row else ()
    return ()


def _split_commas(tokens: Tokens) -> list[Tokens]:
    depth = 0
    found: list[Tokens] = [()]
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and depth == 0:
            found.append(())
        else:
            found[-1] = (*found[-1], token)
    return found


def _one_line(text: str) -> str:
    text = " ".join(re.sub(r"--[^\n]*", " ", text).split())
    return text if len(text) <= 100 else f"{text[:70]} … {text[-28:]}"


def _near(tokens: Tokens, number: int) -> str:
    """A few words around, to tell one from another."""
    return "in " + " ".join(token.text for token in tokens[max(number - 3, 0) : number + 4])


def _line(content: str, start: int) -> str:
    return content[start:].split("\n", 1)[0]


# ── Files ─────────────────────────────────────────────────────────────────────────────────────

_NAME = re.compile(r"^-- name: (\w+) .*$", re.MULTILINE)
_MADE = re.compile(r"^CREATE OR REPLACE (?:TRIGGER|FUNCTION) (\w+)|^DO \$\$", re.MULTILINE)


def of_statements(path: str, content: str, names: Sequence[str]) -> Iterator[Mutant]:
    """Of a file of named statements, those of some of them."""
    found = [(match[1], match.end()) for match in _NAME.finditer(content)]
    ends = [*(match.start() for match in _NAME.finditer(content)), len(content)][1:]
    for (name, start), end in zip(found, ends, strict=True):
        if name in names:
            for edit in edits(content, start, end):
                yield Mutant(path, name, edit)


def of_script(path: str, content: str, until: str) -> Iterator[Mutant]:
    """Of a script of triggers, up to some words of it."""
    content = content[: content.index(until)]
    starts = [match.start() for match in _MADE.finditer(content)] + [len(content)]
    for start, end in pairwise(starts):
        place = re.sub(
            r"CREATE OR REPLACE |\(\) RETURNS.*| FOR EACH ROW.*", "", _line(content, start)
        )
        for edit in edits(content, start, end):
            yield Mutant(path, place, edit)
