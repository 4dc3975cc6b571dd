"""An HTTPS endpoint that ends kept connections at the worst moments, and counts every POST.

Reads   what is sent to it
Writes  answers, whole ones and halves

    with WorstReceiver(STRICT) as receiver:
        ... deliver to receiver.url ...
    receiver.posts      every POST of which bytes arrived, with the ending that it met
    receiver.endings    how often a connection was ended in which way

Each connection answers one or two POSTs as it should, so that the sender keeps it, and then meets
an ending, each kind in its turn. Who ends with FIN goes on reading, who ends with RST does so only
once bytes of a POST are here: so every POST that was sent is counted. `before reading` looks at the
bytes without taking them from the kernel and decrypts a copy.

The CROSSING endings alone send RST while a POST may be on its way: the kernel then throws it away
unseen, and nobody but the sender can know of it.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Self

from support import certificates
from support.waiting import PATIENCE

RECORD_HEAD = 5
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone"
HALF_A_STATUS_LINE = 10
HALF_A_BODY = len(ANSWER) - 2


class Gone(Exception):
    """The sender has closed the connection."""


@dataclass(frozen=True)
class Post:
    """One POST of which bytes arrived."""

    webhook_id: str
    ending: str
    answered: bool
    """Whether it got a whole 200."""


class Tls:
    """The server's end of a TLS connection over a plain socket, read record by record."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = certificates.server_context()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._plain = b""
        self._body_left = 0
        self._looked_at = 0
        sock.settimeout(PATIENCE)

    def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._take_record()
                continue
            except ssl.SSLError as error:
                raise Gone from error
            self._flush()
            return

    # ── Reading ───────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Wait for the next record and decrypt a copy of it; the kernel keeps it, unread."""
        head = self._receive(RECORD_HEAD, socket.MSG_PEEK)
        size = RECORD_HEAD + int.from_bytes(head[3:5], "big")
        self._incoming.write(self._receive(size, socket.MSG_PEEK))
        self._looked_at = size
        self._plain += self._decrypted()

    def head(self) -> str:
        """The next POST's head; its webhook-id."""
        while b"\r\n\r\n" not in self._plain:
            self._plain += self._read()
        head, _, self._plain = self._plain.partition(b"\r\n\r\n")
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        self._body_left = int(lines[b"content-length"])
        return lines[b"webhook-id"].decode()

    def body(self) -> None:
        """The rest of the POST."""
        while len(self._plain) < self._body_left:
            self._plain += self._read()
        self._plain = self._plain[self._body_left :]
        self._body_left = 0

    def _read(self) -> bytes:
        while not (data := self._decrypted()):
            self._take_record()
        return data

    def _decrypted(self) -> bytes:
        try:
            data: bytes = self._tls.read(65536)
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:  # a close_notify too
            raise Gone from error
        if not data:
            raise Gone
        return data

    def _take_record(self) -> None:
        if self._looked_at:
            self._receive(self._looked_at)  # its copy was decrypted already
            self._looked_at = 0
        head = self._receive(RECORD_HEAD)
        self._incoming.write(head + self._receive(int.from_bytes(head[3:5], "big")))

    def _receive(self, size: int, flags: int = 0) -> bytes:
        try:
            data = self._sock.recv(size, flags | socket.MSG_WAITALL)
        except OSError as error:
            raise Gone from error
        if len(data) < size:
            raise Gone
        return data

    # ── Writing and ending ────────────────────────────────────────────────────────────────────

    def send(self, data: bytes) -> None:
        self._tls.write(data)
        self._flush()

    def _flush(self) -> None:
        try:
            self._sock.sendall(self._outgoing.read())
        except OSError as error:
            raise Gone from error

    def say_goodbye(self) -> None:
        """TLS's own end: close_notify."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self._flush()

    def fin(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise Gone from error

    def reset(self) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def close(self) -> None:
        self._sock.close()


# ── The endings ───────────────────────────────────────────────────────────────────────────────

Begun = Callable[[str, bool], None]
End = Callable[[Tls, Begun, float], None]


def _unread(tls: Tls, begun: Begun, _: float) -> None:
    """The POST is at the door and nobody takes it."""
    tls.look()
    begun(tls.head(), False)


def _head_read(tls: Tls, begun: Begun, _: float) -> None:
    begun(tls.head(), False)


def _whole_read(tls: Tls, begun: Begun, _: float) -> None:
    webhook_id = tls.head()
    begun(webhook_id, False)
    tls.body()


def _answered(length: int) -> End:
    def answer(tls: Tls, begun: Begun, _: float) -> None:
        webhook_id = tls.head()
        begun(webhook_id, length == len(ANSWER))
        tls.body()
        tls.send(ANSWER[:length])

    return answer


def _said_goodbye(tls: Tls, begun: Begun, pause: float) -> None:
    _answered(len(ANSWER))(tls, begun, pause)
    tls.say_goodbye()


def _idle(_: Tls, __: Begun, pause: float) -> None:
    """After the last answer: the sender has kept the connection and may just be using it."""
    threading.Event().wait(pause)


_MOMENTS: dict[str, End] = {
    "before reading": _unread,
    "after the head": _head_read,
    "after the whole POST": _whole_read,
    "after half a status line": _answered(HALF_A_STATUS_LINE),
    "after half a body": _answered(HALF_A_BODY),
}
STRICT: dict[str, End] = {
    **{f"{moment}, {how}": end for moment, end in _MOMENTS.items() for how in ("FIN", "RST")},
    "after the answer, FIN": _answered(len(ANSWER)),
    "after the answer, close_notify and FIN": _said_goodbye,
    "between two POSTs, FIN": _idle,
}
CROSSING: dict[str, End] = {
    "after the answer, RST": _answered(len(ANSWER)),
    "between two POSTs, RST": _idle,
}


class WorstReceiver:
    """Listens on 127.0.0.1; every connection has a thread of its own."""

    def __init__(self, endings: dict[str, End]) -> None:
        self._kinds = list(endings.items())
        self._turns = count()
        self._dice = random.Random(5)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.posts: list[Post] = []
        self.endings: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        """Every sender has ended: what they sent is read to its end, then all is counted."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE + 5)
            assert not thread.is_alive(), "a connection outlived its sender"

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        tls = Tls(sock)
        try:
            tls.handshake()
            with self._lock:
                kept = self._dice.choice((1, 1, 2))
                pause = self._dice.uniform(0.0, 0.01)
            for _ in range(kept):
                self._begun("none", tls.head(), True)
                tls.body()
                tls.send(ANSWER)
            self._end(tls, pause)
        except Gone:
            pass
        finally:
            tls.close()

    def _end(self, tls: Tls, pause: float) -> None:
        with self._lock:
            name, end = self._kinds[next(self._turns) % len(self._kinds)]
        end(tls, lambda webhook_id, answered: self._begun(name, webhook_id, answered), pause)
        with self._lock:
            self.endings[name] += 1
        if name.endswith("RST"):
            tls.reset()
            return
        tls.fin()
        while True:  # what was on its way is counted all the same
            tls.body()
            self._begun(name, tls.head(), False)

    def _begun(self, ending: str, webhook_id: str, answered: bool) -> None:
        with self._lock:
            self.posts.append(Post(webhook_id, ending, answered))
