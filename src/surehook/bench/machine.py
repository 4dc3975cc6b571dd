"""What this machine can do right now, measured beside every figure. Reads /proc; writes a scratch
file.

The same program needs up to twice the CPU for the same work when its neighbours are busy. So each
case has its own gauge, taken before and after it: a fixed piece of CPU work, and what a synced
write takes. Divided by that, figures of two runs can be compared (`normalised`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

TICK_MICROSECONDS = 1_000_000 // os.sysconf("SC_CLK_TCK")
# The kernel's number of a process's CPU clock is made of the process's and of this.
_ALL_THREADS = 2
WORK_SECONDS = 0.3
SYNC_SECONDS = 0.3
_MESSAGE = {"order": "A-1001", "lines": [{"sku": f"sku-{n}", "count": n} for n in range(20)]}


@dataclass(frozen=True, slots=True)
class Gauge:
    work_us: float  # CPU time of one piece of work
    fsync_us: float  # time until 8 KiB are written and synced

    def between(self, later: Gauge) -> Gauge:
        """The mean of two: what held around a measurement."""
        return Gauge(
            round((self.work_us + later.work_us) / 2, 1),
            round((self.fsync_us + later.fsync_us) / 2, 1),
        )


def gauge(directory: Path) -> Gauge:
    return Gauge(_working(), _syncing(directory))


def limits(directory: Path) -> dict[str, object]:
    """To be shown beside any figure: what this machine is, how busy, and its gauge now."""
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        **asdict(gauge(directory)),
    }


def _piece() -> None:
    """About what a delivery asks of an interpreter and of a hash: JSON there and back, an HMAC."""
    for _ in range(10):
        body = json.dumps(json.loads(json.dumps(_MESSAGE))).encode()
        hmac.digest(b"a secret of thirty-two characters", body, hashlib.sha256)


def _working() -> float:
    """In CPU time, so that other programs' turns do not count; their use of caches does."""
    began, pieces = time.process_time(), 0
    while time.process_time() - began < WORK_SECONDS:
        _piece()
        pieces += 1
    return round(1e6 * (time.process_time() - began) / pieces, 1)


def _syncing(directory: Path) -> float:
    """8 KiB appended and synced, one after the other: what a commit waits for."""
    scratch = directory / "fsync.scratch"
    count = 0
    with scratch.open("wb", buffering=0) as file:
        began = time.perf_counter()
        while time.perf_counter() - began < SYNC_SECONDS:
            file.write(bytes(8192))
            os.fdatasync(file.fileno())
            count += 1
        seconds = time.perf_counter() - began
    scratch.unlink()
    return round(1e6 * seconds / count, 1)


# ── Processes ─────────────────────────────────────────────────────────────────────────────────


def cpu_microseconds(pids: Iterable[int]) -> int:
    """CPU that these processes have used, with that of children they have waited for."""
    return sum(_own_microseconds(pid) + _ended_microseconds(pid) for pid in pids)


def _own_microseconds(pid: int) -> int:
    """Of all its threads, by its own clock: /proc counts whole ticks, and a short run on several
    processes may have none in any of them."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _ALL_THREADS) // 1000
    except OSError:
        return 0


def _ended_microseconds(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[13]) + int(fields[14])) * TICK_MICROSECONDS


def children(pid: int) -> list[int]:
    """The process and everything below it."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(one for child in below for one in children(int(child)))]


def memory_megabytes(pid: int) -> float:
    """The most that this process has held at once."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM:")


def shared_megabytes(pids: Iterable[int]) -> float:
    """What these processes hold now; memory that they share counts once."""
    held = (_kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") for pid in pids)
    return round(sum(held), 1)


def _kilobytes(file: Path, name: str) -> float:
    try:
        for line in file.read_text().splitlines():
            if line.startswith(name):
                return round(int(line.split()[1]) / 1024, 1)
    except OSError:
        pass
    return 0.0
