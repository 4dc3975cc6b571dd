"""`surehook dev` as a program: what it starts, prints, trusts, refuses and leaves behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from support.servers import private_directory
from support.waiting import PATIENCE, PATIENT
from surehook import Client
from surehook.cli.dev import chosen_data_dir
from surehook.config import load
from surehook.errors import UsageError
from surehook.process.running import programs
from surehook.receiver import certificates
from surehook.receiver.listen import Arrival, Listener

README = Path(__file__).parents[2] / "README.md"
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
        **PATIENT,
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
        return self.process.wait(PATIENCE)

    def client(self) -> Client:
        return Client(self.fact("API"), self.fact("key"), timeout=PATIENCE)


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
            process.communicate(timeout=PATIENCE)
        except (ValueError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()


@contextmanager
def development(
    home: Path, *options: str, settings: Mapping[str, str] | None = None
) -> Iterator[Running]:
    with started(home, *options, settings=settings) as process:
        yield Running(process)


# ── What it shows ─────────────────────────────────────────────────────────────────────────────


def test_it_says_whose_deliveries_it_shows_and_what_shows_all(home: Path) -> None:
    with development(home) as running:
        said = running.said
    assert "Deliveries to this receiver appear below; `surehook tail` shows all." in said


def test_what_others_wrote_is_one_line_and_cannot_command_the_terminal(home: Path) -> None:
    with development(home) as running, running.client() as client:
        client.publish("demo.hello", b'["\x7f",\n"x"]')
        assert running.process.stdout is not None
        assert running.process.stdout.readline() == "\n"
        shown = running.process.stdout.readline()
    assert shown.endswith('["\\x7f",\\n"x"]\n')


@pytest.mark.parametrize("lines", [1, 5, 19])
def test_a_reader_that_has_seen_enough_ends_it_cleanly(home: Path, lines: int) -> None:
    """`surehook dev | head -5`, also when everything was said before the reader left."""
    with started(home) as process:
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        process.stdout.close()
        assert_ends_cleanly(process, home)


def assert_ends_cleanly(process: subprocess.Popen[str], home: Path) -> None:
    assert process.stderr is not None
    assert (process.wait(PATIENCE), process.stderr.read()) == (1, "")
    status = [*COMMAND, "db", "status"]
    stopped = subprocess.run(status, env=environment(home), capture_output=True, text=True)
    assert "running: no" in stopped.stdout


def test_several_processes_show_the_same_and_end_together(home: Path) -> None:
    with development(home, "--processes", "2") as running, running.client() as client:
        client.publish("demo.hello", {"number": 2})
        assert running.process.stdout is not None
        assert running.process.stdout.readline() == "\n"
        assert '{"number": 2}' in running.process.stdout.readline().replace('":2', '": 2')
        below = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
        pids = below.read_text().split()
        assert running.end() == 0
        assert running.process.stderr is not None and running.process.stderr.read() == ""
    assert len(pids) == 3  # with the database's supervisor
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


# ── Endpoints of the user's own ───────────────────────────────────────────────────────────────


def test_the_authority_of_the_user_is_trusted_too(home: Path) -> None:
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
        client.subscriptions.verify(made.id, wait=30)
        assert client.subscriptions.get(made.id).verified
        assert [one.status for one in arrived] == [200]


def test_an_authority_that_is_none_is_one_line_before_anything_starts(home: Path) -> None:
    nothing = home / "empty.pem"
    nothing.touch()
    with started(home, settings={"SUREHOOK_CA_FILE": str(nothing)}) as process:
        assert process.wait(PATIENCE) == 2
        assert process.stderr is not None and process.stdout is not None
        assert f"The CA file {nothing} is empty or not PEM" in process.stderr.read()
        assert process.stdout.read() == ""
    assert not (home / "data").exists()


def section(title: str) -> list[str]:
    """The code of a section of the README, block by block."""
    text = README.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Reader:
    """Somebody who does what the README says, in a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        own = {"HOME": str(home), "XDG_STATE_HOME": "", "PYTHONUNBUFFERED": "1"}
        self.settings = own
        self._command: dict[str, Any] = {
            "env": environment(home, {**own, "SUREHOOK_LISTEN": ""}),
            "cwd": home,
            "stdout": subprocess.PIPE,
            "text": True,
        }
        python = shlex.quote(sys.executable)
        self._names = f'python() {{ {python} "$@"; }}; surehook() {{ python -m surehook "$@"; }}'

    def types(self, line: str) -> str:
        """One line in a shell that has ended."""
        shell = ["bash", "-c", f"{self._names}\n{line}"]
        done = subprocess.run(shell, timeout=PATIENCE, check=True, **self._command)
        text: str = done.stdout
        return text

    @contextmanager
    def leaves_running(self, line: str, port: int) -> Iterator[subprocess.Popen[str]]:
        """One line that ends in &, for as long as the block lasts, from when it listens."""
        shell = ["bash", "-c", f"{self._names}\n{line}\nwait"]
        with subprocess.Popen(shell, start_new_session=True, **self._command) as process:
            try:
                until_listening(port, process)
                yield process
            finally:
                os.killpg(process.pid, signal.SIGKILL)


