"""The program as it was before its newest migration, taken from this repository's history.

Reads   git      Writes  a directory of the test's own
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from support.waiting import until
from surehook.store.migrations import migrations

ROOT = Path(__file__).parents[2]


class NoHistory(Exception):
    """There is no older program here: not a clone, or one without its history."""


def unpack_previous(engine: str, into: Path) -> None:
    """The source of the last commit that lacked the newest migration of this engine."""
    newest = migrations(engine)[-1]
    file = f"src/surehook/store/{engine}/migrations/{newest.version:04}_{newest.name}.sql"
    came_with = _git("log", "-1", "--format=%H", "--diff-filter=A", "--", file).decode().strip()
    if not came_with:
        raise NoHistory(f"git knows no commit that added {file}")
    archive = _git("archive", f"{came_with}^", "src")
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(into, filter="data")
    assert not (into / file).exists()


def _git(*arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        raise NoHistory(said.decode().strip()) from None
    return done.stdout


class Program:
    """`surehook …` as a source tree has it; its log goes to a file."""

    def __init__(self, source: Path, env: Mapping[str, str], log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "surehook", *arguments],
                env={**env, "PYTHONPATH": str(source)},
                stdout=out,
                stderr=out,
            )

    def text(self) -> str:
        return self._log.read_text()

    async def ended(self) -> None:
        """Well, or the test has failed."""
        await until(lambda: self.process.poll() is not None)
        assert self.process.returncode == 0, self.text()[-4000:]

    async def started(self, components: int) -> None:
        await until(lambda: self.text().count('"component.started"') == components, what=self.text)

    async def stop(self) -> None:
        assert self.process.poll() is None, self.text()[-4000:]
        self.process.terminate()
        await self.ended()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
