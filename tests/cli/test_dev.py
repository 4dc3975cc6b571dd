"""`surehook dev` as a program: what it starts, prints, trusts, refuses and leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.servers import private_directory
from surehook import Client, certificates
from surehook.listen import Arrival, Listener

COMMAND = [sys.executable, "-m", "surehook"]
LAST_LINE = "Ctrl-C ends it"


@pytest.fixture
def home() -> Iterator[Path]:
    """State and data of a user of this test's own; PostgreSQL's account can reach it."""
    with private_directory() as directory:
        yield directory


def environment(home: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SUREHOOK_") and name != "DATABASE_URL"
    }
    own = {
        "SUREHOOK_CONFIG": os.devnull,
        "SUREHOOK_DATA_DIR": str(home / "data"),
        "SUREHOOK_LISTEN": "127.0.0.1:0",
        "XDG_STATE_HOME": str(home / "state"),
    }
    return {**kept, **own, **(settings or {})}


class Running:
    """A `surehook dev` that has greeted."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said = self._until_greeted()

    def _until_greeted(self) -> str:
        assert self.process.stdout is not None and self.process.stderr is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if LAST_LINE in line:
                return "".join(lines)
        raise AssertionError("".join(lines) + self.process.stderr.read())

    def fact(self, name: str) -> str:
        """What stands behind a name in the greeting."""
        for line in self.said.splitlines():
            if line.startswith(f"  {name} "):
                return line.removeprefix(f"  {name}").strip()
        raise AssertionError(f"no {name} in {self.said}")

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def client(self) -> Client:
        return Client(self.fact("API"), self.fact("key"))


@contextmanager
def started(
    home: Path, *options: str, settings: Mapping[str, str] | None = None, **streams: Any
) -> Iterator[subprocess.Popen[str]]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    process = subprocess.Popen(
        [*COMMAND, "dev", *options], text=True, env=environment(home, settings), **given
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=60)
        except (ValueError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()


@contextmanager
def development(
    home: Path, *options: str, settings: Mapping[str, str] | None = None
) -> Iterator[Running]:
    with started(home, *options, settings=settings) as process:
        yield Running(process)


# ── Endpoints of the user's own ───────────────────────────────────────────────────────────────


def test_an_authority_of_the_user_s_is_trusted_beside_its_own(home: Path) -> None:
    own = certificates.kept(home / "own")
    arrived: list[Arrival] = []
    settings = {"SUREHOOK_CA_FILE": str(own.ca_file)}
    with (
        development(home, settings=settings) as running,
        Listener(arrived.append, own.server_file) as listener,
        running.client() as client,
    ):
        url = f"https://localhost:{listener.port}/"
        made = client.subscriptions.create("order.paid", url)
        assert made.secret
        listener.secrets = [made.secret]
        client.subscriptions.verify(made.id, wait=20)
        assert client.subscriptions.get(made.id).verified
        assert [one.status for one in arrived] == [200]


def test_an_authority_that_is_none_is_one_line_before_anything_starts(home: Path) -> None:
    nothing = home / "empty.pem"
    nothing.touch()
    with started(home, settings={"SUREHOOK_CA_FILE": str(nothing)}) as process:
        assert process.wait(30) == 2
        assert process.stderr is not None and process.stdout is not None
        assert f"The CA file {nothing} is empty or not PEM" in process.stderr.read()
        assert process.stdout.read() == ""
    assert not (home / "data").exists()