def until_listening(port: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise AssertionError("it has ended")


def test_the_endpoint_in_the_readme_works_as_it_is_written(home: Path) -> None:
    reader, port = Reader(home), free_port()
    blocks = [block.replace("9443", str(port)) for block in section("Your own endpoint")]
    (home / "endpoint.py").write_text(blocks[0])
    create, serve, verify, publish = blocks[1].splitlines()
    with development(home, settings=reader.settings) as running:
        assert f"{home}/.local/state/surehook/dev/server.pem" in running.said
        told = reader.types(create)
        secret = re.search(r"whsec_\S+", told)
        assert secret and re.search(r"^id +2$", told, re.MULTILINE)
        with reader.leaves_running(serve.replace("whsec_…", secret[0]), port) as endpoint:
            reader.types(verify)
            reader.types(publish)
            assert endpoint.stdout is not None
            assert endpoint.stdout.readline() == "order.paid {'order': 17}\n"


# ── Its data ──────────────────────────────────────────────────────────────────────────────────


def test_by_default_its_data_is_apart_from_that_of_production(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SUREHOOK_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/home/x/.data")
    given = load(Path(os.devnull), {})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert chosen_data_dir(given, None) == Path("/var/lib/surehook-dev")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert chosen_data_dir(given, None) == Path("/home/x/.data/surehook-dev")


def test_the_option_wins_over_the_configured_directory_and_a_configured_database_stays() -> None:
    configured = load(Path(os.devnull), {"SUREHOOK_DATA_DIR": "/configured"})
    assert chosen_data_dir(configured, None) == Path("/configured")
    assert chosen_data_dir(configured, Path("/named")) == Path("/named")
    elsewhere = {"DATABASE_URL": "postgresql://h/d", "SUREHOOK_ROLE_SECRET": "s" * 40}
    assert chosen_data_dir(load(Path(os.devnull), elsewhere), None) is None
    with pytest.raises(UsageError, match=r"database\.url in DATABASE_URL"):
        chosen_data_dir(load(Path(os.devnull), elsewhere), Path("/named"))


def test_its_first_line_says_where_its_data_lies(home: Path) -> None:
    with development(home, "--data-dir", str(home / "named")) as running:
        first = running.said.splitlines()[0]
        assert first == f"surehook: starting the database in {home / 'named'} …"
    assert (home / "named" / "postgres").is_dir() and not (home / "data").exists()


def test_data_of_another_version_is_named_with_a_way_out(home: Path) -> None:
    def surehook(*arguments: str) -> None:
        subprocess.run([*COMMAND, *arguments], env=environment(home), check=True, timeout=PATIENCE)

    surehook("migrate")
    surehook("db", "psql", "--", "-qc", "UPDATE schema_migrations SET checksum = 'other'")
    with started(home) as process:
        assert process.wait(PATIENCE) == 1
        assert process.stderr is not None
        refusal = process.stderr.read()
    assert f"The data is in {home / 'data'}; to begin anew name another --data-dir." in refusal


# ── One at a time ─────────────────────────────────────────────────────────────────────────────


def test_a_second_one_on_the_same_data_is_told_who_has_it_and_disturbs_nothing(home: Path) -> None:
    with development(home) as first, first.client() as client:
        before = client.subscriptions.get(1)
        with started(home) as second:
            assert second.wait(PATIENCE) == 3
            assert second.stderr is not None
            refusal = second.stderr.read()
        assert f"{home / 'data'} is in use by pid {first.process.pid} " in refusal
        assert refusal.count("\n") == 1
        assert client.subscriptions.get(1) == before
        assert first.end() == 0


def test_a_server_that_was_left_running_serves_one_dev_after_another(home: Path) -> None:
    def db(what: str) -> None:
        subprocess.run([*COMMAND, "db", what], env=environment(home), check=True, timeout=PATIENCE)

    db("start")
    try:
        for _ in range(2):
            with development(home) as running:
                assert running.end() == 0
    finally:
        db("stop")


def test_commands_find_it_while_it_runs_and_no_longer(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    with development(home) as running:
        (found,) = programs()
        assert (found.command, found.pid) == ("surehook dev", running.process.pid)
        assert (found.database, found.embedded) == (str(home / "data"), True)
        assert (found.api_url, found.kept_key) == (running.fact("API"), True)
        assert running.end() == 0
        assert programs() == []
