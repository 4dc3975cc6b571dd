"""The program as it was before its newest migration, taken from this repository's history.

Reads   git      Writes  a directory of the test's own
"""

from __future__ import annotations

import io
import re
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


def before_newest_migration(engine: str) -> str:
    """The last commit that lacked the newest migration of this engine."""
    file = _newest_file(engine)
    came_with = _git("log", "-1", "--format=%H", "--diff-filter=A", "--", file).decode().strip()
    if not came_with:
        raise NoHistory(f"git knows no commit that added {file}")
    return _git("rev-parse", "--verify", f"{came_with}^").decode().strip()


def unpack_previous(engine: str, into: Path) -> None:
    """The source of that commit."""
    archive = _git("archive", before_newest_migration(engine), "src")
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(into, filter="data")
    assert not (into / _newest_file(engine)).exists()


def _newest_file(engine: str) -> str:
    newest = migrations(engine)[-1]
    return f"src/surehook/store/{engine}/migrations/{newest.version:04}_{newest.name}.sql"


class Previous:
    """That source, unpacked, and what its programs are started with."""

    def __init__(self, engine: str, into: Path) -> None:
        unpack_previous(engine, into)
        self.schema_version = migrations(engine)[-1].version - 1
        self._source = into / "src"
        self._known = self._known_variables()

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """As given, for this source, without the settings that came after it."""
        kept = {name: value for name, value in env.items() if self._knows(name)}
        return {**kept, "PYTHONPATH": str(self._source)}

    def _knows(self, name: str) -> bool:
        ours = name.startswith("SUREHOOK_") and not name.startswith("SUREHOOK_TEST_")
        return not ours or name in self._known

    def _known_variables(self) -> set[str]:
        """Its default configuration names them all."""
        shown = subprocess.run(
            [sys.executable, "-m", "surehook", "config", "--default"],
            env={"PYTHONPATH": str(self._source)},
            capture_output=True,
            check=True,
        )
        return {"SUREHOOK_CONFIG", *re.findall(r"SUREHOOK_[A-Z_]+", shown.stdout.decode())}


def _git(*arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        raise NoHistory(said.decode().strip()) from None
    return done.stdout


class Program:
    """`surehook …` of the source that its environment leads to; its log goes to a file."""

    def __init__(self, env: Mapping[str, str], log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "surehook", *arguments],
                env=dict(env),
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
