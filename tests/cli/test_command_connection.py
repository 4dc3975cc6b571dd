"""Which API a command calls, with whose key, and what it says when that does not work."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.api import ADMIN_KEY
from support.commands import Command, run_command
from support.rows import a_dead_letter, a_saga
from surehook.cli.connection import is_this_machine
from surehook.process.running import noted

NOBODY = "http://127.0.0.1:1"


async def test_options_win_over_variables(command: Command) -> None:
    wrong = {"SUREHOOK_URL": NOBODY, "SUREHOOK_API_KEY": "shk_wrong"}
    options = ("--url", command.env["SUREHOOK_URL"], "--api-key", ADMIN_KEY)
    assert (await command("event", "list", *options, env=wrong)).code == 0


async def test_the_address_and_key_of_the_configuration_are_used_where_nothing_else_is_given(
    command: Command, tmp_path: Path
) -> None:
    nothing = {"SUREHOOK_URL": "", "SUREHOOK_API_KEY": ""}
    listen = command.env["SUREHOOK_URL"].removeprefix("http://")
    file = tmp_path / "surehook.toml"
    file.write_text(f'[api]\nlisten = "{listen}"\nadmin_key = "{ADMIN_KEY}"\n')
    # A database that is not fully configured does not matter to a client.
    env = {**nothing, "DATABASE_URL": "postgresql://h/d"}
    assert (await command("--config", str(file), "event", "list", env=env)).code == 0


async def test_the_development_key_is_the_last_resort_on_this_machine(
    command: Command, tmp_path: Path
) -> None:
    key = tmp_path / "surehook" / "dev" / "key"
    key.parent.mkdir(parents=True)
    key.write_text(ADMIN_KEY + "\n")
    env = {"SUREHOOK_API_KEY": ""}
    without = await command("event", "list", env=env)  # no `dev` serves there
    assert without.code == 2 and "There is no key" in without.err
    with a_dev(command, kept_key=True):
        assert (await command("event", "list", env=env)).code == 0
        key.write_text("shk_of_another_database")
        refused = await command("event", "list", env=env)
        assert refused.code == 1 and "401" in refused.err
        assert "The key is from `surehook dev`." in refused.err
        for url in ("http://surehook.example", "http://127.0.0.1.example:8080", NOBODY):
            away = await command("event", "list", "--url", url, env=env)
            assert away.code == 2 and f"There is no key for the API at {url} (--url)." in away.err
    with a_dev(command, kept_key=False):  # its key was given to it from outside
        assert (await command("event", "list", env=env)).code == 2


@contextmanager
def a_dev(command: Command, kept_key: bool) -> Iterator[None]:
    """What a `surehook dev` at the address of this test's API would leave for commands to find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", command.env["XDG_STATE_HOME"])
        with noted("surehook dev", "postgresql://h/d", embedded=False) as note:
            note.serves(command.env["SUREHOOK_URL"].removeprefix("http://"), kept_key)
            yield


async def test_a_dev_that_runs_is_found_unless_an_address_is_configured(command: Command) -> None:
    with a_dev(command, kept_key=False):
        await found_unless_an_address_is_configured(command)


async def found_unless_an_address_is_configured(command: Command) -> None:
    found = await command("event", "list", env={"SUREHOOK_URL": ""})
    assert found.code == 0
    assert found.system == f"{command.env['SUREHOOK_URL']} (`surehook dev` runs there)"
    configured = {"SUREHOOK_URL": "", "SUREHOOK_LISTEN": NOBODY.removeprefix("http://")}
    elsewhere = await command("event", "list", env=configured)
    assert elsewhere.code == 3 and f"{NOBODY} (api.listen in SUREHOOK_LISTEN)" in elsewhere.err


def test_the_key_of_the_configuration_is_not_sent_to_another_api(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "SUREHOOK_ADMIN_KEY": ADMIN_KEY}
    done = run_command(("event", "list", "--url", "https://surehook.example"), env)
    assert done.code == 2 and "--api-key" in done.err and ADMIN_KEY not in done.err
    assert run_command(("event", "list", "--url", NOBODY), env).code == 3


def test_without_a_key_one_line_says_what_to_do(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    done = run_command(("event", "list", "--url", NOBODY), env)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"surehook: There is no key for the API at {NOBODY} (--url). Give --api-key or set "
        "SUREHOOK_API_KEY; `surehook key create` makes one.\n"
    )
    nothing = run_command(("event", "list"), {**env, "SUREHOOK_LISTEN": "127.0.0.1:1"})
    assert (nothing.code, nothing.out) == (3, "")
    assert nothing.err == (
        f"surehook: No surehook runs here, and nothing answers at {NOBODY} (api.listen in "
        "SUREHOOK_LISTEN). `surehook dev` and `surehook serve` start one; --url names one "
        "elsewhere.\n"
    )


