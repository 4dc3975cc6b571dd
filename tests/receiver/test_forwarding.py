"""`surehook listen --forward-to`: an application gets exactly what came, and its answer counts."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.waiting import PATIENCE
from surehook import receive
from surehook.delivery.challenge import answer_proves, challenge_body, new_challenge
from surehook.receiver import certificates
from surehook.receiver.forward import ANSWER_BYTES_MAX, Forward
from surehook.receiver.listen import Arrival, Listener
from surehook.testing import new_secret, signed_headers

SECRET = new_secret()
BODY = b'{ "order":17,\t"note": "\xc3\xa9" }'


@dataclass
class Application:
    """What a developer runs on localhost:3000."""

    url: str = ""
    status: int = 200
    answer: bytes = b"thanks"
    headers: dict[str, str] = field(default_factory=dict)
    proves: bool = False
    seen: list[tuple[str, list[tuple[str, str]], bytes]] = field(default_factory=list)


@contextmanager
def application() -> Iterator[Application]:
    running = Application()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            running.seen.append((self.path, self.headers.items(), body))
            answer = running.answer
            if running.proves:
                message = receive.verify(self.headers.items(), body, SECRET)
                answer = receive.answer_challenge(message) or answer
            self.send_response(running.status)
            for name, value in running.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Answered:
    status: int
    body: bytes
    headers: dict[str, str]


@dataclass
class Forwarding:
    """A listener that hands on, and what it reported."""

    listener: Listener
    ca_file: Path
    arrivals: list[Arrival]

    def post(self, body: bytes, headers: dict[str, str]) -> Answered:
        context = ssl.create_default_context(cafile=self.ca_file)
        connection = http.client.HTTPSConnection(
            "localhost", self.listener.port, timeout=PATIENCE, context=context
        )
        with closing(connection):
            connection.request("POST", "/in?x=1", body, headers)
            answer = connection.getresponse()
            return Answered(answer.status, answer.read(), dict(answer.headers))

    def deliver(self) -> Answered:
        return self.post(BODY, {**signed_headers(SECRET, BODY), "X-Custom": "as it came"})


@contextmanager
def forwarding(state: Path, forward: Forward, *secrets: str) -> Iterator[Forwarding]:
    files = certificates.kept(state, certificates.LOCAL_NAMES)
    arrivals: list[Arrival] = []
    with Listener(arrivals.append, files.server_file, secrets=secrets, forward=forward) as listener:
        yield Forwarding(listener, files.ca_file, arrivals)


def test_the_application_gets_the_same_bytes_and_its_answer_is_passed_on(tmp_path: Path) -> None:
    with application() as app, forwarding(tmp_path, Forward(app.url), SECRET) as here:
        app.status, app.answer = 202, b"queued"
        app.headers = {"Content-Type": "text/x-mine", "Retry-After": "7", "Set-Cookie": "a=b"}
        answer = here.deliver()
        assert (answer.status, answer.body) == (202, b"queued")
        assert answer.headers["content-type"] == "text/x-mine"
        assert answer.headers["retry-after"] == "7"
        assert "set-cookie" not in map(str.lower, answer.headers)
        [(path, pairs, body)] = app.seen
        assert (path, body) == ("/in?x=1", BODY)
        headers = {name.lower(): value for name, value in pairs}
        assert receive.verify(pairs, body, SECRET)
        assert headers["x-custom"] == "as it came"
        assert headers["host"] == app.url.removeprefix("http://")
        [arrival] = here.arrivals
        assert arrival.status == 202 and arrival.forwarded is not None
        assert arrival.forwarded.status == 202 and arrival.forwarded.url == app.url + "/in?x=1"


@pytest.mark.parametrize("status", [204, 302, 404, 429, 500, 599])
def test_whatever_status_the_application_answers_is_that_of_the_delivery(
    tmp_path: Path, status: int
) -> None:
    with application() as app, forwarding(tmp_path, Forward(app.url), SECRET) as here:
        app.status, app.answer = status, b"" if status == 204 else b"x"
        assert here.deliver().status == status
        assert here.arrivals[0].status == status


def test_its_own_path_replaces_that_of_the_delivery(tmp_path: Path) -> None:
    with application() as app, forwarding(tmp_path, Forward(f"{app.url}/my/hooks?a=b")) as here:
        assert here.deliver().status == 200
        assert app.seen[0][0] == "/my/hooks?a=b"


def test_what_is_not_genuine_does_not_reach_the_application(tmp_path: Path) -> None:
    with application() as app, forwarding(tmp_path, Forward(app.url), new_secret()) as here:
        assert here.deliver().status == 401
        assert app.seen == [] and here.arrivals[0].forwarded is None


@pytest.mark.parametrize("held_by_us", [True, False], ids=["by the listener", "by the application"])
def test_a_challenge_is_answered_by_whoever_holds_the_secret(
    tmp_path: Path, held_by_us: bool
) -> None:
    secrets = [SECRET] if held_by_us else []
    with application() as app, forwarding(tmp_path, Forward(app.url), *secrets) as here:
        app.proves = True
        challenge = new_challenge()
        body = challenge_body(challenge, "7QXM-2KPA-9DTR")
        answer = here.post(body, signed_headers(SECRET, body, webhook_id="vrf_1_x"))
        assert answer.status == 200 and answer_proves(answer.body, challenge, [SECRET])
        assert len(app.seen) == (0 if held_by_us else 1)


def test_an_application_that_is_down_is_502_and_says_why(tmp_path: Path) -> None:
    with application() as app:
        url = app.url
    with forwarding(tmp_path, Forward(url), SECRET) as here:
        assert here.deliver().status == 502
        [arrival] = here.arrivals
        assert arrival.forwarded is not None and arrival.forwarded.status is None
        assert arrival.forwarded.reason == "Connection refused" and arrival.status == 502


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\nhalf"])
def test_an_application_that_does_not_finish_is_504_at_the_deadline(
    tmp_path: Path, says: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            connection, _ = server.accept()
            connection.sendall(says)
            connection.recv(65536)
            here.listener.closing.wait()
            connection.close()

        with forwarding(tmp_path, Forward(url, seconds=0.3), SECRET) as here:
            thread = threading.Thread(target=answer)
            thread.start()
            assert here.deliver().status == 504
            assert here.arrivals[0].forwarded is not None
            assert here.arrivals[0].forwarded.reason == "no answer within 0.3 s"
        thread.join()


@pytest.mark.parametrize("says", [b"hello\r\n\r\n", b"HTTP/1.1 999 X\r\n\r\n"])
def test_an_application_that_does_not_speak_http_is_502(tmp_path: Path, says: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(65536)
            connection.sendall(says)
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with forwarding(tmp_path, Forward(url), SECRET) as here:
            assert here.deliver().status == 502
            assert here.arrivals[0].forwarded is not None and here.arrivals[0].forwarded.reason
        thread.join()


def test_no_more_of_an_answer_is_read_than_a_sender_would(tmp_path: Path) -> None:
    with application() as app, forwarding(tmp_path, Forward(app.url), SECRET) as here:
        app.answer = b"x" * (3 * ANSWER_BYTES_MAX)
        assert len(here.deliver().body) == ANSWER_BYTES_MAX
