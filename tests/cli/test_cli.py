"""The command line as a user meets it: processes, output, exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.servers import Server, private_directory
from support.waiting import PATIENCE
from surehook import __version__
from surehook.cli import COMMANDS
from surehook.cli.config import default_file
from surehook.config.settings import SETTINGS
from surehook.embedded.server import EmbeddedServer
from surehook.store.migrations import migrations

COMMAND = [sys.executable, "-m", "surehook"]
HEAVY = ("asyncpg", "rich", "cryptography", "uvloop", "httptools", "pycares", "asyncio", "sqlglot")


def environment(**settings: str) -> dict[str, str]:
    """Nothing of ours but what a test sets."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SUREHOOK_") and name != "DATABASE_URL"
    }
    return {**kept, "SUREHOOK_CONFIG": os.devnull, **settings}


def surehook(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with private_directory() as directory:
        yield directory / "data"


# ── Help, version, mistakes ───────────────────────────────────────────────────────────────────


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    program = (
        "import sys; from surehook.__main__ import run; code = run(['--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules], code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    *lines, last = done.stdout.splitlines()
    assert last == "[] 0", done.stderr
    for name, summary in COMMANDS.items():
        assert any(line.split() == [name, *summary.split()] for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(name: str) -> None:
    done = surehook(name, "--help", env=environment())
    assert done.returncode == 0 and f"Usage: surehook {name}" in done.stdout


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    for words, meant in (
        (["pubish"], "publish"),
        (["dead-leter"], "dead-letter"),
        (["dead-letter", "reqeue"], "requeue"),
    ):
        done = surehook(*words, env=environment())
        said = f"No such command {words[-1]!r}. Did you mean {meant}?"
        assert done.returncode == 2 and said in done.stderr
    assert "Did you mean" not in surehook("xyzzy", env=environment()).stderr


def test_the_version_is_that_of_the_package() -> None:
    done = surehook("--version", env=environment())
    assert (done.returncode, done.stdout) == (0, f"surehook {__version__}\n")


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["migrate", "--nonsense"], ["migrate", "--status", "--sql"]]
)
def test_wrong_use_is_exit_2_with_a_hint(arguments: list[str]) -> None:
    done = surehook(*arguments, env=environment())
    assert done.returncode == 2 and "Usage: surehook" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_the_configuration_is_one_plain_line_and_exit_2() -> None:
    done = surehook("doctor", env=environment(SUREHOOK_BUCKETS="many"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "surehook: database.buckets must be a whole number from 1 to 256, not 'many' "
        "(SUREHOOK_BUCKETS).\n"
    )


def test_a_person_at_a_terminal_gets_colour() -> None:
    terminal, side = pty.openpty()
    try:
        subprocess.run(
            [*COMMAND, "doctor"], env=environment(SUREHOOK_BUCKETS="many"), stderr=side, check=False
        )
        assert b"\x1b[31m" in os.read(terminal, 10_000)
    finally:
        os.close(terminal)
        os.close(side)


def test_a_database_that_does_not_answer_is_exit_3() -> None:
    url = "postgresql://somebody:sesame@127.0.0.1:1/anything"
    env = environment(SUREHOOK_DATABASE_URL=url, SUREHOOK_ROLES="off")
    for command in ("migrate", "doctor"):
        done = surehook(command, env=env)
        assert done.returncode == 3 and done.stderr.count("\n") == 2
        which = "postgresql://somebody:…@127.0.0.1:1/anything (SUREHOOK_DATABASE_URL)"
        assert done.stderr.startswith(f"system: {which}\n")
        assert "The database does not answer" in done.stderr and "sesame" not in done.stderr


async def test_ctrl_c_is_exit_130_without_a_traceback() -> None:
    waiting = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting.set()
        await reader.read()  # until it hangs up
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        url = f"postgresql://x@127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
        env = environment(
            SUREHOOK_DATABASE_URL=url, SUREHOOK_ROLES="off", SUREHOOK_DATABASE_CONNECT_TIMEOUT="60"
        )
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "doctor", env=env, stderr=subprocess.PIPE
        )
        await asyncio.wait_for(waiting.wait(), PATIENCE)
        process.send_signal(signal.SIGINT)
        _, said = await asyncio.wait_for(process.communicate(), PATIENCE)
        server.close()
    assert process.returncode == 130 and b"Traceback" not in said


def test_a_reader_that_has_seen_enough_is_left_in_peace() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND, "config"], env=environment(), stdout=writing, stderr=subprocess.PIPE
        )
    finally:
        os.close(writing)
    assert done.stderr == b""


