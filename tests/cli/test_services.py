"""health, init and what systemd hears: what containers and services need first."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support import Configure
from support.api import FLAGS
from support.commands import run_command
from support.pipeline import running
from support.processes import environment
from support.waiting import PATIENCE
from surehook.config import load
from surehook.process.notify import notify
from surehook.store.logins import DatabaseAccess

# ── health ────────────────────────────────────────────────────────────────────────────────────


async def test_health_is_exit_0_while_the_process_is_ready_and_1_when_it_drains(
    access: DatabaseAccess, configure: Configure
) -> None:
    async with running(configure(FLAGS), access, ("api",)) as process:
        assert process.api is not None
        asked = {"SUREHOOK_LISTEN": process.api.address}
        done = await asyncio.to_thread(run_command, ("health",), asked)
        assert (done.code, done.err) == (0, "")
        assert "warning: No worker has been seen lately" in done.out
        assert done.out.endswith("\nready\n")
        assert process._parts.vitals is not None
        process._parts.vitals.drain()
        done = await asyncio.to_thread(run_command, ("health",), asked)
        assert (done.code, done.out) == (1, "process: It is ending.\nnot ready\n")


async def test_health_asks_where_this_process_serves_it(
    access: DatabaseAccess, configure: Configure
) -> None:
    flags = {**FLAGS, "observe.listen": "127.0.0.1:0"}
    async with running(configure(flags), access, ("router",)) as process:
        assert process.listener is not None
        # One that listens on every interface is asked on this machine.
        port = process.listener.address.rpartition(":")[2]
        asked = {"SUREHOOK_OBSERVE_LISTEN": f"0.0.0.0:{port}"}
        done = await asyncio.to_thread(run_command, ("health",), asked)
        assert (done.code, done.out) == (0, "ready\n")


def test_health_of_nothing_is_unreachable_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    done = run_command(("health", "--address", address), {})
    assert (done.code, done.out) == (3, "")
    assert f"Nothing answers at {address}" in done.err


# ── init ──────────────────────────────────────────────────────────────────────────────────────


def test_init_prints_an_environment_that_is_accepted_and_new_every_time() -> None:
    files = [run_command(("init",), {}).out for _ in range(2)]
    first, second = (
        dict(line.split("=", 1) for line in text.splitlines() if line and line[0] != "#")
        for text in files
    )
    assert not set(first.values()) & set(second.values())
    loaded = load(Path(os.devnull), {**first, "SUREHOOK_DATABASE_URL": "postgresql://h/d"})
    for key in ("database.role_secret", "delivery.encryption_key", "api.admin_key"):
        assert len(loaded.text(key)) >= 64
    assert first["DATABASE_PASSWORD"].isalnum()  # it becomes a part of a URL


# ── systemd ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", [["run", "router"], ["serve", "--processes", "2"]])
async def test_systemd_hears_when_the_service_is_ready_and_when_it_ends(
    access: DatabaseAccess, tmp_path: Path, command: list[str]
) -> None:
    """Once each, of several processes too."""
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(tmp_path / "notify"))
    heard.settimeout(PATIENCE)
    env = environment(access, database_allow_unsafe="on", listen="127.0.0.1:0")
    env["NOTIFY_SOCKET"] = str(tmp_path / "notify")
    words = [sys.executable, "-m", "surehook", *command]
    process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, cwd=tmp_path)
    try:
        assert heard.recv(100) == b"READY=1"
        process.send_signal(signal.SIGTERM)
        assert heard.recv(100) == b"STOPPING=1"
        process.communicate(timeout=PATIENCE)
        heard.setblocking(False)
        with pytest.raises(BlockingIOError):
            heard.recv(100)
    finally:
        process.kill()
        process.communicate()
        heard.close()
    assert process.returncode == 0


def test_a_service_manager_that_is_gone_is_no_reason_to_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "@nobody-listens-there")
    notify("READY=1")
