"""Connections of Client, for programs with threads, or without.

Reads   answers        Writes  requests, over connections that it keeps for the next call

Each call has a connection to itself while it lasts. After a fork the child opens its own.
streams.py is the same for asyncio.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time

from surehook.client.settings import IDLE_MAX, IDLE_SECONDS_MAX, ClientSettings
from surehook.client.wire import Answer, Broken, Parser, is_silent


class Connections:
    """Sockets to one origin: one exchange at a time on each, idle ones kept."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[tuple[socket.socket, float]] = []
        self._process = os.getpid()

    def exchange(self, request: bytes, deadline: float) -> Answer:
        """Send and read the whole answer. Raises Broken; the connection is then gone."""
        connection = self._take() or self._connect(deadline)
        try:
            answer = _exchange(connection, request, deadline)
        except BaseException:
            connection.close()
            raise
        if answer.keep_alive:
            self._keep(connection)
        else:
            connection.close()
        return answer

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def _take(self) -> socket.socket | None:
        if os.getpid() != self._process:  # a fork: the parent's connections are not ours
            self._lock, self._process = threading.Lock(), os.getpid()
            self.close()
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, since = self._idle.pop()  # the one used last is the most alive
            if time.monotonic() - since < IDLE_SECONDS_MAX and is_silent(connection.fileno()):
                return connection
            connection.close()

    def _keep(self, connection: socket.socket) -> None:
        with self._lock:
            if len(self._idle) < IDLE_MAX:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()

    def _connect(self, deadline: float) -> socket.socket:
        origin, tls = self._settings.origin, self._settings.tls()
        connection: socket.socket | None = None
        try:
            left = _left(deadline)
            connection = socket.create_connection((origin.host, origin.port), timeout=left)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                connection.settimeout(_left(deadline))
                connection = tls.wrap_socket(connection, server_hostname=origin.host)
            return connection
        except OSError as error:  # TimeoutError too
            if connection is not None:
                connection.close()
            raise self._settings.failure(error) from error


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _exchange(connection: socket.socket, request: bytes, deadline: float) -> Answer:
    parser = Parser()
    try:
        connection.settimeout(_left(deadline))
        # A server may answer and close before it has read all of a large request.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(request)
        while parser.answer is None:
            connection.settimeout(_left(deadline))
            data = connection.recv(65536)
            if not data:
                raise Broken("the connection was closed before the answer was complete")
            parser.feed(data)
    except TimeoutError:
        raise Broken("timed out") from None
    except OSError as error:
        raise Broken(f"the connection broke: {error}") from error
    return parser.answer
