"""`surehook listen` as a program: what it prints, answers and never shows."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import inf, nan
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pytest

from support.commands import run_command
from support.waiting import PATIENCE
from surehook.delivery.challenge import answer_proves, challenge_body, new_challenge
from surehook.testing import Receiver, new_secret, signed_headers

SECRET = new_secret()


class Listening:
    """A running `surehook listen --json`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        first = self.line()
        self.url, self.ca_file = first["listening"], first["ca_file"]

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        parsed: dict[str, Any] = json.loads(self.process.stdout.readline())
        return parsed

    def post(
        self, body: bytes, headers: dict[str, str], timeout: float = PATIENCE
    ) -> tuple[int, bytes]:
        address = urlsplit(self.url)
        context = ssl.create_default_context(cafile=self.ca_file)
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=PATIENCE, context=context
        )
        try:
            connection.request("POST", "/in?x=1", body, headers)
            connection.sock.settimeout(timeout)  # not for the way there
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def deliver(self, body: bytes = b'{"order": 17}', **named: Any) -> int:
        return self.post(body, signed_headers(SECRET, body, **named))[0]


@contextmanager
def started(
    state: Path, *options: str, stdout: int | IO[str] = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "surehook", "listen", "--port", "0", *options]
    environment = {**os.environ, "XDG_STATE_HOME": str(state), "NO_COLOR": "1", "COLUMNS": "120"}
    process = subprocess.Popen(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def listening(state: Path, *options: str) -> Iterator[Listening]:
    with started(state, "--json", *options) as process:
        yield Listening(process)


def test_a_delivery_is_checked_answered_and_told(tmp_path: Path) -> None:
    with listening(tmp_path, "--secret", SECRET, "--secret", new_secret()) as listener:
        assert listener.url.startswith("https://localhost:")
        assert listener.ca_file.startswith(str(tmp_path))
        assert listener.deliver(event_type="order.paid", webhook_id="msg_17_3") == 200
        line = listener.line()
        line.pop("at")
        assert line == {
            "status": 200,
            "verified": True,
            "reason": None,
            "challenge": False,
            "event_type": "order.paid",
            "webhook_id": "msg_17_3",
            "attempt": 1,
            "path": "/in?x=1",
            "bytes": 13,
            "payload": {"order": 17},
        }
        body = b"{}"
        assert listener.post(body, signed_headers(new_secret(), body))[0] == 401
        refused = listener.line()
        assert (refused["status"], refused["verified"]) == (401, False)
        assert refused["reason"] == "no signature fits any secret"


def test_the_first_n_fail_and_a_challenge_is_answered_meanwhile(tmp_path: Path) -> None:
    with listening(tmp_path, "--secret", SECRET, "--fail", "2", "--status", "503") as listener:
        challenge = new_challenge()
        body = challenge_body(challenge, "7QXM-2KPA-9DTR")
        _, answer = listener.post(body, signed_headers(SECRET, body, webhook_id="vrf_1_x"))
        assert answer_proves(answer, challenge, [SECRET])
        assert [listener.deliver() for _ in range(3)] == [503, 503, 200]
        assert [listener.line()["attempt"] for _ in range(4)] == [1, 1, 2, 3]


def test_it_hangs_when_told(tmp_path: Path) -> None:
    with listening(tmp_path, "--secret", SECRET, "--hang") as listener:
        with pytest.raises(TimeoutError):
            listener.post(b"1", signed_headers(SECRET, b"1"), timeout=0.3)
        assert listener.line()["status"] is None


def test_it_waits_before_it_answers_and_ends_after_so_many(tmp_path: Path) -> None:
    with listening(tmp_path, "--secret", SECRET, "--delay", "0.1", "--count", "1") as listener:
        listener.deliver()
        assert listener.process.wait(PATIENCE) == 0


def test_sigterm_and_ctrl_c_end_it_with_success(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with listening(tmp_path) as listener:
            listener.process.send_signal(number)
            assert listener.process.wait(PATIENCE) == 0


def test_people_see_what_came_and_no_secret_and_no_command_to_their_terminal(
    tmp_path: Path,
) -> None:
    output = tmp_path / "output"
    body = json.dumps({"text": "\x1b[2J\x9b", "items": list(range(60))}).encode()
    with output.open("w") as file, listening(tmp_path, "--secret", SECRET) as one:
        port = urlsplit(one.url).port
        one.process.terminate()
        one.process.wait(PATIENCE)
        options = ["--secret", SECRET, "--count", "2", "--port", str(port)]
        with started(tmp_path, *options, stdout=file) as process:
            _until_listening(one, body)
            assert one.post(b"{}", signed_headers(new_secret(), b"{}"))[0] == 401
            assert process.wait(PATIENCE) == 0
    text = output.read_text()
    assert "✓ verified  order.paid  msg_0123456789_1_1  attempt 1" in text
    assert "✗ no signature fits any secret" in text
    assert "more lines" in text
    assert "received: 2 deliveries, 1 not genuine" in text
    assert f"SUREHOOK_CA_FILE={one.ca_file}" in text
    assert SECRET not in text
    assert "\x1b" not in text and "\x9b" not in text


def _until_listening(one: Listening, body: bytes) -> None:
    while True:
        try:
            assert one.post(body, signed_headers(SECRET, body, event_type="order.paid"))[0] == 200
            return
        except ConnectionRefusedError:
            continue


def test_a_taken_port_and_an_odd_secret_are_one_clear_line(tmp_path: Path) -> None:
    with listening(tmp_path) as listener:
        port = str(urlsplit(listener.url).port)
        with started(tmp_path, "--port", port) as second:
            assert second.wait(PATIENCE) == 3
            assert second.stderr is not None
            assert f"Cannot listen on 127.0.0.1:{port}" in second.stderr.read()
    with started(tmp_path, "--secret", "whsec_%%%") as odd:
        assert odd.wait(PATIENCE) == 2
        assert odd.stderr is not None
        complaint = odd.stderr.read()
        assert "not of the form whsec_" in complaint
        assert "%%%" not in complaint


@pytest.mark.parametrize("delay", ["nan", "inf", "-inf", "-1", "1e400", "1e9", "soon"])
def test_a_delay_that_is_none_is_one_clear_line(delay: str) -> None:
    done = run_command(("listen", "--port", "0", "--delay", delay), {})
    assert (done.code, done.out) == (2, "")
    assert "Invalid value for '--delay'" in done.err and "Traceback" not in done.err


@pytest.mark.parametrize("delay", [nan, inf, -1.0])
def test_a_receiver_refuses_a_delay_that_never_ends(
    surehook_receiver: Receiver, delay: float
) -> None:
    with pytest.raises(ValueError, match="finite number of seconds"):
        surehook_receiver.answer(200, delay=delay)


def test_what_the_application_answered_is_told_and_passed_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with listening(tmp_path, "--secret", SECRET, "--forward-to", url) as listener:
        assert listener.deliver() == 502
        line = listener.line()
        assert line["status"] == 502 and line["verified"]
        assert line["forwarded"].pop("milliseconds") >= 0
        assert line["forwarded"] == {
            "url": f"{url}/in?x=1",
            "status": None,
            "reason": "Connection refused",
        }


def test_people_see_what_the_application_answered(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with application() as app, listening(tmp_path, "--secret", SECRET) as one:
        port = urlsplit(one.url).port
        one.process.terminate()
        one.process.wait(PATIENCE)
        options = ["--secret", SECRET, "--count", "1", "--port", str(port), "--forward-to", app]
        with output.open("w") as file, started(tmp_path, *options, stdout=file) as process:
            _until_listening(one, b"{}")
            assert process.wait(PATIENCE) == 0
    text = output.read_text()
    assert f"answers    what {app} answers" in text
    assert f"→ {app}/in?x=1  answered 200 in " in text


@contextmanager
def application() -> Iterator[str]:
    """Takes whatever is POSTed."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--forward-to", "localhost:3000"], "--forward-to must be a URL such as"),
        (["--forward-to", "ftp://localhost"], "--forward-to must be a URL such as"),
        (["--forward-to", "http://localhost:99999"], "--forward-to must be a URL such as"),
        (["--forward-to", "http://u:p@localhost"], "--forward-to must be a URL such as"),
        (["--forward-to", "http://localhost/a b"], "--forward-to must be a URL such as"),
        (["--forward-to", "http://localhost", "--status", "500"], "passes on what the application"),
    ],
)
def test_what_cannot_be_forwarded_to_is_one_clear_line(
    tmp_path: Path, options: list[str], complaint: str
) -> None:
    with started(tmp_path, *options) as process:
        assert process.wait(PATIENCE) == 2
        assert process.stderr is not None
        said = process.stderr.read()
        assert complaint in said and "Traceback" not in said
