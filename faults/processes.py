"""Processes of the product as an operator starts them: `surehook run worker`, `surehook serve`.

Reads   their log files
Writes  one log file each, in the world's directory
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.waiting import until

START_SECONDS_MAX = 120.0


class Program:
    """One process of ours. Each start of the same name writes to the same log."""

    def __init__(
        self, name: str, arguments: tuple[str, ...], env: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.env = dict(env)
        self.log = log
        self.address = env.get("SUREHOOK_LISTEN", "")  # of its API, if it has one
        self.wanted = True  # False once we end it ourselves
        self.process: subprocess.Popen[bytes] | None = None
        self._begins_at = 0  # in the log

    @property
    def component(self) -> str:
        return self.arguments[-1]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self.process is None else self.process.poll()

    @property
    def broke(self) -> bool:
        """It ended, and we did not end it."""
        return self.wanted and self.process is not None and not self.is_running

    # ── Life ──────────────────────────────────────────────────────────────────────────────────

    def launch(self) -> None:
        assert not self.is_running
        self.wanted = True
        with self.log.open("ab") as log:
            self._begins_at = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "surehook", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,  # Ctrl-C is for the harness
            )

    async def started(self, components: int = 1) -> None:
        """Until so many components are at work."""

        def at_work() -> bool:
            if not self.is_running:
                raise RuntimeError(f"{self.name} ended at its start: {self.last_words()}")
            return self._said().count(b'"component.started"') >= components

        await until(at_work, START_SECONDS_MAX, self.last_words)

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    async def ended(self, seconds: float = START_SECONDS_MAX) -> int:
        await until(lambda: not self.is_running, seconds, self.last_words)
        assert self.exit_code is not None
        return self.exit_code

    async def kill(self) -> None:
        self.wanted = False
        self.send(signal.SIGKILL)
        await self.ended()

    async def terminate(self) -> float:
        """SIGTERM; the seconds that it took to end."""
        self.wanted = False
        began = time.monotonic()
        self.send(signal.SIGTERM)
        await self.ended()
        return time.monotonic() - began

    # ── What it said ──────────────────────────────────────────────────────────────────────────

    def _said(self) -> bytes:
        """Since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._begins_at)
            return log.read()

    def last_words(self) -> str:
        lines = self._said().decode(errors="replace").splitlines()
        return " | ".join(lines[-5:])

    def facts(self, *names: str) -> Iterator[dict[str, Any]]:
        """The lines of its log, of all its starts, that report one of these."""
        for line in self.log.read_text(errors="replace").splitlines():
            if any(f'"{name}"' in line for name in names) and line.startswith("{"):
                try:
                    found = json.loads(line)
                except json.JSONDecodeError:  # cut off by a kill
                    continue
                if found.get("event") in names:
                    yield found


async def run_command(arguments: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, str, str]:
    """One of our commands to its end: exit code, output, errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "surehook", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(env),
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
