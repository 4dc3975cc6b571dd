"""Hands a delivery on to an application on this machine, and says what it answered.

Reads   what the application answers, at most ANSWER_BYTES_MAX of it
Writes  the delivery as it came: path, headers and body bytes

What `surehook listen --forward-to` is made of; for development. One deadline covers everything, a
redirect is not followed, and no proxy variable is looked at.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

DEADLINE_SECONDS = 30.0
ANSWER_BYTES_MAX = 64 * 1024
# What belongs to one connection, and is not the delivery's.
_HOP_BY_HOP = frozenset(
    ("connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
)
_URL = re.compile(r"https?://[^\s/?#@]+(?:/[\x21-\x7e]*)?", re.ASCII | re.IGNORECASE)
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Forwarded:
    """What came of handing a delivery on."""

    url: str
    status: int | None
    """What the application answered; None: it did not."""
    milliseconds: float
    reason: str = ""
    """Why there is no answer to pass on."""
    passed_on: int = 200
    """The status that the sender gets: the application's, or 502 or 504 without one."""
    body: bytes = b""
    headers: Headers = ()
    """Of the answer, what a sender looks at."""


class Forward:
    """To one application. Without a path in its URL the delivery's own path is kept."""

    def __init__(self, url: str, seconds: float = DEADLINE_SECONDS) -> None:
        """Raises ValueError with the sentence that completes "<url> must be …"."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if not _URL.fullmatch(url) or not parts.hostname or port == 0:
            raise ValueError("a URL such as http://localhost:3000 or http://localhost:3000/hooks")
        self.url = url
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._secure = parts.scheme == "https"
        self._authority, self._host, self._port = parts.netloc, parts.hostname, port
        self._target = url[len(self._base) :].partition("#")[0]
        self._seconds = seconds

    def __call__(self, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> Forwarded:
        """Hand it on; whatever happens is the result."""
        target = path if self._target in ("", "/") else self._target
        url, began = self._base + target, time.monotonic()
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._seconds)
        late = threading.Timer(self._seconds, _cut, [connection])
        late.daemon = True
        late.start()
        status: int | None = None
        answer, reason, kept = b"", "", Headers()
        try:
            status, answer, kept = self._exchange(connection, target, headers, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = _why(error)
        finally:
            late.cancel()
            connection.close()
        seconds = time.monotonic() - began
        passed_on = status or 502
        if seconds >= self._seconds:  # it was cut off, also amid an answer
            status, passed_on, reason = None, 504, f"no answer within {self._seconds:g} s"
        elif status is not None and not 200 <= status <= 599:
            passed_on, reason = 502, f"{status} is not an answer to pass on"
        return Forwarded(url, status, round(seconds * 1000, 1), reason, passed_on, answer, kept)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: bytes,
    ) -> tuple[int, bytes, Headers]:
        connection.putrequest("POST", target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("host", self._authority)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                connection.putheader(name, value)
        connection.putheader("connection", "close")
        connection.endheaders(body)
        answer = connection.getresponse()
        kept = [(name, answer.getheader(name)) for name in ("content-type", "retry-after")]
        return (
            answer.status,
            answer.read(ANSWER_BYTES_MAX),
            tuple((name, value) for name, value in kept if value and value.isprintable()),
        )


def _cut(connection: http.client.HTTPConnection) -> None:
    """The deadline: a thread that waits for this connection stops waiting."""
    sock = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
