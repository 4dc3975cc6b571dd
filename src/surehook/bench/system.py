"""The system of one case: its database, the product's processes, the receiver.

Reads   /proc, the processes' logs, what the receiver counted
Writes  the case's database; logs and what the receiver saw, in the case's directory
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from surehook.bench import machine
from surehook.bench.cases import REST, Case, Figure, Plan, Run
from surehook.bench.ledger import Arrived, Ledger
from surehook.bench.rows import MysqlRows, PostgresRows, Rows
from surehook.bench.servers import Server
from surehook.config import Config, load
from surehook.delivery.secrets import Sealer, parse_keys
from surehook.errors import Unreachable
from surehook.receiver import certificates
from surehook.store import engine_of
from surehook.store.logins import Login

DONE_SECONDS_MAX = 600.0
LOOK_SECONDS = 0.02
CONNECT_SECONDS = 10.0
ADMIN_KEY = "shk_the-key-of-a-measurement-only"


def commands(case: Case, plan: Plan) -> dict[str, tuple[str, ...]]:
    """The product's processes by the name under which their CPU and memory are shown."""
    match case.run:
        case Run.SPLIT:
            rest = ("serve", "--components", REST, "--processes", "1")
            return {"worker": ("run", "worker"), "rest": rest}
        case Run.ONE:
            return {"serve": ("serve", "--processes", "1")}
        case Run.GROUP:
            return {"serve": ("serve", "--processes", str(plan.processes))}
        case Run.WHOLE:
            return {"serve": ("serve",)}
        case Run.API:
            return {"api": ("run", "api")}


