"""Mutants of Python: comparisons, limits, reckoning, constants, what is returned.

Text in, text out: a node of the syntax tree is replaced where it stands; the rest stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tools.mutants.mutant import Edit, Mutant

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BY_ONE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_OTHER: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
}
_OTHER_FUNCTION = {"min": "max", "max": "min"}
_CONDITIONS = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Call, ast.IfExp)


def of_file(path: str, content: str, names: Sequence[str] = ()) -> Iterator[Mutant]:
    """Of a whole file; or the conditions and the reckoning of some functions (Class.name if of a
    class): what else those hold is rows in and rows out, which any use of them notices."""
    offsets = _Offsets(content)
    for place, body in _places(ast.parse(content)):
        if names and place not in names:
            continue
        for node in _nodes(body):
            if names and not isinstance(node, _CONDITIONS):
                continue
            for changed, says in _changes(node):
                start = offsets(node.lineno, node.col_offset)
                end = offsets(node.end_lineno or 0, node.end_col_offset or 0)
                text = f"({changed})" if isinstance(node, ast.expr) else changed
                yield Mutant(path, place, Edit(start, end, text, says))


def _places(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}", inner
                elif isinstance(inner, ast.AnnAssign) and inner.value is not None:
                    yield node.name, inner.value
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            yield ast.unparse(target), node.value


def _nodes(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """All expressions and statements but annotations, docstrings and what is only asserted."""
    if isinstance(tree, ast.expr | ast.stmt):
        yield tree
    if isinstance(tree, ast.Assert):
        return
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "pattern"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _nodes(child)


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    """(what stands there then, what it says about it)"""
    match node:
        case ast.Compare(left, [operator], [right]):
            for changes, how in ((_OPPOSITE, "opposite"), (_BY_ONE, "by one")):
                if type(operator) in changes:
                    new = ast.Compare(left, [changes[type(operator)]()], [right])
                    yield ast.unparse(new), f"{how} {ast.unparse(node)}"
        case ast.BoolOp(operator, values):
            for value in values:
                rest = [one for one in values if one is not value]
                kept = rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
                yield ast.unparse(kept), f"without {ast.unparse(value)} of {ast.unparse(node)}"
        case ast.UnaryOp(ast.Not(), operand):
            yield ast.unparse(operand), f"opposite {ast.unparse(node)}"
        case ast.BinOp(left, operator, right) if type(operator) in _OTHER:
            reckoned = ast.BinOp(left, _OTHER[type(operator)](), right)
            yield ast.unparse(reckoned), f"{ast.unparse(node)} → {ast.unparse(reckoned)}"
        case ast.Constant(bool() as value):
            yield str(not value), f"{value} → {not value}"
        case ast.Constant(int() | float() as value):
            yield str(value + 1), f"{value} → {value + 1}"
        case ast.Call(ast.Name(name), arguments, keywords) if name in _OTHER_FUNCTION:
            new_call = ast.Call(ast.Name(_OTHER_FUNCTION[name]), arguments, keywords)
            yield ast.unparse(new_call), f"{ast.unparse(node)} → {_OTHER_FUNCTION[name]}"
        case ast.If(test) | ast.IfExp(test):
            yield from _condition(node, test)
        case ast.Tuple(elements) if len(elements) > 1 and _is_table(elements):
            for number, element in enumerate(elements):
                fewer = ast.Tuple([*elements[:number], *elements[number + 1 :]])
                yield ast.unparse(fewer), f"without {_short(element)}"
        case ast.Return(ast.expr() as value) if ast.unparse(value) != "None":
            yield "return None", f"{_short(node)} → return None"


def _condition(node: ast.If | ast.IfExp, test: ast.expr) -> Iterator[tuple[str, str]]:
    """A plain name as a condition; comparisons have mutants of their own."""
    if isinstance(node, ast.IfExp) and isinstance(test, ast.Name | ast.Attribute | ast.Call):
        new = ast.IfExp(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        yield ast.unparse(new), f"opposite {ast.unparse(test)} in {_short(node)}"


def _is_table(elements: list[ast.expr]) -> bool:
    """A list of facts, and not the parts of one."""
    return all(isinstance(element, ast.Call | ast.Attribute) for element in elements) or all(
        isinstance(element, ast.Constant) for element in elements
    )


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:89]}…"


class _Offsets:
    """Line and column, as the parser counts them (in bytes), to a place in the text."""

    def __init__(self, content: str) -> None:
        self._lines = content.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def __call__(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(before)
