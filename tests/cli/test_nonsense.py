"""Nonsense for every option, argument, setting and address: one clear line, never a traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from support.commands import Done, run_command
from support.commandtree import COMMANDS, with_arguments
from surehook.config.settings import SETTINGS
from surehook.embedded.server import EmbeddedServer
from surehook.errors import EmbeddedServerError

CODES = (0, 1, 2, 3)
LONG = "x" * 70_000
NONSENSE = (
    "",
    " ",
    "-1",
    "0",
    "²",
    "٣",
    "nan",
    "inf",
    "1e400",
    "9" * 25,
    "9" * 5000,
    "💥",
    "a\nb",
    "\x1b[31m",
    os.fsdecode(b"\xff\xfe"),
    "http://h:99999",
    "https://[",
    "https://[::1",
    "postgresql://h:99999/d",
    "2026-13-45T99:99:99Z",
    "9999-12-31",
    "0001-01-01",
    "{",
    "[" * 5000,
    "/",
    "/proc/self/mem",
    LONG,
)
ADDRESSES = (
    "http://h:99999",
    "http://h:-1",
    "http://h:x",
    "http://h:²",
    "http://[::1",
    "http://[::1]x:1",
    "http://:1",
    "http://h" + "x" * 300,
    "http://a..b",
    "http://h\n",
    "http://💥.example:1",
    "http://u:sesame@h:99999",
)
DATABASES = (
    "//h:99999/d",
    "//u:sesame@h:99999/d",
    "//h:-1/d",
    "//h:x/d",
    "//h:²/d",
    "//[::1/d",
    "//127.0.0.1:0/d",
    "//",
    "///",
    "//127.0.0.1:1",
    "//127.0.0.1:1/%zz%00",
    "//u:%ff@127.0.0.1:1/d",
    "//127.0.0.1:1/d?sslmode=odd&ssl-mode=odd",
    "//127.0.0.1:1/d?connect_timeout=odd",
    "//127.0.0.1:1/d?nonsense=1",
    "//127.0.0.1:1/d?port=99999",
    "//127.0.0.1:1/d?port=odd",
    "//127.0.0.1:1/d?host=/nowhere",
    "//127.0.0.1:1,127.0.0.1:99999/d",
    "//a..b:1/d",
    "//127.0.0.1:1/d?sslrootcert=/nowhere&sslmode=verify-full",
    "//127.0.0.1:1/d?ssl-ca=/nowhere&ssl-mode=VERIFY_CA",
)
NOWHERE = {"SUREHOOK_DATABASE_URL": "postgresql://127.0.0.1:1/d", "SUREHOOK_ROLES": "off"}
MEASURED = {"valid": True, "cases": {}, "not_run": {}, "normalised_by": "nothing"}
NOBODY = {"SUREHOOK_URL": "http://127.0.0.1:1", "SUREHOOK_API_KEY": "shk_x"}


@pytest.fixture(autouse=True)
def nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nonsense does not stop would start for good: a server, a receiver, a measurement."""

    def refuse(*_: object, **__: object) -> None:
        raise EmbeddedServerError("It is not started here.")

    def taken(*_: object, **__: object) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(EmbeddedServer, "start", refuse)
    monkeypatch.setattr(EmbeddedServer, "start_detached", refuse)
    monkeypatch.setattr("surehook.receiver.listen.Listener.__init__", taken)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between two tries of a call
    monkeypatch.setattr("surehook.bench.run", lambda *_: MEASURED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def said(arguments: tuple[str, ...], env: dict[str, str] | None = None) -> Done:
    """What came of it: an exit code and at most a few lines, whatever was asked."""
    try:
        done = run_command(arguments, {"HOME": os.getcwd(), **(env or {})})  # noqa: PTH109
    except Exception as error:
        shown = [one if len(one) < 200 else f"{one[:40]}… ({len(one)})" for one in arguments]
        raise AssertionError(f"{shown} {env}: {type(error).__name__}: {error}") from error
    assert done.code in CODES, (arguments, env, done)
    assert "Traceback" not in done.err + done.out
    assert "sesame" not in done.err + done.out + done.system, (arguments, env)
    if done.code in (2, 3) and "Usage:" not in done.err:
        assert len(done.err.splitlines()) == 1, (arguments, env, done.err)
    return done


def options(name: str) -> Iterator[click.Option]:
    """Those that many commands share, and --help, for one of them."""
    for one in COMMANDS[name].params:
        shared = one.name in ("url", "api_key") and name != "event list"
        if isinstance(one, click.Option) and not one.is_flag and not shared:
            yield one


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_nonsense_for_any_option_is_a_line_and_no_traceback(name: str) -> None:
    usual = with_arguments(name)
    for option in options(name):
        for value in NONSENSE:
            said((*usual, option.opts[-1], value), {**NOWHERE, **NOBODY})


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_nonsense_for_any_argument_is_a_line_and_no_traceback(name: str) -> None:
    arguments = [one for one in COMMANDS[name].params if isinstance(one, click.Argument)]
    required = [part for part in with_arguments(name, arguments=False)]
    for place in range(len(arguments)):
        for value in NONSENSE:
            given = ["1"] * place + [value] + ["1"] * (len(arguments) - place - 1)
            said((*required, "--", *given), {**NOWHERE, **NOBODY})


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: one.key)
def test_nonsense_for_any_setting_is_a_line_and_no_traceback(setting: Any) -> None:
    for value in NONSENSE:
        if "\0" not in value:
            said(("config",), {setting.variable: value})


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_that_is_none_is_one_line_and_exit_2_wherever_it_is_given(url: str) -> None:
    for env in ({"SUREHOOK_URL": url, "SUREHOOK_API_KEY": "shk_x"}, {"SUREHOOK_URL": url}):
        assert said(("event", "list"), env).code in (2, 3)
    host = url.removeprefix("http://").replace("sesame", "x")  # which is where no secret is
    said(("event", "list"), {"SUREHOOK_LISTEN": host, "SUREHOOK_API_KEY": "shk_x"})
    said(("serve",), {"SUREHOOK_LISTEN": host, **NOWHERE})
    said(("config",), {"SUREHOOK_DELIVERY_PROXY": url})
    said(("subscription", "create", "order.paid", url.replace("http:", "https:")))


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
@pytest.mark.parametrize("rest", DATABASES)
def test_a_database_url_that_is_none_is_one_line_for_every_command(scheme: str, rest: str) -> None:
    env = {"SUREHOOK_DATABASE_URL": f"{scheme}:{rest}", "SUREHOOK_ROLE_SECRET": "s" * 20}
    for name in ("config", "migrate", "doctor", "check", "key list", "serve", "run worker"):
        done = said(tuple(name.split()), env)
        assert name == "config" or done.code in (2, 3), (name, done)
        if ":99999" in rest or "99999" in rest:
            assert done.code == 2, (name, done)
