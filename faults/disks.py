"""Small disks: file systems in memory, mounted for a scenario, that can be filled and emptied.

Reads   nothing      Writes  mounts below the directories that it is given; only root may
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from surehook.embedded.account import Account

CHUNK_BYTES = 64 * 1024
MIB = 2**20


class SmallDisk:
    def __init__(self, path: Path, bytes_: int) -> None:
        self.path = path
        self._bytes = bytes_
        self._mounted = False

    def mount(self, account: Account | None = None) -> None:
        """Owned by the account, if it is another."""
        self.path.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={self._bytes},mode=711", "tmpfs", self.path)
        self._mounted = True
        if account is not None and account.is_other:
            os.chown(self.path, account.uid, account.gid)

    def unmount(self) -> None:
        """Lazily: a server that was just killed may hold files open for a moment."""
        if self._mounted:
            self._mounted = False
            _run("umount", "--lazy", self.path)

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"

    def fill(self) -> None:
        """To the last byte; again, for what was given back meanwhile."""
        with self._ballast.open("ab", buffering=0) as ballast:
            size = CHUNK_BYTES
            while size:
                try:
                    ballast.write(bytes(size))
                except OSError:  # ENOSPC
                    size //= 2

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


@cache
def can_mount() -> bool:
    """Root in a container may lack the right."""
    with tempfile.TemporaryDirectory() as directory, contextlib.suppress(OSError):
        disk = SmallDisk(Path(directory) / "disk", MIB)
        try:
            disk.mount()
        except subprocess.CalledProcessError:
            return False
        disk.unmount()
        return True
    return False
