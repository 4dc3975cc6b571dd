"""serve and run: what they refuse before anything starts, and how they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import Configure, servers
from support.api import FLAGS
from support.http import Client
from support.pipeline import running
from support.rows import a_subscription, an_event
from support.waiting import PATIENCE, PATIENT, until
from surehook.store.logins import DatabaseAccess


def environment(access: DatabaseAccess, **others: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if "SUREHOOK" not in name}
    return {
        **kept,
        **PATIENT,
        "SUREHOOK_DATABASE_URL": access.url,
        "SUREHOOK_ROLE_SECRET": access.role_secret or "",
        "SUREHOOK_ENCRYPTION_KEY": servers.ENCRYPTION_KEY,
        **others,
    }


def surehook(*arguments: str, env: dict[str, str], cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "surehook", *arguments],
        env=env,
        cwd=cwd,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def started(process: subprocess.Popen[str]) -> Iterator[str]:
    """The names of components as they report that they run."""
    assert process.stderr is not None
    for line in process.stderr:
        fact = json.loads(line)
        if fact["event"] == "component.started":
            yield fact["component"]


async def test_a_server_that_forgets_acknowledged_writes_is_refused(
    access: DatabaseAccess, tmp_path: Path
) -> None:
    """The tests' own server runs without fsync."""
    process = surehook("serve", env=environment(access), cwd=tmp_path)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "fsync" in err and len(err.splitlines()) == 1 and out == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_components_run_until_a_signal_and_then_drain(
    access: DatabaseAccess, tmp_path: Path, number: signal.Signals
) -> None:
    env = environment(access, SUREHOOK_DATABASE_ALLOW_UNSAFE="on")
    process = surehook("serve", "--components", "router,cleaner", env=env, cwd=tmp_path)
    names = started(process)
    assert {next(names), next(names)} == {"router", "cleaner"}
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    ended = [json.loads(line) for line in err.splitlines()]
    assert sum(fact["event"] == "component.stopped" for fact in ended) == 2


async def test_the_log_says_which_database_is_used_and_where_the_api_listens(
    access: DatabaseAccess, tmp_path: Path
) -> None:
    env = environment(access, SUREHOOK_DATABASE_ALLOW_UNSAFE="on", SUREHOOK_LISTEN="127.0.0.1:0")
    process = surehook("run", "api", env=env, cwd=tmp_path)
    assert process.stderr is not None
    first, second = (json.loads(process.stderr.readline()) for _ in range(2))
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert first["event"] == "process.started" and first["components"] == ["api"]
    assert first["database"].startswith("postgresql://")
    assert first["installation"] and first["installation"] == second["installation"]
    assert second["component"] == "api" and second["listen"].startswith("127.0.0.1:")


async def test_an_unknown_component_is_refused_with_the_list(
    access: DatabaseAccess, tmp_path: Path
) -> None:
    process = surehook("run", "rooter", env=environment(access), cwd=tmp_path)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "no component rooter" in err and "router" in err


async def test_a_database_without_the_schema_is_refused_with_the_command(
    empty_url: str, postgres: servers.Server, tmp_path: Path
) -> None:
    access = DatabaseAccess(empty_url, postgres.role_secret)
    env = environment(access, SUREHOOK_DATABASE_ALLOW_UNSAFE="on")
    process = surehook("run", "router", env=env, cwd=tmp_path)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "surehook migrate" in err


# ── Health and figures of every process ───────────────────────────────────────────────────────


def listening(process: subprocess.Popen[str]) -> str:
    """Where a process says that it serves them."""
    assert process.stderr is not None
    for line in process.stderr:
        fact = json.loads(line)
        if fact["event"] == "observe.listening":
            return str(fact["listen"])
    raise AssertionError("it does not listen")


async def test_a_process_without_the_api_serves_its_own_health_and_figures(
    access: DatabaseAccess, tmp_path: Path, owner: Any
) -> None:
    env = environment(access, SUREHOOK_DATABASE_ALLOW_UNSAFE="on")
    process = surehook("run", "router", env=env, cwd=tmp_path)
    try:
        client = Client(listening(process))
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        ready = await client.get("/readyz")
        assert ready.status == 200
        assert ready.json()["checks"] == {"database": "ok", "router": "ok"}
        await a_subscription(owner, event_type="order.paid")
        await an_event(owner, event_type="order.paid")

        async def routed() -> bool:
            figures = (await client.get("/metrics")).body
            return b'surehook_facts_total{fact="saga.created"} 1.0' in figures

        await until(routed)
        assert b"surehook_backlog{" not in (await client.get("/metrics")).body
        assert (await client.get("/v1/events")).status == 404
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


async def test_an_address_for_health_that_is_taken_is_refused_in_one_line(
    access: DatabaseAccess, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        env = environment(
            access, SUREHOOK_DATABASE_ALLOW_UNSAFE="on", SUREHOOK_OBSERVE_LISTEN=address
        )
        process = surehook("run", "cleaner", env=env, cwd=tmp_path)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    last = err.splitlines()[-1]
    assert last.startswith("surehook: ") and address in last and "SUREHOOK_OBSERVE_LISTEN" in last


async def test_health_is_not_served_where_it_is_switched_off(
    access: DatabaseAccess, configure: Configure
) -> None:
    async with running(configure({"observe.listen": "off"}), access, ("router",)) as process:
        assert process.listener is None
    async with running(configure(FLAGS), access, ("api",)) as process:
        assert process.listener is None  # the API serves it
    flags = {**FLAGS, "observe.listen": "127.0.0.1:0"}
    async with running(configure(flags), access, ("api",)) as process:
        assert process.listener is not None
        assert (await Client(process.listener.address).get("/metrics")).status == 200
