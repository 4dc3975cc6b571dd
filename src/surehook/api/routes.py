"""What a route is. The table of all routes is assembled in app.py and read by openapi.py.

Reads   nothing     Writes  nothing
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from surehook.actions.keys import Scope
from surehook.api.auth import Key
from surehook.api.problems import Kind
from surehook.model.resources.shared import BIGGEST_ID

if TYPE_CHECKING:
    from surehook.api.app import Api

BODY_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """One request, checked, on its way to its route."""

    api: Api
    key: Key
    request_id: str
    number: int  # the {id} of the path
    query: Any  # the route's query shape
    body: Any  # the route's body shape
    idempotency_key: str | None
    versions: list[int] | None  # one of which it must have; None: any


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a shape to encode, or bytes with their content type."""

    status: int
    value: object
    content_type: str = "application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


Handler = Callable[[Call], Awaitable[Answer]]
NOBODY = Key(-1, "nobody", frozenset(), None)


@dataclass(frozen=True)
class Route:
    """One method of one path, with all that the documentation needs to know."""

    tag: str
    handler: Handler
    method: str
    path: str
    scope: Scope | None
    answers: Mapping[int, object]  # status → shape, or a content type as text
    problems: tuple[Kind, ...] = ()  # beside what every route may answer
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    body_required: bool = True
    deep_field: str = "body"  # the one that may be nested
    raw_body: bool = False  # the route reads the bytes itself
    body_max: int | None = BODY_MAX  # None: as for a batch of events
    idempotent: bool = False  # takes an Idempotency-Key
    conditional: bool = False  # takes an If-Match
    # For the key and the work together, if it may take long. None: api.answer_timeout, as for every
    # read and small write; one that lasts longer means that the database is away.
    seconds: float | None = None
    example: object = None  # of the body
    # The client's method for it, such as "keys.revoke"; "": it is written by hand there.
    client: str = ""
    decoder: msgspec.json.Decoder[Any] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.body is not None and not self.raw_body:
            object.__setattr__(self, "decoder", msgspec.json.Decoder(self.body))

    @property
    def summary(self) -> str:
        return " ".join((self.handler.__doc__ or "").split()).removesuffix(".")

    @property
    def has_id(self) -> bool:
        return "{id}" in self.path


class Routes(list[Route]):
    """The routes under one heading, each declared on its handler, whose docstring is its summary:

    @routes("GET", "/v1/keys/{id}", Scope.ADMIN, Key, client="keys.get")
    """

    def __init__(self, tag: str) -> None:
        super().__init__()
        self.tag = tag

    def __call__(
        self, method: str, path: str, scope: Scope | None, answer: object, **more: Any
    ) -> Callable[[Handler], Handler]:
        """`answer` is what comes with status 200, or a shape per status."""
        answers = answer if isinstance(answer, Mapping) else {200: answer}

        def add(handler: Handler) -> Handler:
            self.append(Route(self.tag, handler, method, path, scope, answers, **more))
            return handler

        return add


class Table:
    """Finds the route of a request."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        self._paths: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        for path in dict.fromkeys(route.path for route in routes):
            pattern = re.compile(re.escape(path).replace(r"\{id\}", r"([0-9]{1,19})"))
            methods = {route.method: route for route in routes if route.path == path}
            self._paths.append((pattern, methods))

    def find(self, path: str) -> tuple[dict[str, Route], int]:
        """The methods of this path and its id; no methods: not found."""
        for pattern, methods in self._paths:
            match = pattern.fullmatch(path)
            if match:
                number = int(match[1]) if match.lastindex else 0
                return (methods if number <= BIGGEST_ID else {}), number
        return {}, 0
