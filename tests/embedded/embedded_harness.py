"""What the tests of the embedded server share: places to work in, programs to kill, questions.

Reads and writes only below the temporary directory that `private_place` makes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from support.waiting import PATIENCE
from surehook.embedded import binaries as programs
from surehook.embedded.server import EmbeddedServer

FAST = {"fsync": "off"}  # only where durability is not what is tested
IS_ROOT = os.geteuid() == 0

PROGRAM = """
import sys
from pathlib import Path
from surehook.embedded.server import EmbeddedServer
from surehook.errors import SurehookError
binaries = Path(sys.argv[2]) if sys.argv[2] else None
settings = {"fsync": sys.argv[3]}
try:
    with EmbeddedServer(Path(sys.argv[1]), binaries=binaries, settings=settings) as server:
        print("ready", server.supervisor_pid, server.pid, server.url, flush=True)
        sys.stdin.readline()
except KeyboardInterrupt:
    print("interrupted", flush=True)
except SurehookError as error:
    print("refused", error, flush=True)
"""


def roomy_memory() -> Path:
    """Memory, where there is enough: a disk spends most of a test on making and removing files."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30:
        return memory
    return Path(tempfile.gettempdir())


@contextmanager
def private_place() -> Iterator[Path]:
    """A directory that the server's account can reach; afterwards nothing of it is running."""
    place = Path(tempfile.mkdtemp(prefix="surehook-test-", dir=roomy_memory()))
    place.chmod(0o711)
    try:
        yield place
        eventually(lambda: not processes_of(place), 30, lambda: f"left: {processes_of(place)}")
    finally:
        for pid in processes_of(place):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(place, ignore_errors=True)


def processes_of(place: Path) -> dict[int, str]:
    """Every process that names this place in its command line (a server's children do not)."""
    listed = subprocess.run(
        ["ps", "-Aww", "-o", "pid=,stat=,command="], capture_output=True, text=True, check=True
    )
    found = {}
    for line in listed.stdout.splitlines():
        pid, state, command = line.split(None, 2)
        if str(place) in command and int(pid) != os.getpid() and not state.startswith("Z"):
            found[int(pid)] = command
    return found


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    pairs = [line.split() for line in listed.stdout.splitlines()]
    return [int(child) for child, parent in pairs if parent == str(pid)]


def eventually(
    true: Callable[[], bool], seconds: float = PATIENCE, otherwise: Callable[[], str] = lambda: ""
) -> None:
    """Wait for a condition, up to a deadline."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, otherwise() or "it did not happen in time"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(shown.stdout.strip()) and not shown.stdout.startswith("Z")


def sql(server: EmbeddedServer, text: str) -> str:
    return psql(server.url, server.binaries, text)


def psql(url: str, binaries: Path, text: str) -> str:
    command = [str(binaries / "psql"), "-X", "-At", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def start_program(
    data_dir: Path, binaries: Path | None = None, *, fsync: str = "off"
) -> subprocess.Popen[str]:
    """A program of its own that runs a server until its input ends."""
    arguments = [str(data_dir), str(binaries or ""), fsync]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def first_line(program: subprocess.Popen[str]) -> str:
    return pipe(program.stdout).readline()


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def end(program: subprocess.Popen[str]) -> None:
    with contextlib.suppress(BrokenPipeError):
        program.communicate("\n", timeout=PATIENCE)


def wheel_binaries(tree: str = "pginstall18") -> Path:
    home = programs._wheel_home()
    assert home is not None
    return home / tree / "bin"


def system_binaries() -> Path | None:
    home = programs._wheel_home()
    for found in programs.candidates():
        if home is None or home not in found.directory.parents:
            return found.directory
    return None