# ── config ────────────────────────────────────────────────────────────────────────────────────


def test_config_shows_every_setting_its_value_and_its_source() -> None:
    env = environment(SUREHOOK_LISTEN="0.0.0.0:80")
    done = surehook("config", env=env)
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert set(lines) == {setting.key for setting in SETTINGS}
    assert lines["api.listen"] == ['"0.0.0.0:80"', "SUREHOOK_LISTEN"]
    shown = json.loads(surehook("config", "--json", env=env).stdout)
    assert shown["api.listen"] == {"value": '"0.0.0.0:80"', "source": "SUREHOOK_LISTEN"}
    assert shown["worker.lease_duration"] == {"value": '"30s"', "source": "default"}


def test_config_never_shows_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "surehook.toml"
    file.write_text(
        '[database]\nurl = "postgresql://u:sesame@h/d"\nrole_secret = "sesame sesame sesame"\n'
        '[database.urls]\nrouter = "postgresql://r:sesame@h/d"\n'
        '[delivery]\nencryption_key = "sesame sesame sesame sesame sesame"\n'
        '[api]\nadmin_key = "sesame sesame sesame sesame"\n'
    )
    for arguments in (["config"], ["config", "--json"]):
        done = surehook("--config", str(file), *arguments, env=environment())
        assert done.returncode == 0 and "sesame" not in done.stdout + done.stderr
        assert "postgresql://u:…@h/d" in done.stdout and "(set, hidden)" in done.stdout


def test_the_default_file_can_be_printed() -> None:
    done = surehook("config", "--default", env=environment())
    assert done.stdout == default_file()


# ── migrate and db on the embedded server ─────────────────────────────────────────────────────


def test_migrate_starts_the_embedded_server_for_as_long_as_it_needs_it(data_dir: Path) -> None:
    env = environment(SUREHOOK_DATA_DIR=str(data_dir))
    done = surehook("migrate", "--status", "--json", env=env)
    assert done.returncode == 3 and "There is no database" in done.stderr
    assert not data_dir.exists()
    done = surehook("migrate", env=env)
    assert done.returncode == 0, done.stderr
    assert "applied 0001 tables\n" in done.stdout and "created the logins' roles" in done.stdout
    assert EmbeddedServer(data_dir).holder is None
    done = surehook("migrate", env=env)
    assert (done.returncode, done.stdout) == (0, "The database is up to date.\n")
    done = surehook("migrate", "--status", env=env)
    lines = [f"applied {one.version:04} {one.name}" for one in migrations("postgres")]
    assert (done.returncode, done.stdout.splitlines()) == (0, lines)


def test_db_takes_the_data_directory_from_the_configuration_file(
    tmp_path: Path, data_dir: Path
) -> None:
    file = tmp_path / "surehook.toml"
    file.write_text(f'[database]\ndata_dir = "{data_dir}"\n')
    done = surehook("--config", str(file), "db", "status", "--json", env=environment())
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout) == {"data_dir": str(data_dir), "running": False}
    # The environment wins over the file, and a URL for other commands is no obstacle.
    env = environment(SUREHOOK_DATA_DIR="/elsewhere", DATABASE_URL="postgresql://h/d")
    done = surehook("--config", str(file), "db", "status", "--json", env=env)
    assert json.loads(done.stdout)["data_dir"] == "/elsewhere"


async def test_migrate_prints_sql_without_running_it(postgres: Server, empty_url: str) -> None:
    env = environment(
        SUREHOOK_DATABASE_URL=empty_url,
        SUREHOOK_ROLE_SECRET=postgres.role_secret,
        SUREHOOK_BUCKETS="4",
    )
    done = await asyncio.to_thread(surehook, "migrate", "--sql", env=env)
    assert done.returncode == 0 and "PARTITION BY LIST (bucket)" in done.stdout
    assert postgres.role_secret not in done.stdout
    done = await asyncio.to_thread(surehook, "migrate", "--status", env=env)
    assert done.returncode == 1 and "missing 0001 tables" in done.stdout
