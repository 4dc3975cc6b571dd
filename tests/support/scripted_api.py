"""A small HTTP API that keeps the contract for events and fails as configured, in threads.

    with ScriptedApi() as api:
        api.script(Fault.RESET_AFTER, Fault.SLOW)
        ... client.publish(...) meets these two, then a good server ...
        assert len(api.events) == 1

For what a real server cannot be made to do: answers lost after the event was stored, and the like.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Self

from support.waiting import PATIENCE

CREATED_AT = "2026-11-15T20:55:01.123456Z"
KEY = "shk_test"


class Fault(Enum):
    """One thing that goes wrong; BEFORE: nothing was stored, AFTER: it was."""

    RESET_BEFORE = auto()
    RESET_AFTER = auto()
    CLOSED_BEFORE = auto()
    CLOSED_AFTER = auto()
    SLOW_AFTER = auto()
    DRIP_AFTER = auto()
    HALF_AFTER = auto()
    GARBAGE_BEFORE = auto()
    GARBAGE_AFTER = auto()
    STATUS_429 = auto()
    STATUS_502_AFTER = auto()
    STATUS_503 = auto()
    STATUS_504_AFTER = auto()
    STATUS_500 = auto()
    PAGE = auto()  # a proxy's page with status 200


AFTER = {fault for fault in Fault if fault.name.endswith("AFTER")}
Route = Callable[[re.Match[str], Any], tuple[int, Any]]


class ScriptedApi:
    """Listens on 127.0.0.1 for as long as the `with` lasts."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, str], dict[str, Any]] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0
        self.retry_after: str | None = None
        self.routes: list[tuple[str, re.Pattern[str], Route]] = []
        self.released = threading.Event()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.on("POST", r"/v1/events", self._publish)
        self.on("POST", r"/v1/events/batch", self._publish_batch)

    def script(self, *faults: Fault) -> None:
        """The next requests meet these, one each."""
        self._faults = list(faults)

    def on(self, method: str, pattern: str, route: Route) -> None:
        """Answer (status, body) to requests whose whole target fits the pattern."""
        self.routes.append((method, re.compile(pattern), route))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def close_connections(self) -> None:
        """Close every kept connection without a word."""
        for connection in list(self._server.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # --- what handlers call ---------------------------------------------------------------------

    def next_fault(self) -> Fault | None:
        with self._lock:
            return self._faults.pop(0) if self._faults else None

    def act(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        with self._lock:
            for wanted, pattern, route in self.routes:
                found = pattern.fullmatch(target)
                if found and wanted == method:
                    return route(found, json.loads(body) if body else None)
        return 404, {"title": "Not found", "status": 404, "detail": target}

    def _publish(self, _found: re.Match[str], event: Any) -> tuple[int, Any]:
        return self._store(event)

    def _publish_batch(self, _found: re.Match[str], batch: Any) -> tuple[int, Any]:
        answers = [self._store(event) for event in batch["events"]]
        return 200, {
            "results": [
                {"status": status, "error": answer}
                if status == 409
                else {"status": status} | answer
                for status, answer in answers
            ]
        }

    def _store(self, event: Any) -> tuple[int, Any]:
        key = (event.get("tenant", ""), event["external_id"])
        known = self.events.get(key)
        if known is None:
            self.events[key] = {**event, "id": len(self.events) + 1}
            return 202, {"id": len(self.events), "created_at": CREATED_AT, "duplicate": False}
        if known["payload"] != event["payload"]:
            return 409, {"type": "/problems/key-taken", "title": "Key taken", "status": 409}
        return 200, {"id": known["id"], "created_at": CREATED_AT, "duplicate": True}


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 256
    api: ScriptedApi

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.open: set[socket.socket] = set()

    def handle_error(self, *_: object) -> None:
        """A client that went away is no news."""


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.server.api.connections += 1
        self.server.open.add(self.request)
        try:
            while self._one():
                pass
        finally:
            self.server.open.discard(self.request)

    def _one(self) -> bool:
        """One request; whether another may follow."""
        api = self.server.api
        line = self.rfile.readline().decode()
        if not line:
            return False
        method, target, _ = line.split(" ", 2)
        headers = {}
        while header := self.rfile.readline().decode().strip():
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        body = self.rfile.read(int(headers.get("content-length", "0")))
        api.requests.append((method, target, headers, body))
        fault = api.next_fault()
        if fault is None or fault in AFTER:
            status, answer = api.act(method, target, body)
        else:
            status, answer = 500, None
        if fault is not None:
            return self._fail(fault, self._answer(status, answer, headers))
        self.wfile.write(self._answer(status, answer, headers))
        return True

    def _answer(self, status: int, answer: Any, headers: dict[str, str]) -> bytes:
        body = json.dumps(answer).encode()
        lines = [f"HTTP/1.1 {status} Scripted", f"content-length: {len(body)}"]
        lines.append(f"x-request-id: {headers.get('x-request-id', 'none')}")
        if self.server.api.retry_after is not None and status in (429, 503):
            lines.append(f"retry-after: {self.server.api.retry_after}")
        return "\r\n".join([*lines, "\r\n"]).encode() + body

    def _fail(self, fault: Fault, answer: bytes) -> bool:
        if fault.name.startswith("STATUS_"):
            status = int(fault.name.split("_")[1])
            problem = {"title": "Scripted", "status": status, "detail": fault.name}
            self.wfile.write(self._answer(status, problem, {}))
            return True
        if fault.name.startswith("RESET"):
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif fault.name.startswith("GARBAGE"):
            self.wfile.write(b"\x16\x03\x01 SSH-2.0 this is no HTTP\r\n\r\n")
        elif fault is Fault.HALF_AFTER:
            self.wfile.write(answer[:-5])
        elif fault is Fault.SLOW_AFTER:
            self.server.api.released.wait(PATIENCE)
        elif fault is Fault.DRIP_AFTER:
            for byte in answer:
                self.wfile.write(bytes([byte]))
                if self.server.api.released.wait(0.02):
                    break
        elif fault is Fault.PAGE:
            page = b"<html>Welcome to the captive portal</html>"
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page) + page)
        self.request.close()
        return False
