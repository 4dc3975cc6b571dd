"""What this machine can do, to be shown beside any figure. Reads /proc; writes a scratch file."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

TICK_MICROSECONDS = 1_000_000 // os.sysconf("SC_CLK_TCK")


def limits(directory: Path) -> dict[str, object]:
    """Cores, how busy they are, how fast one of them and the disk are."""
    return {
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "sha256_megabytes_per_s": _hashing(),
        "fsyncs_per_s": _syncing(directory),
    }


def _hashing() -> int:
    block = bytes(1 << 20)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < 0.2:
        hashlib.sha256(block).digest()
        count += 1
    return round(count / (time.perf_counter() - began))


def _syncing(directory: Path) -> int:
    """8 KiB appended and synced, one after the other: what a commit waits for."""
    scratch = directory / "fsync.scratch"
    count = 0
    with scratch.open("wb", buffering=0) as file:
        began = time.perf_counter()
        while time.perf_counter() - began < 0.5:
            file.write(bytes(8192))
            os.fdatasync(file.fileno())
            count += 1
        seconds = time.perf_counter() - began
    scratch.unlink()
    return round(count / seconds)


def cpu_microseconds(pids: Iterable[int]) -> int:
    """CPU that these processes have used, with that of children they have waited for."""
    return sum(_ticks(pid) for pid in pids) * TICK_MICROSECONDS


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(fields[index]) for index in (11, 12, 13, 14))


def children(pid: int) -> list[int]:
    """The process and everything below it."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(one for child in below for one in children(int(child)))]


def memory_megabytes(pid: int) -> float:
    """The most that this process has held at once."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    except OSError:
        pass
    return 0.0
