"""The sender: one request in, one outcome out, exactly one POST at most.

Reads   nothing but the request and its settings; no environment, no .netrc, no cookies
Writes  to the network, through the dialer and its guard

    send ─▶ parse the URL ─▶ a kept connection that is open and silent ──▶ POST ─▶ outcome
                         └─▶ resolve ─▶ guard ─▶ TCP ─▶ TLS ───────────────┘
                         (one deadline over all of it)

Nothing is ever sent twice: once a byte of the request may have left, whatever happens is the
outcome. Only a connection found dead before writing is replaced by another.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import msgspec

from surehook.delivery import Request
from surehook.delivery.address import AddressGuard
from surehook.delivery.connection import Connection
from surehook.delivery.dialer import AttemptFailed, Dialer, parse_proxy, tls_context
from surehook.delivery.outcome import Outcome, safe_text
from surehook.delivery.pool import Pool, PoolLimits
from surehook.delivery.resolver import Resolver
from surehook.delivery.url import CallbackUrl, UrlRefused, parse_callback_url
from surehook.model.error_codes import ErrorCode

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
# What describes the message's framing or the connection is the sender's business alone.
_RESERVED = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_REMEMBERED = 8192
# One timer for all exchanges: a timer each would cost more than parsing the answer.
_TICK_SECONDS = 0.05


class SenderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration decides about sending."""

    allow_networks: tuple[str, ...] = ()
    ca_file: str | None = None
    proxy: str | None = None
    name_servers: tuple[str, ...] = ()
    pool: PoolLimits = PoolLimits()


class _Target(msgspec.Struct, frozen=True):
    url: CallbackUrl
    origin: tuple[str, int]
    head: str


