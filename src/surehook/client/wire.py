"""HTTP/1.1 for the client, without input or output: a request to bytes, bytes to an answer.

Reads   bytes that it is fed       Writes  nothing

Both clients share it, so both behave alike. llhttp (httptools), which the sender uses too, does
the parsing; limits bound what a wrong or hostile server can make us hold.
"""

from __future__ import annotations

import select
from collections.abc import Iterable
from urllib.parse import urlsplit

import httptools
import msgspec

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 64 * 1024 * 1024
LOOKS_LIKE = "https://surehook.example.com or http://localhost:8080"


class Broken(Exception):
    """An exchange that ended without an answer; the request may have been acted on, or not."""


class NotConnected(Broken):
    """There was no connection: the request was surely not acted on."""


class Distrusted(NotConnected):
    """The server's certificate is not to be trusted: trying again cannot help."""


class Origin(msgspec.Struct, frozen=True):
    """Where the API is."""

    secure: bool
    host: str
    port: int
    prefix: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def parse_url(url: str) -> Origin:
    """http:// or https://, a host, perhaps a port and a path before /v1."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # half an IPv6 address, or a port beyond 65535
        raise ValueError(f"url must look like {LOOKS_LIKE}") from None
    wrong = (
        parts.scheme not in ("http", "https")
        or not _is_host(parts.hostname or "")
        or port == 0
        or parts.username is not None
        or parts.query
        or parts.fragment
        or not url.isascii()
        or not url.isprintable()
        or " " in url
    )
    if wrong:
        raise ValueError(f"url must look like {LOOKS_LIKE}")
    secure = parts.scheme == "https"
    usual = 443 if secure else 80
    return Origin(secure, parts.hostname or "", port or usual, parts.path.rstrip("/"))


def _is_host(host: str) -> bool:
    """Whether it can be looked up at all: no label is empty or longer than DNS has them."""
    labels = host.removesuffix(".").split(".")
    return len(host) <= 253 and all(0 < len(label) <= 63 for label in labels)


def request_bytes(
    origin: Origin, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes
) -> bytes:
    """The whole request; the values are ours or were checked to be one line of ASCII."""
    head = [f"{method} {origin.prefix}{target} HTTP/1.1", f"host: {origin.authority}"]
    head += [f"{name}: {value}" for name, value in headers]
    if body or method != "GET":
        head.append(f"content-length: {len(body)}")
    if body:
        head.append("content-type: application/json")
    return "\r\n".join([*head, "\r\n"]).encode("ascii") + body


class Answer(msgspec.Struct, frozen=True):
    """A complete answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    keep_alive: bool

    def retry_after(self) -> float | None:
        """Retry-After in seconds from now; None if it is absent or makes no sense. A date is
        compared with the sender's own Date: the clock of this machine may be wrong."""
        value = self.headers.get("retry-after", "").strip()
        if value.isascii() and value.isdigit():
            return float(value[:300])  # more digits than a float has room for are as good as none
        date = self.headers.get("date", "")
        if not value or not date:
            return None
        from email.utils import parsedate_to_datetime as parsed  # slow to import, seldom needed

        try:
            return max(0.0, (parsed(value) - parsed(date)).total_seconds())
        except (ValueError, TypeError, OverflowError):
            return None


def is_silent(descriptor: int) -> bool:
    """Nothing to read: the server has neither closed the connection nor said what it should not."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return not poll.poll(0)


class Parser:
    """Fed with what arrives; `answer` is there once it is complete."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._fed = 0
        self._in_head = True
        self._surplus = False
        self.answer: Answer | None = None

    def feed(self, data: bytes) -> None:
        """Raises Broken for what is not HTTP, or too much of it."""
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise Broken(f"the answer is not HTTP: {error}") from None
        except httptools.HttpParserUpgrade:
            raise Broken("the answer changes to a protocol that was not asked for") from None
        if self._in_head and self._fed > HEAD_BYTES_MAX:
            raise Broken("the answer's head has no end")
        if len(self._body) > BODY_BYTES_MAX:
            raise Broken("the answer is too large")
        if self._surplus and self.answer is not None:
            self.answer = msgspec.structs.replace(self.answer, keep_alive=False)

    # --- llhttp calls these ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._surplus = self.answer is not None

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.answer is None:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._in_head = False

    def on_body(self, body: bytes) -> None:
        if self.answer is None:
            self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.answer is not None:
            return
        if status < 200:  # 100 Continue and the like: the answer is yet to come
            self._headers, self._in_head = {}, True
            return
        # A connection that has carried a failure may yet carry a second answer to the same request.
        keep_alive = self._parser.should_keep_alive() and status < 300
        self.answer = Answer(status, self._headers, bytes(self._body), keep_alive)
