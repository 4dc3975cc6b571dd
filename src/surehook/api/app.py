"""One request from its ASGI call to its answer.

Reads   the table of routes     Writes  answers

`POST /v1/events` has its own path (events.py). Everything else: route, key, query, body, handler.
A handler runs as its own task: when its time is over, the answer does not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from surehook.actions.ingest import Ingest
from surehook.actions.keys import Keys
from surehook.actions.requeue import Requeue
from surehook.actions.subscriptions import Subscriptions
from surehook.actions.trial import Trial
from surehook.actions.verifications import Verifications
from surehook.api import dead_letters, deliveries, events, health, keys, strict, subscriptions
from surehook.api.auth import Key, KeyChecks
from surehook.api.problems import NO_METHOD, NOT_FOUND, Problem, invalid, unavailable
from surehook.api.routes import NOBODY, Answer, Call, Route, Table
from surehook.api.wire import (
    DOCS_POLICY,
    SECURITY_HEADERS,
    Head,
    Receive,
    Room,
    Send,
    answer,
    refuse,
)
from surehook.model.moments import encode
from surehook.pipeline.service import heard
from surehook.store.observer import ObserverStore

if TYPE_CHECKING:
    from surehook.pipeline.vitals import Vitals

# Requests beside the events' own path that are under way at once.
UNDER_WAY_MAX = 128

ROUTES = (
    *events.routes,
    *subscriptions.routes,
    *deliveries.routes,
    *dead_letters.routes,
    *keys.routes,
    *health.docs_routes,
    *health.health_routes,
)


@dataclass(kw_only=True)
class Api:
    """The ASGI application and what its routes work with."""

    ingest: Ingest
    checks: KeyChecks
    keys: Keys
    observer: ObserverStore
    requeue: Requeue
    subscriptions: Subscriptions
    verifications: Verifications
    trial: Trial
    vitals: Vitals
    payload_max: int
    batch_max: int
    memory: int
    answer_seconds: float
    metrics_open: bool = False

    def __post_init__(self) -> None:
        self.room = Room(self.memory)
        self.patience = events.Patience()
        self.table = Table(ROUTES)
        self._under_way: set[asyncio.Task[Answer]] = set()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["path"] == "/v1/events" and scope["method"] == "POST":
            scope["route"] = "POST /v1/events"
            await events.take_event(self, scope, receive, send)
            return
        head = Head(scope)
        try:
            with self.room.for_body() as held:
                route, number = self._route(scope)
                asked = asyncio.get_running_loop().time()
                key = await self._key(route, head)
                allowed = max(route.seconds or 0.0, self.answer_seconds)
                left = allowed - (asyncio.get_running_loop().time() - asked)
                call = await self._call(route, number, scope, head, key, receive, held.read)
                given = await self._within(route, call, left)
        except Exception as error:
            await refuse(send, error, head.request_id)
            return
        await self._send(send, given, head.request_id)

    def _route(self, scope: dict[str, Any]) -> tuple[Route, int]:
        methods, number = self.table.find(scope["path"])
        if not methods:
            raise Problem(NOT_FOUND, "There is no such path.")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method not in methods:
            allowed = ", ".join(sorted(methods)).encode()
            raise Problem(NO_METHOD, "See the Allow header.", None, ((b"allow", allowed),))
        scope["route"] = f"{method} {methods[method].path}"  # for the count of requests
        return methods[method], number

    async def _key(self, route: Route, head: Head) -> Key:
        """Who is asking. Before all else, so that a stranger's body is not even read."""
        if route.scope is None or (self.metrics_open and route.path == "/metrics"):
            return NOBODY
        key = await self.checks.check(head.authorization, head.client)
        key.need(route.scope)
        return key

    async def _call(
        self,
        route: Route,
        number: int,
        scope: dict[str, Any],
        head: Head,
        key: Key,
        receive: Receive,
        read: Callable[..., Any],
    ) -> Call:
        """The request, checked."""
        query = read_query(route, scope["query_string"])
        body: Any = None
        if route.body is not None:
            body = await read(receive, head.length, route.body_max or self.batch_max)
            if not route.raw_body:
                body = read_body(route, body)
        idempotency_key = head.idempotency_key() if route.idempotent else None
        versions = head.versions() if route.conditional else None
        return Call(self, key, head.request_id, number, query, body, idempotency_key, versions)

    async def _within(self, route: Route, call: Call, seconds: float) -> Answer:
        if len(self._under_way) >= UNDER_WAY_MAX:
            raise unavailable("Too many requests are under way.")
        if route.seconds is not None and await self.vitals.database() != "ok":
            # What may take long says at once that it cannot even begin.
            raise unavailable("The database does not answer.")
        task = asyncio.ensure_future(route.handler(call))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        task.add_done_callback(heard)  # a caller that still waits has its error
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            task.cancel()
            raise unavailable("The database does not answer in time.")
        return task.result()

    async def _send(self, send: Send, given: Answer, request_id: str) -> None:
        body = given.value
        if not isinstance(body, bytes):
            body = encode(body)
        headers = [
            *SECURITY_HEADERS,
            (b"content-type", given.content_type.encode()),
            *given.headers,
        ]
        if given.content_type.startswith("text/html"):
            headers = [
                (name, DOCS_POLICY if name == b"content-security-policy" else value)
                for name, value in headers
            ]
        await answer(send, given.status, body, request_id, headers)

    async def close(self) -> None:
        self.patience.close()
        await self.checks.close()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self.trial.close()
        await self.vitals.close()


def read_query(route: Route, text: bytes) -> Any:
    """The query as the route's shape; nothing unknown, nothing twice."""
    if route.query is None:
        if text and route.path.startswith("/v1/"):
            raise invalid("This path takes no query.", "query")
        return None
    try:
        pairs = parse_qsl(
            text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50
        )
    except ValueError:
        raise invalid("The query cannot be read.", "query") from None
    values = dict(pairs)
    if len(values) != len(pairs):
        raise invalid("Query parameter is repeated.", "query")
    try:
        query = msgspec.convert(values, route.query, strict=False)
    except msgspec.ValidationError as wrong:
        strict.refuse(str(wrong), route.query)
    _refuse_unstorable(query)
    return query


def read_body(route: Route, body: bytes) -> Any:
    assert route.decoder is not None
    # No body is one without fields: the answer then names what is missing.
    body = body or b"{}"
    strict.check_depth(body, 1, route.deep_field)
    value = strict.decode(route.decoder, body)
    strict.refuse_any_repeated_key(body)
    _refuse_unstorable(value)
    return value


def _refuse_unstorable(value: msgspec.Struct) -> None:
    """Texts and times that no database column takes."""
    for name, item in msgspec.structs.asdict(value).items():
        if isinstance(item, str) and "\0" in item:
            raise invalid("It contains a NUL character.", name)
        if isinstance(item, datetime) and not 1900 <= item.year <= 9000:
            raise invalid("Must be between the years 1900 and 9000.", name)
