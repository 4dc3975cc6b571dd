"""The receivers of docs/receivers.md, run exactly as they stand there."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.waiting import until
from surehook.delivery.challenge import answer_proves, challenge_body, new_challenge, new_code
from surehook.delivery.signature import new_shared_secret, signed_headers

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "receivers.md").read_text(encoding="utf-8")
Command = list[str]


def guide(name: str) -> tuple[str, str]:
    """What stands before the code, and the code."""
    found = re.search(rf"^## {name}\n(.*?)^```\w+\n(.*?)^```$", PAGE, re.M | re.S)
    assert found
    return found[1], found[2]


def installed(name: str, directory: Path) -> None:
    """What the guide installs, with its own command, in its own environment."""
    line = re.search(r"`((?:pip|npm) install [^`]+)`", guide(name)[0])
    assert line
    words = line[1].split()
    if words[0] == "npm":
        words = ["npm", *words[1:], "--no-fund", "--no-audit"]
    else:
        venv.create(directory / "venv", with_pip=True)
        packages = [str(REPOSITORY) if word == "surehook" else word for word in words[2:]]
        words = [str(directory / "venv" / "bin" / "pip"), "install", "--quiet", *packages]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT SHOWN: the guide for {name} (nothing can be installed: {words[0]})")


@contextmanager
def running(command: Command, directory: Path, secret: str, port: int) -> Iterator[None]:
    kept = {name: value for name, value in os.environ.items() if "SUREHOOK" not in name}
    env = {**kept, "WEBHOOK_SECRET": secret, "PORT": str(port)}
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=directory, env=env, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(process.pid, 9)  # `go run` has a child
            process.wait()


def posted(port: int, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", "/webhooks", body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


async def check(command: Command, directory: Path, port: int) -> None:
    """A delivery is taken, a changed one refused, a challenge answered."""
    secret = new_shared_secret()
    with running(command, directory, secret.reveal(), port):
        await until(lambda: is_open(port), what=lambda: (directory / "log").read_text())
        now = int(time.time())
        body = '{"order": "ü"}'.encode()
        headers = dict(signed_headers([secret], "msg_1_2_3", now, body, "order.paid"))
        headers["content-type"] = "application/json"
        assert posted(port, headers, body)[0] == 204
        assert posted(port, headers, body + b" ")[0] == 401
        assert posted(port, {}, body)[0] == 401
        challenge = new_challenge()
        asked = challenge_body(challenge, new_code())
        headers = dict(signed_headers([secret], "vrf_1_x", now, asked, "surehook.verification"))
        status, answer = posted(port, {**headers, "content-type": "application/json"}, asked)
        assert status == 200
        assert answer_proves(answer, challenge, [secret.reveal()])
        logged = (directory / "log").read_text()
        assert "received msg_1_2_3 order.paid" in logged and "vrf_" not in logged


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def written(name: str, directory: Path, file: str) -> None:
    before, code = guide(name)
    assert f"`{file}`" in before
    (directory / file).write_text(code, encoding="utf-8")


async def test_the_receiver_in_django_works_as_it_stands(tmp_path: Path) -> None:
    written("Django", tmp_path, "app.py")
    port = free_port()
    await check([sys.executable, "app.py", "runserver", "--noreload", str(port)], tmp_path, port)


@pytest.mark.long
@pytest.mark.parametrize(("name", "program"), [("Flask", "flask"), ("FastAPI", "uvicorn")])
async def test_a_receiver_in_python_works_as_it_stands(
    name: str, program: str, tmp_path: Path
) -> None:
    installed(name, tmp_path)
    written(name, tmp_path, "app.py")
    line = re.search(rf"`({program} [^`]+)`", guide(name)[0])
    assert line
    port = free_port()
    words = line[1].replace("8000", str(port)).split()
    await check([str(tmp_path / "venv" / "bin" / words[0]), *words[1:]], tmp_path, port)


@pytest.mark.long
async def test_the_receiver_in_express_works_as_it_stands(tmp_path: Path) -> None:
    if not (shutil.which("npm") and shutil.which("node")):
        pytest.skip("NOT SHOWN: the guide for Express (no node, or no npm)")
    installed("Express", tmp_path)
    written("Express", tmp_path, "app.js")
    await check(["node", "app.js"], tmp_path, free_port())


@pytest.mark.long
async def test_the_receiver_in_go_works_as_it_stands(tmp_path: Path) -> None:
    if not shutil.which("go"):
        pytest.skip("NOT SHOWN: the guide for Go (no go)")
    written("Go", tmp_path, "main.go")
    await check(["go", "run", "main.go"], tmp_path, free_port())


def test_the_guides_that_are_not_run_say_so() -> None:
    for name in ("Java", "PHP", "Ruby"):
        assert "not run by our tests" in guide(name)[0]
