"""A local TLS endpoint that checks what arrives and answers as configured, in its own threads.

Reads   requests        Writes  answers; hands every delivery to a function

What `surehook listen` and surehook.testing are made of. It answers verification challenges by
itself. With `forward` genuine deliveries go on to an application, whose answer is passed on. For
development and tests: it keeps to one machine and has no limits worth the name.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from math import inf
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Self

from surehook.receive import (
    MAX_BODY_BYTES,
    VERIFICATION_TYPE,
    Message,
    NotGenuine,
    answer_challenge,
    verify,
)
from surehook.receiver.forward import Forward, Forwarded

HANDSHAKE_SECONDS = 10.0
IDLE_SECONDS = 120.0
PLAIN = {"content-type": "text/plain"}


@dataclass(frozen=True)
class Behaviour:
    """What a delivery gets. Challenges are answered in any case, or nothing could be delivered."""

    status: int = 200
    delay: float = 0.0
    hang: bool = False

    def __post_init__(self) -> None:
        if not 200 <= self.status <= 599:
            raise ValueError("a status is a number from 200 to 599")
        if not 0 <= self.delay < inf:  # nor is nan
            raise ValueError("a delay is a finite number of seconds, 0 or more")


@dataclass(frozen=True)
class Arrival:
    """One POST as it arrived, what was found, and what it is answered."""

    at: datetime
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    attempt: int
    """How often this webhook-id has arrived, this one included."""
    status: int | None
    """The status of the answer; None: it hangs."""
    message: Message | None = None
    """There if the signature was checked and is right."""
    reason: str = ""
    """Why it is not known to be genuine."""
    challenge: bool = False
    """A verification, not an event."""
    answer: bytes = field(default=b"", repr=False)
    forwarded: Forwarded | None = None
    """What an application made of it, where one was given."""

    @property
    def webhook_id(self) -> str:
        return self.headers.get("webhook-id", "")

    @property
    def event_type(self) -> str:
        return self.headers.get("webhook-event-type", "")

    def json(self) -> Any:
        """The payload, parsed."""
        return json.loads(self.body)


Arrived = Callable[[Arrival], None]
Pairs = list[tuple[str, str]]  # as they came: a repeated header is suspicious


class Listener:
    """Listens from the moment it is made; `close` it, or use it as a context manager."""

    def __init__(
        self,
        arrived: Arrived,
        server_file: Path,
        *,
        secrets: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        forward: Forward | None = None,
    ) -> None:
        self._forward = forward
        self.secrets = list(secrets)
        self.usual = Behaviour()
        self.next: deque[Behaviour] = deque()
        """What the next deliveries get, before the usual again."""
        self._arrived = arrived
        self._attempts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self.answering = _Count()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
        tls.load_cert_chain(server_file)
        self._server = _Server(host, port, tls, self)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="surehook-listen", daemon=True
        )
        self._thread.start()

    def close(self, patience: float = 0.0) -> None:
        """Stop at once, or after what is being answered has been, if it takes no longer."""
        self._server.shutdown()
        self._server.server_close()
        self.answering.wait_for_none(patience)
        self.closing.set()
        self._server.close_connections()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def receive(self, path: str, pairs: Pairs, body: bytes) -> tuple[Arrival, float]:
        """Look at a request, report it; what to answer and after how many seconds."""
        message, reason = self._check(pairs, body)
        headers = {name.lower(): value for name, value in pairs}
        answer = answer_challenge(message) if message else None
        challenge = answer is not None or (message is None and _looks_like_challenge(body))
        webhook_id = headers.get("webhook-id", "")
        forwarded = self._forwarded(path, pairs, body, message, answer)
        with self._lock:  # reported in the order in which attempts are counted
            self._attempts[webhook_id] += 1
            behaviour = self._behaviour(message, challenge, forwarded)
            arrival = Arrival(
                at=datetime.now(UTC),
                path=path,
                headers=headers,
                body=body,
                attempt=self._attempts[webhook_id],
                status=None if behaviour.hang else behaviour.status,
                message=message,
                reason=reason,
                challenge=challenge,
                answer=answer or (forwarded.body if forwarded else reason.encode()),
                forwarded=forwarded,
            )
            self._arrived(arrival)
        return arrival, behaviour.delay

    def _forwarded(
        self, path: str, pairs: Pairs, body: bytes, message: Message | None, answer: bytes | None
    ) -> Forwarded | None:
        """Without a secret everything is handed on: the application may hold it, and answer a
        challenge."""
        genuine = message is not None or not self.secrets
        if self._forward is None or answer is not None or not genuine:
            return None
        return self._forward(path, pairs, body)

    def _check(self, pairs: Pairs, body: bytes) -> tuple[Message | None, str]:
        if not self.secrets:
            return None, "not checked: no secret was given"
        try:
            return verify(pairs, body, self.secrets), ""
        except NotGenuine as error:
            return None, str(error)

    def _behaviour(
        self, message: Message | None, challenge: bool, forwarded: Forwarded | None
    ) -> Behaviour:
        if forwarded is not None:
            return Behaviour(status=forwarded.passed_on)
        if self.secrets and message is None:
            return Behaviour(status=401)
        if challenge:  # without a secret there is no proof to give: a person can use the code
            return Behaviour(status=200)
        return self.next.popleft() if self.next else self.usual


def _looks_like_challenge(body: bytes) -> bool:
    with contextlib.suppress(ValueError, RecursionError):
        content = json.loads(body)
        return isinstance(content, dict) and content.get("type") == VERIFICATION_TYPE
    return False


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, tls: ssl.SSLContext, listener: Listener) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.tls = tls
        self.listener = listener
        self._open: set[socket.socket] = set()
        super().__init__((host, port), _Handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The handshake belongs to the connection's own thread: a silent client delays no other."""
        connection = request
        try:
            request.settimeout(HANDSHAKE_SECONDS)
            connection = self.tls.wrap_socket(request, server_side=True)
            connection.settimeout(IDLE_SECONDS)
            self._open.add(connection)
            self.finish_request(connection, client_address)
        except (OSError, ValueError):
            pass  # no TLS, gone, or closed by close_connections() meanwhile
        finally:
            self._open.discard(connection)
            connection.close()

    def close_connections(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "surehook-listen"
    sys_version = ""

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            self._send(413 if length.isdigit() else 411, b"", PLAIN)
            return
        body = self.rfile.read(int(length))
        with self.server.listener.answering:
            hangs = self._answer(body)
        if hangs:
            self.server.listener.closing.wait()  # until the client has had enough, or we have
            self.close_connection = True

    def _answer(self, body: bytes) -> bool:
        """Answer, unless the request is to hang."""
        arrival, delay = self.server.listener.receive(self.path, self.headers.items(), body)
        if arrival.status is None:
            return True
        if not delay or not self.server.listener.closing.wait(delay):
            answered = arrival.challenge and arrival.message is not None
            kind = "application/json" if answered else "text/plain; charset=utf-8"
            headers = {"content-type": kind}
            if arrival.forwarded is not None:
                headers |= dict(arrival.forwarded.headers)
            self._send(arrival.status, arrival.answer, headers)
        return False

    def do_GET(self) -> None:
        self._send(200, b"surehook listens here; deliveries are POSTed.\n", PLAIN)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        bodiless = status in (204, 304)
        self.send_response(status)
        for name, value in headers.items():
            if not bodiless or name != "content-type":
                self.send_header(name, value)
        if not bodiless:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if not bodiless:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """The listener's owner shows what is worth showing."""


class _Count:
    """How many threads are inside of a `with`."""

    def __init__(self) -> None:
        self._inside = 0
        self._news = threading.Condition()

    def __enter__(self) -> None:
        with self._news:
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._news:
            self._inside -= 1
            self._news.notify_all()

    def wait_for_none(self, timeout: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self._inside == 0, timeout)
