"""Writes the client from the API's routes, and the blocking client from the asynchronous one.

Reads   the API's routes and their shapes, client/behaviour.py, client/calls.py,
        client/asynchronous.py
Writes  nothing; tools/generate.py writes client/generated/*.py

A route whose `client` is "subscriptions.update" becomes that method: its path's id, query and body
are the parameters, its answer the result. Where calls.py has a function for it
(`create_subscription`), that makes the call of the fields.
"""

from __future__ import annotations

import ast
import enum
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from surehook.api.app import ROUTES
from surehook.api.routes import Route
from surehook.client import behaviour

CLIENT = Path(__file__).parents[1] / "src" / "surehook" / "client"
WIDTH = 100

# A shape that the client has by hand, and its name there.
BY_HAND = {"ProblemBody": "Problem"}
# What only the client knows of a result.
_SENT_WITH = (
    "external_id: str | None = None",
    "The key that it was sent with: yours, or the one that the client made",
)
ADDED = {"Published": [_SENT_WITH], "BatchItem": [_SENT_WITH]}

IF_VERSION = """.

`if_version`: the `version` that the change is made from. If it has been changed since, nothing
changes and Stale is raised"""

# From the asynchronous client to the blocking one.
WORDS = (
    ("async def ", "def "),
    ("async for ", "for "),
    ("await ", ""),
    ("asyncio.sleep", "time.sleep"),
    ("import asyncio\n", ""),
    ("AsyncIterator", "Iterator"),
    ("AsyncClient", "Client"),
    ("__aenter__", "__enter__"),
    ("__aexit__", "__exit__"),
    ("tasks of one loop", "threads"),
    ("programs on asyncio", "programs with threads, or without"),
    ("client.asynchronous", "client.generated.blocking"),
    ("client.generated.namespaces", "client.generated.blocking_namespaces"),
    ("import namespaces", "import blocking_namespaces as namespaces"),
    ("client.streams", "client.sockets"),
)


def client_files() -> dict[Path, str]:
    """Every generated file of the client and what it must contain."""
    folder = CLIENT / "generated"
    asynchronous = (CLIENT / "asynchronous.py").read_text(encoding="utf-8")
    written = {
        folder / "__init__.py": '"""Written by `make generate`, see tools/client.py."""\n',
        folder / "results.py": "".join(_results()),
        folder / "namespaces.py": "".join(_namespaces()),
        folder / "blocking_namespaces.py": _blocking("".join(_namespaces())),
        folder / "blocking.py": _blocking(asynchronous),
    }
    return {path: _formatted(path, text) for path, text in written.items()}


def _blocking(text: str) -> str:
    for asynchronous, blocking in WORDS:
        text = text.replace(asynchronous, blocking)
    _, opening, code = text.split('"""', 2)
    assert "async" not in code, "a word of asyncio is left"
    return _opening(opening.partition(".")[0], "the asynchronous one") + code


def _opening(what: str, source: str) -> str:
    return _docstring(f"{what}. Written by `make generate` from {source}", 0)


