"""Runs tests against one mutant after the other.

Reads   the repository
Writes  a copy of it in a temporary directory, in which each mutant is made and unmade

Each mutant's tests run in a child that is forked from a process that has imported pytest and the
drivers, but nothing of ours: it reads the copy as the mutant left it. So do programs that a test
starts. One database server per engine stays for the whole run; PostgreSQL's templates, which have
the triggers of the migrated program, get a mutant's triggers for as long as it takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

from tools.mutants.mutant import Mutant
from tools.mutants.targets import Engine, Target

REPOSITORY = Path(__file__).parents[2]
COPIED = ("src", "tests", "tools", "protocol", "pyproject.toml", "docs", "README.md")
# What is worth importing once instead of once per mutant: none of ours.
PRELOADED = ["pytest", "_pytest.assertion.rewrite", "trustme", "sqlglot", "msgspec"]
PRELOADED += ["asyncpg", "asyncmy", "cryptography.x509", "uvloop", "click", "rich.console"]
# … and, for mutants of SQL, of ours.
WARM = ("support.pipeline", "support.rows", "support.dialects", "support.receiver")
# Tests wait for what must come for as long as a slow machine may need: with a mutant it never does.
PATIENCE = ("tests/support/waiting.py", "PATIENCE = 300.0", "PATIENCE = 15.0")
TEST_SECONDS = 120
MUTANT_SECONDS = 1200
DATABASES = ("migrated_1", "migrated_4")

Outcome = Literal["killed", "survived", "timed out"]


@dataclass(frozen=True, slots=True)
class Result:
    mutant: Mutant
    outcome: Outcome
    by: str  # the test that noticed
    seconds: float


class TestsFail(Exception):
    """Without any mutant."""


# ── The servers ───────────────────────────────────────────────────────────────────────────────


class Servers:
    """One per engine, started when it is needed."""

    def __init__(self) -> None:
        self._known: dict[Engine, dict[str, str]] = {}
        self._keepers: list[subprocess.Popen[str]] = []

    def of(self, engine: Engine) -> dict[str, str]:
        if engine not in self._known:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tools.mutants.servers", engine],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._keepers.append(keeper)
            assert keeper.stdout is not None
            line = keeper.stdout.readline()
            if not line:
                raise SystemExit(f"No server of {engine}.")
            self._known[engine] = json.loads(line)
        return self._known[engine]

    def stop(self) -> None:
        for keeper in self._keepers:
            assert keeper.stdin is not None
            keeper.stdin.close()
            keeper.wait()


# ── The copy ──────────────────────────────────────────────────────────────────────────────────


class Copy:
    """The repository, in which one file at a time is a mutant's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in COPIED:
            source = REPOSITORY / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, directory / name, ignore=ignored)
            else:
                shutil.copy(source, directory / name)
        self._written = int(time.time())
        path, patient, impatient = PATIENCE
        text = (directory / path).read_text(encoding="utf-8")
        assert patient in text
        self.write(path, text.replace(patient, impatient))

    def read(self, path: str) -> str:
        return (self.directory / path).read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        """With a time of its own: compiled Python is known by its source's size and second."""
        self._written += 1
        (self.directory / path).write_text(text, encoding="utf-8")
        os.utime(self.directory / path, (self._written, self._written))

    @contextlib.contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[str]:
        original = self.read(mutant.path)
        self.write(mutant.path, mutant.applied(original))
        try:
            yield original
        finally:
            self.write(mutant.path, original)


# ── Running ───────────────────────────────────────────────────────────────────────────────────