def test_nobody_there_is_exit_3_with_the_address_and_where_it_came_from() -> None:
    env = {"SUREHOOK_URL": NOBODY, "SUREHOOK_API_KEY": "shk_secret"}
    done = run_command(("delivery", "list"), env)
    assert (done.code, done.out) == (3, "") and done.err.count("\n") == 1
    assert f"Is the API running at {NOBODY} (SUREHOOK_URL)?" in done.err
    assert "shk_secret" not in done.err
    lost = run_command(("publish", "order.paid", "{}", "--external-id", "x1"), env)
    assert lost.code == 3 and "--external-id x1" in lost.err


def test_the_variables_of_the_client_do_not_disturb_other_commands() -> None:
    names = ("SUREHOOK_URL", "SUREHOOK_API_KEY", "SUREHOOK_SECRET")
    done = run_command(("config",), dict.fromkeys(names, "sesame"))
    assert done.code == 0 and "sesame" not in done.out + done.err


@pytest.mark.parametrize("key", ["shk_x", ""])
@pytest.mark.parametrize("url", ["ftp://h", "surehook.example", "http://u:p@h"])
def test_an_address_that_is_none_is_exit_2_with_or_without_a_key(url: str, key: str) -> None:
    done = run_command(("event", "list"), {"SUREHOOK_URL": url, "SUREHOOK_API_KEY": key})
    assert done.code == 2
    assert "The API's address (SUREHOOK_URL) must look like https://" in done.err


async def test_https_to_an_api_that_speaks_http_says_to_try_that(command: Command) -> None:
    plain = command.env["SUREHOOK_URL"]
    done = await command("event", "list", "--url", plain.replace("http:", "https:"))
    assert done.code == 3 and f"If not, try {plain} (--url)." in done.err


async def test_another_program_at_the_address_is_exit_3() -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>")
        writer.close()

    server = await asyncio.start_server(page, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        env = {"SUREHOOK_URL": url, "SUREHOOK_API_KEY": "shk_x"}
        done = await asyncio.to_thread(run_command, ("event", "show", "1"), env)
        assert done.code == 3 and f"Is {url} (SUREHOOK_URL) the address" in done.err


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://localhost", True),
        ("http://[::1]:80", True),
        ("http://127.0.0.1.example", False),
        ("http://10.0.0.1", False),
        ("http://[", False),
    ],
)
def test_only_loopback_is_this_machine(url: str, here: bool) -> None:
    assert is_this_machine(url) is here


# ── Terminals and shells ──────────────────────────────────────────────────────────────────────


def at_terminal(arguments: list[str], env: Mapping[str, str], typed: str = "") -> str:
    """What a person sees who types this."""
    terminal, side = pty.openpty()
    try:
        os.write(terminal, typed.encode())
        subprocess.run(
            [sys.executable, "-m", "surehook", *arguments],
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **env},
            stdin=side,
            stdout=side,
            stderr=side,
            check=True,
        )
        return os.read(terminal, 100_000).decode()
    finally:
        os.close(terminal)
        os.close(side)


async def test_a_person_at_a_terminal_gets_a_table_with_colours(
    command: Command, owner: Any
) -> None:
    await a_saga(owner)
    env = {**command.env, "SUREHOOK_CONFIG": os.devnull}
    shown = await asyncio.to_thread(at_terminal, ["delivery", "list"], env)
    assert "attempts" in shown and "───" in shown
    assert "\x1b[33mPending\x1b[0m" in shown


async def test_a_person_is_asked_before_many_are_requeued(command: Command, owner: Any) -> None:
    number = await a_dead_letter(owner)
    env = {**command.env, "SUREHOOK_CONFIG": os.devnull}
    arguments = ["dead-letter", "requeue", "--all"]
    shown = await asyncio.to_thread(at_terminal, arguments, env, "y\n")
    assert "Requeue 1 dead letter? [y/N]" in shown and "1 dead letter requeued" in shown
    listed = (await command("dead-letter", "list", "--requeued", "--json")).json()
    assert listed["id"] == number


async def test_what_others_wrote_cannot_command_the_terminal(command: Command) -> None:
    payload = '"\\u001b[2J \x7f"'
    made = (await command("publish", "order.paid", payload, "--json")).json()
    done = await command("event", "show", str(made["id"]))
    assert "\x7f" not in done.out and "\\x7f" in done.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str) -> None:
    done = run_command(("completion", shell), {})
    assert done.code == 0 and "_SUREHOOK_COMPLETE" in done.out
    assert run_command(("completion", "cmd"), {}).code == 2


def test_the_shell_is_told_commands_and_options() -> None:
    def completed(words: str, number: int) -> list[str]:
        env = {
            **os.environ,
            "_SUREHOOK_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
        }
        told = subprocess.run(
            [sys.executable, "-m", "surehook"], env=env, capture_output=True, text=True
        )
        return [line.partition(",")[2] for line in told.stdout.splitlines()]

    assert completed("surehook de", 1) == ["dev", "delivery", "dead-letter"]
    assert "requeue" in completed("surehook dead-letter re", 2)
    assert completed("surehook delivery list --st", 3) == ["--status"]
    assert "Completed" in completed("surehook delivery list --status c", 4)
