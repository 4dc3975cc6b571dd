"""One TLS connection: a POST out, its answer in, within limits.

Reads   the endpoint's bytes, at most MAX_HEAD_BYTES + MAX_BODY_BYTES + MAX_FRAMING_BYTES of them
        and MAX_TLS_BYTES of TLS's own
Writes  each request once; what is lost on the way is never sent again

llhttp (httptools) parses in its strict mode; beyond it this module refuses HTTP versions other
than 1.0 and 1.1, transfer codings other than `chunked`, protocol switches, and floods of interim
answers.

Nothing can be answered in advance. A connection may be used again only after a 2xx answer that came
when the whole request had been written, was completely read and has nothing behind it, not even a
part of a TLS record; and only while it stays silent. Before the last piece of a request is written,
what has arrived is read. An answer that begins before that piece has left is no answer to that
request: never on a used connection, where it may be a late answer to the request before; on a fresh
one a refusal counts (it often comes before a large body was read), a 2xx does not. Interim answers
may come early.

When the connection ends after the request was written and before the answer is complete, the
outcome is PROTOCOL_ERROR with `sent` true: the endpoint may have acted on it. CONNECT_FAILED always
means that nothing was sent.
"""

from __future__ import annotations

import asyncio
import re
import select
import ssl
from collections.abc import Callable

import httptools

from surehook.delivery.outcome import (
    EXCERPT_BYTES,
    Outcome,
    error_of_status,
    parse_retry_after,
    safe_excerpt,
    safe_text,
)
from surehook.delivery.tls import TlsSocket
from surehook.model.error_codes import ErrorCode

MAX_HEAD_BYTES = 32 * 1024
MAX_BODY_BYTES = 64 * 1024
MAX_FRAMING_BYTES = 32 * 1024  # chunk sizes, chunk extensions and trailers
MAX_INTERIM_ANSWERS = 8

_NOTED = frozenset(
    (b"retry-after", b"date", b"keep-alive", b"content-length", b"transfer-encoding")
)
_KEEP_ALIVE_TIMEOUT = re.compile(rb"(?:^|[,\s])timeout=([0-9]{1,6})(?:$|[,\s])", re.IGNORECASE)
_TOO_LARGE = ErrorCode.RESPONSE_TOO_LARGE
_BROKEN = ErrorCode.PROTOCOL_ERROR