class Runner:
    def __init__(self) -> None:
        for name in PRELOADED:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        assert "surehook" not in sys.modules
        self._temporary = tempfile.TemporaryDirectory(prefix="surehook-mutants-")
        self._servers = Servers()
        self._copy = Copy(Path(self._temporary.name))
        self._killers: dict[tuple[str, str], list[str]] = defaultdict(list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._servers.stop()
        self._temporary.cleanup()

    def check(self, target: Target) -> float:
        """That its tests pass, and how long they take."""
        began = time.monotonic()
        for tests in target.tests:
            outcome, by = self._tested(target, [tests])
            if outcome != "survived":
                raise TestsFail(f"{target.path}: {outcome} without a mutant {by}\n{self._output()}")
        return time.monotonic() - began

    def run(self, target: Target, mutant: Mutant) -> Result:
        """The tests that noticed others of the same place come first."""
        began = time.monotonic()
        killers = self._killers[mutant.path, mutant.place]
        outcome: Outcome = "survived"
        by = ""
        with self._copy.mutated(mutant) as original, self._triggers(target, original):
            for tests in ([killers] if killers else []) + [[one] for one in target.tests]:
                outcome, by = self._tested(target, tests)
                if outcome != "survived":
                    break
        if "::" in by:
            self._killers[mutant.path, mutant.place] = [by, *(k for k in killers if k != by)][:4]
        return Result(mutant, outcome, by, time.monotonic() - began)

    def warm_up(self) -> None:
        """For mutants of SQL, which is read when it is needed: import ours once, too."""
        if "surehook" in sys.modules:
            return
        directory = self._copy.directory
        sys.path[:0] = [str(directory / "src"), str(directory / "tests"), str(directory)]
        importlib.import_module("conftest")
        for name in WARM:
            importlib.import_module(name)
        del sys.modules["conftest"]  # pytest wants to import that itself

    @contextlib.contextmanager
    def _triggers(self, target: Target, original: str) -> Iterator[None]:
        """PostgreSQL copies its databases from templates; elsewhere each child migrates its own."""
        if not (target.until and target.engine == "postgres"):
            yield
            return
        directory = Path(self._servers.of("postgres")["directory"])
        url = json.loads(next(directory.glob("*.json")).read_text())["url"]
        asyncio.run(_execute(url, self._copy.read(target.path)))
        try:
            yield
        finally:
            asyncio.run(_execute(url, original))

    def _tested(self, target: Target, tests: list[str]) -> tuple[Outcome, str]:
        server = self._servers.of(target.engine) if target.engine else None
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            code = 70
            try:  # nothing of what the parent has open is the child's to close
                with os.fdopen(writing, "w") as told:
                    code = _in_child(self._copy.directory, tests, target, server, told)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writing)
        with os.fdopen(reading) as told:
            ended = _waited_for(child)
            by = told.readline().strip()
        if ended is None:
            return "timed out", by
        # A mutant of Python may be noticed when it is imported, before there are any tests.
        if ended == 1 or (ended and target.path.endswith(".py")):
            return "killed", by or "importing it"
        if ended:
            raise TestsFail(f"{target.path}: pytest ended with {ended}\n{self._output()}")
        return "survived", ""

    def _output(self) -> str:
        return (self._copy.directory / "output.txt").read_text(encoding="utf-8")[-3000:]


def _waited_for(child: int) -> int | None:
    """Its exit code; None if it took too long."""
    end = time.monotonic() + MUTANT_SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


async def _execute(url: str, script: str) -> None:
    import asyncpg

    admin = await asyncpg.connect(url)
    for name in DATABASES:
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        owner = await asyncpg.connect(url, database=name)
        await owner.execute(script)
        await owner.close()
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    await admin.close()


# ── In the child ──────────────────────────────────────────────────────────────────────────────


def _in_child(
    copy: Path, tests: list[str], target: Target, server: dict[str, str] | None, told: IO[str]
) -> int:
    os.setpgid(0, 0)  # so that what it starts ends with it
    os.chdir(copy)
    output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.path[:0] = [str(copy / "src"), str(copy / "tests"), str(copy)]
    os.environ["PYTHONPATH"] = str(copy / "src")
    for name in [name for name in sys.modules if name.split(".")[0] == "tools"]:
        del sys.modules[name]
    if target.engine and server:
        os.environ["SUREHOOK_TEST_ENGINES"] = target.engine
        os.environ[f"SUREHOOK_TEST_{target.engine.upper()}"] = server["kind"]
    import pytest

    # What is preloaded is not rewritten for the sake of its assertions.
    arguments = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-x", "-q", "-m", "not long"]
    arguments += ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
    arguments += [f"--timeout={TEST_SECONDS}", "--durations=9", *tests]
    pool = not target.until  # a mutant's triggers are in each database that is migrated with them
    return int(pytest.main(arguments, plugins=[Borrowed(server, told, pool)]))


class Borrowed:
    """A plugin of pytest: the servers are those of the run, and who noticed is told."""

    def __init__(self, server: dict[str, str] | None, told: IO[str], pool: bool) -> None:
        self._directory = Path(server["directory"]) if server else None
        self._told = told
        self._pool = self._directory / "pool.pickle" if self._directory and pool else None

    def pytest_sessionstart(self, session: Any) -> None:
        if self._directory is None:
            return
        run = type("Run", (), {"directory": self._directory, "end": lambda _: None})()
        session.config.stash[sys.modules["conftest"].RUN] = run
        if self._pool is not None and self._pool.exists():
            databases = importlib.import_module("support.mysql_databases")
            databases._free.update(pickle.loads(self._pool.read_bytes()))  # noqa: S301 - our own
            self._pool.unlink()  # until it is known which of them are left

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._told.write(f"{report.nodeid}\n")
            self._told.flush()

    def pytest_sessionfinish(self) -> None:
        databases = sys.modules.get("support.mysql_databases")
        if self._pool is not None and databases is not None and any(databases._free.values()):
            self._pool.write_bytes(pickle.dumps(dict(databases._free)))
