"""Which programs of surehook run on this machine for this user: each keeps a note of itself.

Reads   the notes in the state directory; whether an embedded database's server runs
Writes  (`noted` only) this process's note, which it holds locked for as long as it runs

A note counts while its file is locked: that of a killed program counts no longer. Reading leaves
the notes as they are.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from surehook.embedded.directory import DataDirectory, now_text, write_record
from surehook.errors import UsageError
from surehook.receiver.statedir import state_directory

_EVERY_INTERFACE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "*": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104


@dataclass(frozen=True, slots=True)
class Program:
    """A program that runs, and the system that it belongs to."""

    command: str  # surehook dev
    pid: int
    since: str
    database: str  # the embedded database's directory, or a URL without its password
    embedded: bool
    api_url: str | None = None
    kept_key: bool = False  # whether its API takes the key that `dev` keeps


class Note:
    """This process's note: what it says can be changed while it lasts."""

    def __init__(self, descriptor: int, program: Program) -> None:
        self._descriptor = descriptor
        self._program = program
        self._write()

    def serves(self, address: str, kept_key: bool = False) -> None:
        """The API listens there now."""
        self._program = replace(
            self._program, api_url=f"http://{local_address(address)}", kept_key=kept_key
        )
        self._write()

    def _write(self) -> None:
        if self._descriptor >= 0:
            write_record(self._descriptor, self._program)


@contextmanager
def noted(command: str, database: str, *, embedded: bool) -> Iterator[Note]:
    """While the block lasts, commands of this user find this program."""
    program = Program(command, os.getpid(), now_text(), database, embedded)
    descriptor, file = _created()
    try:
        yield Note(descriptor, program)
    finally:
        if file is not None:
            with contextlib.suppress(OSError):
                file.unlink()
            os.close(descriptor)


def programs() -> list[Program]:
    """Those that run now, in the order of their start."""
    found = [_read(file) for file in _files()]
    alive = [one for one in found if one is not None and _has_its_database(one)]
    return sorted(alive, key=lambda one: (one.since, one.pid, one.command))


def local_address(address: str) -> str:
    """host:port as a client on this machine reaches it."""
    host, _, port = address.rpartition(":")
    return f"{_EVERY_INTERFACE.get(host, host)}:{port}"


def _directory() -> Path:
    return state_directory().parent / "running"


def _files() -> list[Path]:
    with contextlib.suppress(OSError, UsageError):  # UsageError: a user without a home
        return list(_directory().glob("*.json"))
    return []


def _created() -> tuple[int, Path | None]:
    """A locked file. Without a place for it the program runs all the same, only unnoticed."""
    try:
        directory = _directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale()
        file = directory / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except (OSError, UsageError):
        return -1, None
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor, file


def _remove_stale() -> None:
    for file in _files():
        # An empty one has only just been created, and is locked in a moment.
        with contextlib.suppress(OSError):
            if file.stat().st_size and not _is_locked(file):
                file.unlink()


def _is_locked(file: Path) -> bool:
    with file.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _read(file: Path) -> Program | None:
    try:
        if not _is_locked(file):
            return None
        return Program(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None  # gone meanwhile, or of another version of this program


def _has_its_database(program: Program) -> bool:
    """A home may be shared with other machines, whose programs are not ours to reach."""
    return not program.embedded or DataDirectory(Path(program.database)).is_locked()