class Connection:
    """A connection to one origin; one exchange at a time.

    It drives its TLS socket by the loop's readiness alone: a transport and its buffers between the
    two cost half as much again as everything else that a POST costs.
    """

    __slots__ = (
        "_body_bytes",
        "_clock",
        "_complete",
        "_early",
        "_excerpt",
        "_fault",
        "_final",
        "_head_bytes",
        "_interim",
        "_lost",
        "_noise",
        "_noted",
        "_parser",
        "_poll",
        "_received",
        "_sock",
        "_status",
        "_until_close",
        "_uses",
        "_voided",
        "_waiter",
        "_willing",
        "_written",
        "born",
        "deadline",
        "expires",
        "idle_limit",
        "loop",
        "on_idle_end",
        "origin",
        "reusable",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, origin: tuple[str, int], sock: TlsSocket
    ) -> None:
        """`sock` does not block and has shaken hands; it is ours from now on."""
        self.loop = loop
        self.origin = origin
        self.born = loop.time()
        self.deadline = 0.0
        self.expires = 0.0
        self.idle_limit = float("inf")
        self.reusable = False
        self.on_idle_end: Callable[[Connection], None] | None = None
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN | select.POLLERR | select.POLLHUP)
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._sock: TlsSocket | None = sock
        self._waiter: asyncio.Future[Outcome] | None = None
        self._lost = False
        self._noise = False
        self._uses = 0
        self._clock: float | None = None
        self._begin()
        loop.add_reader(sock.fileno(), self._readable)

    def _begin(self) -> None:
        self.reusable = False
        self._received = 0
        self._head_bytes = 0
        self._body_bytes = 0
        self._interim = 0
        self._status = 0
        self._final = False
        self._complete = False
        self._until_close = False
        self._willing = False
        self._written = False
        self._early = False
        self._voided = False
        self._fault: tuple[ErrorCode, str] | None = None
        self._noted: dict[bytes, bytes] = {}
        self._excerpt = b""

    # --- for the pool and the sender -------------------------------------------------------------

    @property
    def answer(self) -> bytes:
        """The first bytes of the last answer's body, as they came: for a verification, which
        compares them and forgets them."""
        return self._excerpt

    def silent(self) -> bool:
        """Whether it is still open and nothing has arrived, asked of the socket itself."""
        sock = self._sock
        if self._lost or self._noise or sock is None or sock.unread or sock.midway:
            return False
        return not self._poll.poll(0)

    async def exchange(
        self, payload: bytes, deadline: float, clock: float | None = None
    ) -> Outcome:
        """Write the request, wait for the outcome; the sender calls expire() at the deadline.

        `clock` is how far the database's clock is ahead of the loop's.
        A used connection was found silent() just before: nothing else has run since.
        """
        if self._lost or self._noise or self._sock is None:
            return Outcome(
                None, _BROKEN, failure_detail="the endpoint spoke or left first", sent=False
            )
        self._begin()
        waiter: asyncio.Future[Outcome] = self.loop.create_future()
        self._waiter = waiter
        self._uses += 1
        self.deadline = deadline
        self._clock = clock
        self._sock.overhead = 0
        self._sock.write(payload)
        try:
            self._write(silent=self._uses > 1)
            return await waiter
        except asyncio.CancelledError:
            self.abort()
            raise

    def expire(self) -> None:
        """The deadline has passed: end the exchange that is under way."""
        self._fail(ErrorCode.TIMEOUT, self._progress())
        self.abort()

    def close(self) -> None:
        """Say goodbye (close_notify) and go."""
        if self._sock is not None:
            self._sock.say_goodbye()
        self.abort()

    def abort(self) -> None:
        """Drop it now; nothing more is sent or read."""
        sock, self._sock = self._sock, None
        if sock is None:
            return
        self._lost = True
        self.reusable = False  # also when it ends just after a clean answer
        # Parser and connection refer to each other; without this only the collector frees them.
        self._parser = None
        self.loop.remove_reader(sock.fileno())
        self.loop.remove_writer(sock.fileno())
        sock.close()

    def give_up(self, reason: str) -> None:
        """End an exchange that is under way, from outside."""
        self._fail(_BROKEN, reason)
        self.abort()

    # --- the socket ------------------------------------------------------------------------------

    def _write(self, *, silent: bool = False) -> None:
        """As much as the socket takes; the rest when it takes more. The last piece leaves only when
        all that has arrived is read and no record is here in part: so it is known what was early.
        `silent`: that nothing is here was found out just now."""
        sock, asked = self._sock, self._waiter
        if sock is None:
            return
        try:
            while sock.unsent:
                if sock.ending and not silent:
                    if sock.unread or self._poll.poll(0):
                        self._read()
                    if self._sock is None or self._waiter is not asked or sock.midway:
                        return  # over; or _readable() goes on when the rest of the record is here
                silent = False
                self._written = sock.push()
        except ssl.SSLWantWriteError:
            self.loop.add_writer(sock.fileno(), self._writable)
        except ssl.SSLWantReadError:
            pass  # the endpoint's TLS has something to say first: _readable() goes on
        except OSError:
            pass  # nothing more leaves; it may have answered all the same: read on

    def _writable(self) -> None:
        if self._sock is not None:
            self.loop.remove_writer(self._sock.fileno())
            self._write()

    def _readable(self) -> None:
        self._read()
        if self._sock is not None and self._sock.unsent:
            self._write()

    def _read(self) -> None:
        """Read until the answer is whole or nothing more is there: a loop that has reported a
        socket's error need not report it again."""
        while self._read_once() and (self._waiter is not None or self._left_over()):
            pass

    def _left_over(self) -> bool:
        return self._sock is not None and self._sock.unread

    def _read_once(self) -> bool:
        """Whether something arrived: then more may be there."""
        if self._sock is None:
            return False
        try:
            data = self._sock.read()
        except ssl.SSLWantReadError:
            return False
        except OSError as error:
            self._end(error)
            return False
        if not data:
            self._end(None)
            return False
        self._received_some(data)
        return True

    def _end(self, error: Exception | None) -> None:
        self._lost = True
        self._ended(error)
        self.abort()

    def _received_some(self, data: bytes) -> None:
        if self._waiter is None or self._parser is None:
            self._end_idle()
            return
        self._received += len(data)
        self._voided |= not self._written
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._noise = True
            if not self._complete and self._fault is None:
                self._fault = (_BROKEN, safe_text(str(error) or type(error).__name__))
        if self._fault is None and not self._complete:
            self._check_received()
        if self._fault is not None:
            self._fail(*self._fault)
            self.abort()
        elif self._complete:
            self._succeed()

    # --- httptools -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self._noise = True
        self._early = not self._written

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        name = name.lower()
        if name in _NOTED and not self._noise and not self._final:
            self._noted.setdefault(name, value)

    def on_headers_complete(self) -> None:
        parser = self._parser
        if self._noise or parser is None:
            return
        status = parser.get_status_code()
        if self._head_bytes > MAX_HEAD_BYTES:
            self._fault = (_TOO_LARGE, "more than 32 KiB of headers")
        elif parser.get_http_version() not in ("1.1", "1.0"):
            self._fault = (_BROKEN, "not HTTP/1.1 or 1.0")
        elif 100 <= status <= 199:
            self._count_interim(status)
        elif self._early and (self._uses > 1 or 200 <= status <= 299):
            self._noise = True
            self._fault = (_BROKEN, f"it answered {status} before the request was complete")
        else:
            self._status = status
            self._final = True
            self._check_framing(status)

    def on_body(self, body: bytes) -> None:
        if self._noise:
            return
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES and self._fault is None:
            self._fault = (_TOO_LARGE, "more than 64 KiB of body")
        if len(self._excerpt) < EXCERPT_BYTES:
            self._excerpt += body[: EXCERPT_BYTES - len(self._excerpt)]

    def on_message_complete(self) -> None:
        if self._final and not self._complete and self._parser is not None:
            self._complete = True
            # Asked now: the parser forgets the answer's flags right after this call.
            self._willing = self._parser.should_keep_alive()

    # --- steps -----------------------------------------------------------------------------------

    def _count_interim(self, status: int) -> None:
        self._interim += 1
        self._noted = {}
        if status == 101:
            self._fault = (_BROKEN, "101: a change of protocol that was not asked for")
        elif self._interim > MAX_INTERIM_ANSWERS:
            self._fault = (_TOO_LARGE, "too many interim answers")

    def _check_framing(self, status: int) -> None:
        coding = self._noted.get(b"transfer-encoding")
        length = self._noted.get(b"content-length")
        if coding is not None and coding.strip().lower() != b"chunked":
            self._fault = (_BROKEN, "a transfer coding other than chunked")
        elif length is not None and int(length) > MAX_BODY_BYTES and status != 304:
            self._fault = (_TOO_LARGE, "more than 64 KiB of body announced")
        self._until_close = coding is None and length is None and status not in (204, 304)

    def _check_received(self) -> None:
        if not self._final and self._received > MAX_HEAD_BYTES:
            self._fault = (_TOO_LARGE, "more than 32 KiB of headers")
        elif self._received > MAX_HEAD_BYTES + MAX_BODY_BYTES + MAX_FRAMING_BYTES:
            self._fault = (_TOO_LARGE, "more than 128 KiB in all")

    def _ended(self, exc: Exception | None) -> None:
        if self._waiter is None:
            self._end_idle()
        elif self._until_close and self._final and self._fault is None and exc is None:
            self._noise = True
            self._succeed()
        else:
            when = "amid its answer" if self._received else "before any answer"
            why = f" ({safe_text(str(exc), 100)})" if exc is not None and str(exc) else ""
            self._fail(_BROKEN, f"the connection ended {when}{why}")

    def _end_idle(self) -> None:
        self._noise = True
        self.abort()
        if self.on_idle_end is not None:
            self.on_idle_end(self)

    def _progress(self) -> str:
        if self._final:
            return "the body of the answer did not end in time"
        if self._received:
            return "the head of the answer did not end in time"
        return "no answer in time"

    def _fail(self, code: ErrorCode, detail: str) -> None:
        waiter, self._waiter = self._waiter, None
        self._noise = True
        if waiter is not None and not waiter.done():
            waiter.set_result(
                Outcome(
                    self._status or None,
                    code,
                    self._retry_after() if self._final else None,
                    safe_excerpt(self._excerpt),
                    detail,
                )
            )

    def _succeed(self) -> None:
        """A complete answer of any status; the pool looks at `reusable` next."""
        waiter, self._waiter = self._waiter, None
        code = error_of_status(self._status)
        self.reusable = (
            code is None
            and self._willing
            and not self._noise
            and not self._voided
            and self._sock is not None
            and not self._sock.unsent
        )
        if (hint := self._noted.get(b"keep-alive")) and (match := _KEEP_ALIVE_TIMEOUT.search(hint)):
            self.idle_limit = max(0.0, int(match[1]) - 1.0)
        if waiter is not None and not waiter.done():
            waiter.set_result(
                Outcome(
                    self._status,
                    code,
                    None if code is None else self._retry_after(),
                    safe_excerpt(self._excerpt),
                )
            )

    def _retry_after(self) -> int | None:
        value = self._noted.get(b"retry-after")
        if value is None:
            return None
        date = self._noted.get(b"date", b"").decode("latin-1")
        now = None if self._clock is None else self.loop.time() + self._clock
        return parse_retry_after(value.decode("latin-1"), date, now)
