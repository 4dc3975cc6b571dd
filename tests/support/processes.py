"""Components as processes of their own, started, watched, killed and stopped by a test.

Reads   their log lines
Writes  nothing
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from support import certificates, clock
from support.waiting import PATIENCE, PATIENT, until
from surehook.store.logins import DatabaseAccess

TESTS = Path(__file__).parent.parent


def environment(access: DatabaseAccess, **settings: object) -> dict[str, str]:
    """Their configuration: environment(access, retry_base_delay="50ms", …)."""
    kept = {name: value for name, value in os.environ.items() if "SUREHOOK" not in name}
    return {
        **kept,
        **PATIENT,
        "PYTHONPATH": str(TESTS),
        "SUREHOOK_CONFIG": os.devnull,
        "SUREHOOK_DATABASE_URL": access.url,
        "SUREHOOK_ROLE_SECRET": access.role_secret or "",
        "SUREHOOK_ENCRYPTION_KEY": access.encryption_key or "",
        "SUREHOOK_ALLOW_NETWORKS": "127.0.0.0/8",
        "SUREHOOK_CA_FILE": str(certificates.ca_file()),
        "SUREHOOK_LOG_FORMAT": "json",
        **{f"SUREHOOK_{name.upper()}": str(value) for name, value in settings.items()},
        **clock.environment(access.url),
    }


class Child:
    """One process; its log goes to a file of its own."""

    def __init__(
        self, arguments: list[str], env: Mapping[str, str], module: str = "support.child"
    ) -> None:
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], env=dict(env), stderr=self.log
        )

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def tell(self, number: int) -> None:
        if not self.ended:
            self.process.send_signal(number)

    async def exit(self, timeout: float = PATIENCE) -> int:
        await until(lambda: self.ended, timeout, lambda: self.text()[-2000:])
        return self.process.returncode

    async def started(self, components: int = 1) -> None:
        """Until so many components are at work (or it is dead)."""
        await until(lambda: self.ended or len(self.facts("component.started")) == components)

    async def stop(self) -> None:
        """SIGTERM: it drains and ends well."""
        self.tell(signal.SIGTERM)
        assert await self.exit() == 0, self.text()[-4000:]

    async def kill(self) -> None:
        self.tell(signal.SIGKILL)
        await self.exit()

    def text(self) -> str:
        # Parent and child share the file's position: reading with it would move where the child
        # writes, so read without it.
        number = self.log.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode()

    def lines(self) -> list[dict[str, Any]]:
        """Its log so far; a last line that is only half written is left out."""
        text = self.text()
        whole = [line for line in text.splitlines(True) if line.endswith("\n")]
        assert all(line.startswith("{") for line in whole), f"not a log: {text[-4000:]}"
        return [json.loads(line) for line in whole]

    def facts(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["event"] == name]


@contextmanager
def children() -> Iterator[Any]:
    """start(arguments, environment[, module]) → Child; whatever is left at the end is killed."""
    started: list[Child] = []

    def start(arguments: list[str], env: Mapping[str, str], *module: str) -> Child:
        child = Child(arguments, env, *module)
        started.append(child)
        return child

    try:
        yield start
    finally:
        for child in started:
            if not child.ended:
                child.process.kill()
            child.process.wait()
            child.log.close()
