"""Between ASGI and us: a request's headers and body, and the bytes of an answer.

Reads   ASGI messages       Writes  ASGI messages
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Self

import msgspec

from surehook import observe
from surehook.actions.heldkeys import Busy, KeyHeld
from surehook.actions.ingest import EventRefused, KeyTaken
from surehook.api.problems import (
    BAD_REQUEST,
    BROKEN,
    CONFLICT,
    KEY_HELD,
    NOT_FOUND,
    STALE,
    TOO_LARGE,
    Problem,
    invalid,
    unavailable,
)
from surehook.errors import ConfigError, Declined, FieldRefused, NotFound, Stale, Unreachable
from surehook.model import rules

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,100}")
_TAG = rb'\s*(?:W/)?"[!#-~\x80-\xff]*"\s*'
_ENTITY_TAGS = re.compile(_TAG + rb"(?:," + _TAG + rb")*")
_OWN_TAG = re.compile(rb'(?<!/)"([0-9]{1,18})"')
_process = secrets.token_hex(4)
_numbers = count(1)

# No page of ours loads anything from elsewhere, and none belongs into anyone's frame.
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
DOCS_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_JSON_HEADERS = [*SECURITY_HEADERS, (b"content-type", b"application/json")]
_PROBLEM_HEADERS = [*SECURITY_HEADERS, (b"content-type", b"application/problem+json")]


def new_request_id() -> str:
    return f"{_process}-{next(_numbers):x}"


class Gone(Exception):
    """The client left before its request was complete: there is no one to answer."""


class Head:
    """What the headers of a request say."""

    __slots__ = ("_idempotency_key", "_if_match", "authorization", "client", "length", "request_id")

    def __init__(self, scope: dict[str, Any]) -> None:
        self.authorization: bytes | None = None
        self._idempotency_key: bytes | None = None
        self._if_match: bytes | None = None
        self.length: int | None = None
        self.request_id = ""
        client = scope.get("client")
        self.client: str = client[0] if client else ""
        for name, value in scope["headers"]:
            if name == b"authorization":
                self.authorization = value
            elif name == b"content-length":
                self.length = int(value)  # the HTTP parser lets digits through only
            elif name == b"idempotency-key":
                self._idempotency_key = value
            elif name == b"if-match":
                self._if_match = value if self._if_match is None else self._if_match + b"," + value
            elif name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                self.request_id = value.decode("ascii")
        if not self.request_id:
            self.request_id = new_request_id()

    def idempotency_key(self) -> str | None:
        if self._idempotency_key is None:
            return None
        try:
            key = self._idempotency_key.decode("utf-8")
        except UnicodeDecodeError:
            raise invalid("It is not UTF-8.", "Idempotency-Key") from None
        rules.check_external_id(key, "Idempotency-Key")
        return key

    def versions(self) -> list[int] | None:
        """The versions that If-Match names; None: it names none, or any will do. A tag that is not
        one of ours, or a weak one, matches nothing."""
        if self._if_match is None or self._if_match.strip() == b"*":
            return None
        if not _ENTITY_TAGS.fullmatch(self._if_match):
            raise invalid('Use the ETag of an answer, with its quotes: "3".', "If-Match")
        return [int(number) for number in _OWN_TAG.findall(self._if_match)]


class Room:
    """The memory for request bodies, all connections together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0

    def for_body(self) -> Held:
        return Held(self)


class Held:
    """The part of the room that one request holds until it is answered."""

    __slots__ = ("_bytes", "_room")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._room.held -= self._bytes

    async def read(self, receive: Receive, length: int | None, largest: int) -> bytes:
        """The whole body. What arrived counts, not what was announced: a slow client that
        announces much must not take the room of others."""
        if length is not None and length > largest:
            raise _too_large(largest)
        message = await receive()
        chunks: list[bytes] = []
        while True:
            if message["type"] != "http.request":
                raise Gone
            chunk: bytes = message.get("body", b"")
            self._bytes += len(chunk)
            self._room.held += len(chunk)
            if self._bytes > largest:
                raise _too_large(largest)
            if self._room.held > self._room.size:
                raise unavailable("Too many bytes of requests are waiting.")
            if not message.get("more_body"):
                return chunk if not chunks else b"".join([*chunks, chunk])
            chunks.append(chunk)
            message = await receive()


def _too_large(largest: int) -> Problem:
    return Problem(TOO_LARGE, f"A body has at most {largest} bytes here.", "body")


async def answer(
    send: Send,
    status: int,
    body: bytes,
    request_id: str,
    headers: list[tuple[bytes, bytes]] = _JSON_HEADERS,
) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                *headers,
                (b"content-length", b"%d" % len(body)),
                (b"x-request-id", request_id.encode()),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, error: Exception, request_id: str) -> None:
    """Answer with what went wrong."""
    if isinstance(error, Gone):
        return
    problem = as_problem(error, request_id)
    body = msgspec.json.encode(problem.body(request_id))
    headers = [*_PROBLEM_HEADERS, *problem.headers]
    if problem.kind is TOO_LARGE:
        headers.append((b"connection", b"close"))  # the rest of the body is not worth reading
    await answer(send, problem.kind.status, body, request_id, headers)


def as_problem(error: Exception, request_id: str) -> Problem:
    """What an error of ours means to a client."""
    match error:
        case Problem():
            return error
        case rules.TooLarge():
            return Problem(TOO_LARGE, error.message, error.field)
        case FieldRefused():
            return invalid(str(error), error.field)
        case EventRefused():
            return invalid(error.message, "payload")
        case NotFound():
            return Problem(NOT_FOUND, error.message)
        case KeyTaken():
            return Problem(CONFLICT, error.message, "external_id")
        case Stale():
            return Problem(STALE, str(error), "If-Match")
        case Declined():
            return Problem(CONFLICT, str(error))
        case KeyHeld():
            return unavailable(error.message, KEY_HELD, "external_id")
        case Busy():
            return unavailable(error.message)
        case Unreachable():
            return unavailable("The database does not answer.")
        case ConfigError():
            return unavailable(str(error))
        case UnicodeError():
            return Problem(BAD_REQUEST, "The request is not UTF-8.")
    observe.emit("request.failed", request_id=request_id, reason=f"{type(error).__name__}: {error}")
    return Problem(BROKEN, "Please report it with the request id.")