class HttpsSender:
    """POSTs over HTTP/1.1 and TLS; any number of requests at once, from one event loop."""

    def __init__(self, settings: SenderSettings) -> None:
        proxy = None if settings.proxy is None else parse_proxy(settings.proxy)
        self._resolver = Resolver(settings.name_servers)
        guard = AddressGuard(settings.allow_networks)
        self._dialer = Dialer(self._resolver, guard, tls_context(settings.ca_file), proxy)
        self._pool = Pool(settings.pool)
        self._targets: dict[str, _Target] = {}
        self._names: set[str] = set()
        self._busy: set[Connection] = set()
        self._dialing: set[asyncio.Timeout] = set()
        self._closed = False
        self.opened = 0
        self.reused = 0

    async def start(self) -> None:
        """Make ready; call once, inside the running loop."""
        self._loop = asyncio.get_running_loop()
        self._resolver.start()
        self._pool.start()
        self._ticker = self._loop.call_later(_TICK_SECONDS, self._tick)

    async def close(self) -> None:
        """Close every connection; attempts under way end at once with a truthful outcome."""
        self._closed = True
        self._ticker.cancel()
        for timeout in self._dialing:
            with suppress(RuntimeError):  # it has just expired
                timeout.reschedule(self._loop.time())
        for connection in list(self._busy):
            connection.give_up("the sender was closed")
        self._pool.close()
        self._resolver.close()
        await asyncio.sleep(0)  # let the transports' own closing run

    @property
    def idle_connections(self) -> int:
        """How many connections are kept for later."""
        return len(self._pool)

    async def send(self, request: Request) -> Outcome:
        """POST once. Raises nothing but CancelledError; holds nothing after the deadline."""
        return await self._attempt(request, None)

    async def ask(self, request: Request) -> tuple[Outcome, bytes]:
        """Like send, and the first bytes of the answer's body, which the caller must not keep."""
        answers: list[bytes] = []
        outcome = await self._attempt(request, answers)
        return outcome, b"".join(answers)

    async def probe(self, url: str, seconds: float) -> Outcome:
        """Connect as for a POST (guard, TLS, certificate) and send nothing."""
        try:
            target = self._targets.get(url) or self._target(url)
            connection = await self._dial(target.url, self._loop.time() + seconds)
        except AttemptFailed as failure:
            return failure.outcome()
        connection.close()
        return Outcome(None, None, sent=False)

    async def _attempt(self, request: Request, answers: list[bytes] | None) -> Outcome:
        try:
            if request.deadline_seconds <= 0:
                raise AttemptFailed(ErrorCode.TIMEOUT, "no time was left to send")
            began = self._loop.time()
            deadline = began + request.deadline_seconds
            clock = None if request.made_at is None else request.made_at - began
            target = self._targets.get(request.url) or self._target(request.url)
            payload = self._encode(target, request)
            connection = self._pool.take(target.origin)
            if connection is None:
                self.opened += 1
                connection = await self._dial(target.url, deadline)
            else:
                self.reused += 1
            return await self._exchange(connection, payload, deadline, clock, answers)
        except AttemptFailed as failure:
            return failure.outcome()
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            return Outcome(None, ErrorCode.INTERNAL_ERROR, failure_detail=safe_text(what))

    async def _dial(self, url: CallbackUrl, deadline: float) -> Connection:
        if self._closed:
            raise AttemptFailed(ErrorCode.CONNECT_FAILED, "the sender was closed")
        timeout = asyncio.timeout_at(deadline)
        self._dialing.add(timeout)
        try:
            async with timeout:
                return await self._dialer.dial(url)
        except TimeoutError:
            if self._closed:
                raise AttemptFailed(ErrorCode.CONNECT_FAILED, "the sender was closed") from None
            raise AttemptFailed(ErrorCode.TIMEOUT, "no connection in time") from None
        finally:
            self._dialing.discard(timeout)

    async def _exchange(
        self,
        connection: Connection,
        payload: bytes,
        deadline: float,
        clock: float | None,
        answers: list[bytes] | None,
    ) -> Outcome:
        self._busy.add(connection)
        try:
            outcome = await connection.exchange(payload, deadline, clock)
        finally:
            self._busy.discard(connection)
        if answers is not None:
            answers.append(connection.answer)
        if connection.reusable and not self._closed:
            self._pool.give(connection)
        else:
            connection.abort()
        return outcome

    def _tick(self) -> None:
        now = self._loop.time()
        for connection in [each for each in self._busy if each.deadline <= now]:
            connection.expire()
        self._ticker = self._loop.call_later(_TICK_SECONDS, self._tick)

    def _target(self, text: str) -> _Target:
        try:
            url = parse_callback_url(text)
        except UrlRefused as refusal:
            raise AttemptFailed(ErrorCode.INVALID_REQUEST, refusal.message) from None
        head = (
            f"POST {url.target} HTTP/1.1\r\nhost: {url.authority}\r\naccept-encoding: identity\r\n"
        )
        if len(self._targets) >= _REMEMBERED:
            self._targets.clear()
        target = self._targets[text] = _Target(url, url.origin, head)
        return target

    def _encode(self, target: _Target, request: Request) -> bytes:
        headers = request.headers
        if not self._names.issuperset([name for name, _ in headers]):
            for name, _ in headers:
                self._check_name(name)
        # ASCII and printable: no line break, no NUL, nothing that two parsers read in two ways.
        values = "".join([value for _, value in headers])
        if not (values.isascii() and values.isprintable()):
            raise _unsendable(headers)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        head = f"{target.head}{lines}content-length: {len(request.body)}\r\n\r\n"
        return head.encode("ascii") + request.body

    def _check_name(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise AttemptFailed(ErrorCode.INVALID_REQUEST, "a header's name is not valid")
        if name.lower() in _RESERVED or name.lower().startswith("proxy-"):
            raise AttemptFailed(ErrorCode.INVALID_REQUEST, f"header {name} may not be set")
        if len(self._names) < _REMEMBERED:
            self._names.add(name)


def _unsendable(headers: tuple[tuple[str, str], ...]) -> AttemptFailed:
    name = next(name for name, value in headers if not (value.isascii() and value.isprintable()))
    return AttemptFailed(ErrorCode.INVALID_REQUEST, f"the value of header {name} cannot be sent")
