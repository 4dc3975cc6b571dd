"""Endpoints that misbehave: raw sockets and TLS in threads, one script per connection.

Reads   what is sent to them
Writes  whatever the script says

    def half_a_status_line(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 20")
        peer.hang()

    with HostileServer(half_a_status_line) as server:
        ... send to server.url ...
        assert server.posts == 1 and server.released()
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import Self

from support import certificates
from support.waiting import PATIENCE


class Gone(Exception):
    """The client closed the connection, or the test is over."""


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket, server: HostileServer) -> None:
        self.sock = sock
        self.server = server
        self.number = 0
        """Which connection of the server this is, from 1."""
        sock.settimeout(PATIENCE)
        # What was sent has left: a reset would throw away what the kernel still gathers.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start_tls(self, context: ssl.SSLContext) -> None:
        try:
            self.sock = context.wrap_socket(self.sock, server_side=True)
        except (OSError, ValueError) as error:
            raise Gone from error

    def read(self, size: int = 65536) -> bytes:
        try:
            data = self.sock.recv(size)
        except OSError as error:
            raise Gone from error
        if not data:
            raise Gone
        self.server.saw(data)
        return data

    def read_head(self) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.read()
        return data

    def read_request(self) -> bytes:
        """A complete POST; counted."""
        data = self.read_head()
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        while len(body) < length:
            body += self.read()
        self.server.count_post(head)
        return body

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise Gone from error

    def answer(self, status: int = 200, *lines: str, body: bytes = b"") -> None:
        head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *lines, "", ""]
        self.send("\r\n".join(head).encode("latin-1") + body)

    def flood(self, piece: bytes) -> None:
        """Send without end."""
        while not self.server.over.is_set():
            self.send(piece)

    def drip(self, data: bytes, pause: float = 0.02) -> None:
        """One byte after the other, round and round."""
        while not self.server.over.is_set():
            for byte in data:
                self.send(bytes([byte]))
                if self.server.over.wait(pause):
                    raise Gone

    def hang(self) -> None:
        """Until the client goes away."""
        while True:
            self.read()

    def reset(self) -> None:
        """Close with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        """Close, without TLS's close_notify."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self.hang()


Script = Callable[[Peer], None]


class HostileServer:
    """Listens on 127.0.0.1; every connection runs the script in a thread of its own."""

    def __init__(
        self,
        script: Script,
        *,
        tls: ssl.SSLContext | None = None,
        plain: bool = False,
        host: str = "127.0.0.1",
    ) -> None:
        self._script = script
        self._tls = None if plain else tls or certificates.server_context()
        self._listener = socket.create_server((host, 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"https://{host}:{self.port}/hook"
        self.over = threading.Event()
        self.posts = 0
        self.heads: list[bytes] = []
        self.connections = 0
        self.bytes_seen = 0
        self._open = 0
        self._lock = threading.Condition()
        self._threads: list[threading.Thread] = []

    def saw(self, data: bytes) -> None:
        with self._lock:
            self.bytes_seen += len(data)

    def count_post(self, head: bytes) -> None:
        with self._lock:
            self.posts += 1
            self.heads.append(head)

    def released(self, timeout: float = PATIENCE) -> bool:
        """Whether every connection ends, seen from here."""
        until = time.monotonic() + timeout
        with self._lock:
            while self._open:
                left = until - time.monotonic()
                if left <= 0 or not self._lock.wait(left):
                    return not self._open
        return True

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE + 5)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.over.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open += 1
                self.connections += 1
            self._start(self._serve, sock, self.connections)

    def _serve(self, sock: socket.socket, number: int) -> None:
        peer = Peer(sock, self)
        peer.number = number
        try:
            if self._tls is not None:
                peer.start_tls(self._tls)
            self._script(peer)
        except (Gone, OSError):
            pass
        finally:
            with contextlib.suppress(OSError):
                peer.sock.close()
            with self._lock:
                self._open -= 1
                self._lock.notify_all()