class System:
    """From `async with` on everything runs; at its end nothing does."""

    def __init__(self, case: Case, plan: Plan, server: Server, directory: Path) -> None:
        self.case = case
        self.plan = plan
        self.ledger = Ledger()
        self.types: dict[str, list[int]] = {}
        self.installation = ""
        self.access = server.access
        self._server_pid = server.pid
        self._directory = directory
        self._files = certificates.kept(directory / "certificates")
        self._environment = self._settings()
        self.config: Config = load(Path(os.devnull), self._environment)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._receiver: asyncio.subprocess.Process | None = None
        self._stack = AsyncExitStack()
        self._rows: Rows | None = None

    def _settings(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if "SUREHOOK" not in key}
        ours: dict[str, object] = {
            "database_url": self.access.url,
            "role_secret": self.access.role_secret or "",
            "encryption_key": self.access.encryption_key or "",
            "ca_file": self._files.ca_file,
            "allow_networks": "127.0.0.0/8",
            "worker_concurrency": self.plan.concurrency,
            # A ceiling for all would hide what is measured.
            "limits_concurrency_cap": 1000,
            "retry_base_delay": "200ms",
            "log_level": "info" if self.case.run is not Run.SPLIT else self.plan.log_level,
            "log_format": "json",
            "listen": "127.0.0.1:0",
            "admin_key": ADMIN_KEY,
        }
        given = {f"SUREHOOK_{name.upper()}": str(value) for name, value in ours.items()}
        # Not for the user's commands to find.
        return {**kept, **given, "XDG_STATE_HOME": str(self._directory)}

    # ── Life ──────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _open(self) -> None:
        engine = engine_of(self.access.url)
        session = engine.session(Login("bench", self.access.url), CONNECT_SECONDS)
        connection: Any = await self._stack.enter_async_context(session)
        await engine.migrate(connection, role_secret=self.access.role_secret)
        self.installation = (await engine.read_state(connection)).installation
        rows = PostgresRows(connection) if engine.name == "PostgreSQL" else MysqlRows(connection)
        self._rows = rows
        if self._server_pid is None:
            self._server_pid = await rows.server_pid()
        if Figure.THROUGHPUT in self.case.figures:
            url = await self._receive()
            sealer = Sealer(parse_keys(self.access.encryption_key or ""))
            self.types = await rows.subscribe(self.case, url, sealer)
        if self.case.old_rows:
            await rows.grow_old(self.plan.old_rows)
        for name, words in commands(self.case, self.plan).items():
            self._processes[name] = self._start(name, words)

    def _start(self, name: str, words: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "surehook", *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def restart(self, name: str, number: signal.Signals) -> None:
        """End a process of the product by this signal, and start it again."""
        self._processes[name].send_signal(number)
        self._processes[name].wait()
        self._processes[name] = self._start(name, commands(self.case, self.plan)[name])

    async def _receive(self) -> str:
        """Start the receiver; its address."""
        self._receiver = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "surehook.bench.receiver"),
            *(str(self._files.server_file), str(self.case.failures_percent)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._receiver.stdout is not None
        return f"https://127.0.0.1:{int(await self._receiver.stdout.readline())}"

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait()
        if self._receiver is not None:
            assert self._receiver.stdin is not None
            self._receiver.stdin.close()
            await self._receiver.wait()
        await self._stack.aclose()

    # ── What it says ──────────────────────────────────────────────────────────────────────────

    @property
    def rows(self) -> Rows:
        assert self._rows is not None
        return self._rows

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def refuse_if_ended(self) -> None:
        """A process of the product that ends by itself ends the measurement."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                last = self.log(name).read_text(errors="replace").splitlines()[-1:]
                raise Unreachable(f"The process {name} ended: {' '.join(last)}")

    async def api_address(self) -> str:
        """As its log says, once it listens. (Needs lines of the level info.)"""
        end = time.monotonic() + DONE_SECONDS_MAX
        while time.monotonic() < end:
            self.refuse_if_ended()
            for name in self._processes:
                for line in self.log(name).read_text(errors="replace").splitlines():
                    if '"component":"api"' in line and '"component.started"' in line:
                        return str(json.loads(line)["listen"])
            await asyncio.sleep(LOOK_SECONDS)
        raise Unreachable("The API does not listen.")

    async def ask_receiver(self, question: str) -> int:
        assert self._receiver is not None
        assert self._receiver.stdin is not None and self._receiver.stdout is not None
        self._receiver.stdin.write(f"{question}\n".encode())
        return int(await self._receiver.stdout.readline())

    async def arrived(self) -> Mapping[str, Arrived]:
        """Everything that the receiver has seen."""
        file = self._directory / "arrived.json"
        await self.ask_receiver(f"dump {file}")
        found: dict[str, list[float]] = json.loads(file.read_text())
        return {
            key: Arrived(int(posts), int(accepted), first_at)
            for key, (posts, accepted, first_at) in found.items()
        }

    async def done(self) -> None:
        """All that is owed has arrived, and its result is applied."""
        end = time.monotonic() + DONE_SECONDS_MAX
        # The database is asked only when nothing is left to arrive: asking must cost nothing.
        while await self.ask_receiver("count") < len(self.ledger.owed) or (
            await self.rows.are_unfinished()
        ):
            self.refuse_if_ended()
            if time.monotonic() > end:
                return  # the ledger says what is missing
            await asyncio.sleep(LOOK_SECONDS)

    # ── What it costs ─────────────────────────────────────────────────────────────────────────

    def cpu(self) -> dict[str, int]:
        """Microseconds so far; of the database only where its processes are here to be seen."""
        used = {
            name: machine.cpu_microseconds(machine.children(process.pid))
            for name, process in self._processes.items()
        }
        if self._server_pid is not None:
            below = machine.children(self._server_pid)
            used = {"database": machine.cpu_microseconds(below), **used}
        return used

    def receiver_cpu(self) -> int:
        """Not ours: what the other side costs."""
        return machine.cpu_microseconds([self._receiver.pid]) if self._receiver else 0

    def memory(self) -> dict[str, float]:
        """Megabytes: of each process the most, of the database what it holds now."""
        held = {}
        for name, process in self._processes.items():
            pids = machine.children(process.pid)
            for number, pid in enumerate(pids, 1):
                label = name if len(pids) == 1 else f"{name}-{number}"
                held[label] = machine.memory_megabytes(pid)
        if self._server_pid is not None:
            held["database"] = machine.shared_megabytes(machine.children(self._server_pid))
        return held