def _formatted(path: Path, text: str) -> str:
    """As ruff would have it: imports sorted, and only those that are used."""
    ruff = [sys.executable, "-m", "ruff"]
    fix = ["check", "--quiet", "--fix", "--unsafe-fixes", "--select", "I,F401,UP028"]
    for command in (fix, ["format", "--quiet"]):
        whole = [*ruff, *command, "--stdin-filename", str(path), "-"]
        done = subprocess.run(whole, input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text


# ── Types ─────────────────────────────────────────────────────────────────────────────────────


def _members(kind: Any) -> Iterator[Any]:
    """The types of a union, without limits and descriptions."""
    if get_origin(kind) is Annotated:
        yield from _members(get_args(kind)[0])
    elif get_origin(kind) in (Union, types.UnionType):
        for one in get_args(kind):
            yield from _members(one)
    else:
        yield kind


def _note(kind: Any) -> str:
    """The description of a field, wherever in its type it stands."""
    for note in getattr(kind, "__metadata__", ()):
        if isinstance(note, Meta) and note.description:
            return str(note.description)
    return next((found for one in get_args(kind) if (found := _note(one))), "")


def _spelled(kind: Any, *, given: bool = False) -> str:
    """A type as the client writes it, of a result or of an argument that is given."""
    return " | ".join(dict.fromkeys(_name(one, given) for one in _members(kind)))


def _name(kind: Any, given: bool) -> str:
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return type(inside[0]).__name__
    inner = ", ".join(_spelled(one, given=given) for one in inside)
    if origin is list:
        return f"Sequence[{inner}]" if given else f"list[{inner}]"
    if origin is dict:
        return f"Mapping[{inner}]" if given else f"dict[{inner}]"
    if origin is not None:
        return f"{origin.__name__}[{inner}]"
    if kind is type(None):
        return "None"
    if issubclass(kind, enum.Enum):
        return "str"
    if issubclass(kind, datetime):
        return "datetime"
    return BY_HAND.get(kind.__name__, str(kind.__name__))


NEUTRAL = {
    "str": '""',
    "bool": "False",
    "int": "0",
    "float": "0.0",
    "Raw": 'Raw(b"")',
    "list": "field(default_factory=list)",
}


def _result_field(name: str, kind: Any, *, first: bool) -> str:
    """Ids, times and what an answer begins with must be there; a server may lack the rest."""
    members = _spelled(kind).split(" | ")
    text = " | ".join(one for one in members if one not in ("None", "UnsetType"))
    neutral = NEUTRAL.get(text.split("[")[0])
    if text == "Raw" or (text == "bool" and "UnsetType" not in members):
        return f"{name}: {text} = {neutral}"
    if text != " | ".join(members):
        return f"{name}: {text} | None = None"
    if first or neutral is None or name == "id" or name.endswith("_id"):
        return f"{name}: {text}"
    return f"{name}: {text} = {neutral}"


def _docstring(text: str, indent: int) -> str:
    """One line if it fits, else several; paragraphs stay apart."""
    first, *others = (" ".join(part.split()) for part in text.rstrip(".").split("\n\n"))
    if others:
        parts = [textwrap.fill(part, WIDTH - indent) for part in (f'"""{first}', *others)]
        whole = "\n\n".join(parts) + '.\n"""'
    else:
        whole = textwrap.fill(f'"""{first}."""', WIDTH - indent)
    return textwrap.indent(whole, " " * indent) + "\n"


# ── Results ───────────────────────────────────────────────────────────────────────────────────


def _results() -> Iterator[str]:
    yield _opening("What the client's calls return", "the API's answers")
    yield "from __future__ import annotations\n\nfrom datetime import datetime\n"
    yield "from msgspec import Raw, field\nfrom surehook.client import behaviour\n"
    yield "from surehook.client.behaviour import Result\n"
    yield "from surehook.client.errors import Problem\n"
    for shape in _shapes():
        yield _result(shape)


def _shapes() -> list[type[Struct]]:
    """The shapes of the API's answers, those that others need first."""
    found: dict[type[Struct], None] = {}
    for route in ROUTES:
        if route.path.startswith("/v1/"):
            for shape in route.answers.values():
                _collect(shape, found)
    return list(found)


def _collect(kind: Any, found: dict[type[Struct], None]) -> None:
    for one in _members(kind):
        for part in get_args(one):
            _collect(part, found)
        if isinstance(one, type) and issubclass(one, Struct) and one.__name__ not in BY_HAND:
            for part in (_parent(one), *_hints(one).values()):
                _collect(part, found)
            found[one] = None


def _hints(shape: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(shape, include_extras=True)
    return {name: hints[name] for name in shape.__struct_fields__}


def _parent(shape: type[Struct]) -> type[Struct] | None:
    """The shape that it extends."""
    bases = (base for base in shape.__bases__ if issubclass(base, Struct))
    return next((base for base in bases if base.__struct_fields__), None)


def _result(shape: type[Struct]) -> str:
    name, parent = shape.__name__, _parent(shape)
    bases = f"behaviour.{name}, " if hasattr(behaviour, name) else ""
    bases += parent.__name__ if parent else "Result"
    lines = [f"\n\nclass {name}({bases}, frozen=True, kw_only=True):\n"]
    if shape.__doc__:
        lines.append(_docstring(shape.__doc__, 4))
    inherited = parent.__struct_fields__ if parent else ()
    for number, (field, kind) in enumerate(_hints(shape).items()):
        if field not in inherited:
            lines.append(_field(_result_field(field, kind, first=number == 0), _note(kind)))
    lines += [_field(*one) for one in ADDED.get(name, ())]
    return "".join(lines)


def _field(text: str, note: str) -> str:
    return f"    {text}\n" + (_docstring(note, 4) if note else "")


# ── Namespaces ────────────────────────────────────────────────────────────────────────────────


def _namespaces() -> Iterator[str]:
    yield _opening("The client's calls that are a request and its answer", "the API's routes")
    yield "from __future__ import annotations\n\nfrom datetime import datetime\n"
    yield "from collections.abc import AsyncIterator, Mapping, Sequence\n"
    yield "from typing import TYPE_CHECKING\n\nfrom msgspec import UNSET, UnsetType\n\n"
    yield "from surehook.client import calls\nfrom surehook.client.calls import call\n"
    names = ", ".join(one.__name__ for one in _shapes())
    yield f"from surehook.client.results import Page, {names}\n\n"
    yield "if TYPE_CHECKING:\n    from surehook.client.asynchronous import AsyncClient\n\n\n"
    yield "class Namespace:\n"
    yield '    """Calls that belong together."""\n\n'
    yield "    def __init__(self, client: AsyncClient) -> None:\n        self._client = client\n"
    groups: dict[str, list[tuple[str, Route]]] = {}
    for route in ROUTES:
        group, _, name = route.client.partition(".")
        if name:
            groups.setdefault(group, []).append((name, route))
    for group, methods in groups.items():
        yield f"\n\nclass {group.title().replace('_', '')}(Namespace):\n"
        # A method `list` hides the type of that name from those that follow it.
        methods.sort(key=lambda one: one[0] == "list")
        for name, route in methods:
            yield from _methods(group, name, route)


def _methods(group: str, name: str, route: Route) -> Iterator[str]:
    answer = next(shape for status, shape in route.answers.items() if status < 300)
    result = _spelled(answer)
    if name != "list":
        yield _method(group, name, route, result)
        return
    parameters, names = _query(route)
    filters = f"        filters = {names}\n"
    yield f"    async def page(self, {parameters}) -> {result}:\n"
    yield _docstring("One page of the list; its `next` is the `cursor` of the page after it", 8)
    yield filters
    made = f'call("GET", "{route.path}", {result}, query=filters)'
    yield f"        return await self._client._run({made})\n\n"
    yield f"    def list(self, {parameters}) -> AsyncIterator[{_spelled(get_args(answer)[0])}]:\n"
    yield _docstring(f"{route.summary}; `limit` is the size of a page", 8)
    yield filters
    yield f'        return self._client._pages("{route.path}", {result}, filters)\n\n'


def _query(route: Route) -> tuple[str, str]:
    """The parameters of a list, and the dictionary of them."""
    assert route.query is not None
    hints = _hints(route.query)
    kinds = [(name, _spelled(kind, given=True)) for name, kind in hints.items()]
    parameters = ", ".join(
        f"{name}: {kind.removesuffix(' | None')} | None = None" for name, kind in kinds
    )
    return f"*, {parameters}", _dictionary(hints)


def _method(group: str, name: str, route: Route, result: str) -> str:
    one = f"{group.removesuffix('ies')}y" if group.endswith("ies") else group.removesuffix("s")
    required, optional = _body(route)
    if route.idempotent:
        optional.append("idempotency_key: str | None = None")
    if route.conditional:
        optional.append("if_version: int | None = None")
    parameters = ["self", *([f"{one}_id: int"] if route.has_id else []), *required]
    parameters += ["*", *optional] if optional else []
    lines = [f"    async def {name}({', '.join(parameters)}) -> {result}:\n"]
    by_hand = _by_hand().get(f"{name}_{one}")
    lines.append(_docstring(by_hand or route.summary + IF_VERSION * route.conditional, 8))
    if route.body is not None:
        lines.append(f"        fields = {_dictionary(_hints(route.body))}\n")
    if by_hand:
        made = f"calls.{name}_{one}(fields, idempotency_key)"
    else:
        path = route.path.replace("{id}", f"{{int({one}_id)}}")
        lines.append(f'        path = {"f" * route.has_id}"{path}"\n')
        made = f"call({', '.join(_arguments(route, result))})"
    lines.append(f"        return await self._client._run({made})\n\n")
    return "".join(lines)


def _arguments(route: Route, result: str) -> Iterator[str]:
    """Of `call`."""
    yield from (f'"{route.method}"', "path", result)
    if route.body is not None:
        yield "fields"
    if route.idempotent:
        yield "headers=calls.idempotent(idempotency_key)"
    if route.conditional:
        # If the first try was done after all, its own change would make the second one stale.
        yield "headers=calls.if_match(if_version), repeatable=if_version is None"
    elif route.body is not None and "dry_run" in route.body.__struct_fields__:
        yield "repeatable=dry_run is True"
    elif not _repeatable(route):
        yield "repeatable=False"


def _by_hand() -> dict[str, str]:
    """The functions of calls.py and what they say. It is not imported: it needs the results."""
    tree = ast.parse((CLIENT / "calls.py").read_text(encoding="utf-8"))
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    return {one.name: ast.get_docstring(one) or "" for one in functions}


def _body(route: Route) -> tuple[list[str], list[str]]:
    """The parameters that must be given, and the others."""
    required, optional = [], []
    if route.body is not None:
        hints = _hints(route.body)
        for field in msgspec.structs.fields(route.body):
            kind = _spelled(hints[field.name], given=True)
            if field.required:
                required.append(f"{field.name}: {kind}")
            else:
                words = [one for one in kind.split(" | ") if one not in ("None", "UnsetType")]
                words += ["UnsetType", "None"] if "None" in kind.split(" | ") else ["UnsetType"]
                optional.append(f"{field.name}: {' | '.join(words)} = UNSET")
    return required, optional


def _repeatable(route: Route) -> bool:
    """A POST may be sent again if it says so by a second answer for what was done before."""
    answers = [shape for status, shape in route.answers.items() if status < 300]
    return route.method != "POST" or (len(answers) == 2 and answers[0] is answers[1])


def _dictionary(names: dict[str, Any]) -> str:
    return "{" + ", ".join(f'"{name}": {name}' for name in names) + "}"
