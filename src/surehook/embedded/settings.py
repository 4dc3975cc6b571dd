"""The server's settings: durable always, tuned for a queue on the machine at hand.

`postgresql.conf` is written anew at each start, since the memory at hand may have changed; what an
operator sets with ALTER SYSTEM wins over it. Reads /proc, /sys/fs/cgroup and free disk space.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

MIB = 1024 * 1024
GIB = 1024 * MIB

PG_HBA = """\
# Written by surehook at each start. Every connection needs a password.
local   all          all                  scram-sha-256
local   replication  all                  scram-sha-256
host    all          all   127.0.0.1/32   scram-sha-256
host    all          all   ::1/128        scram-sha-256
"""


def settings(cluster: Path, overrides: Mapping[str, str], *, lz4: bool) -> dict[str, str]:
    memory = memory_bytes()
    chosen = {
        **_durable(),
        **_memory(memory),
        **_write_ahead_log(shutil.disk_usage(cluster).free, lz4=lz4),
        **_vacuum(),
        **_logging(),
        "max_connections": "200",
        # A queue's statements are short: compiling them costs more than it saves.
        "jit": "off",
        "random_page_cost": "1.1",
        "timezone": "UTC",
        "datestyle": "iso, ymd",
        "lc_messages": "C",
        "default_text_search_config": "pg_catalog.simple",
        "password_encryption": "scram-sha-256",
        "unix_socket_permissions": "0700",
        # A client that vanished without a word must not hold its row locks for hours.
        "tcp_keepalives_idle": "60",
        "client_connection_check_interval": "10s",
    }
    if _shared_memory_bytes() < 256 * MIB:
        # Containers often have a /dev/shm of 64 MB, in which a parallel query dies.
        chosen["max_parallel_workers_per_gather"] = "0"
        chosen["max_parallel_maintenance_workers"] = "0"
    return {**chosen, **overrides}


def render(chosen: Mapping[str, str]) -> str:
    lines = [f"{name} = '{_escape(value)}'" for name, value in chosen.items()]
    head = "# Written by surehook at each start; change a setting with ALTER SYSTEM instead."
    return "\n".join([head, *lines, ""])


def memory_bytes() -> int:
    """The memory at hand: the machine's, or less where a control group says so."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _control_group_files():
        with contextlib.suppress(OSError, ValueError):  # absent, or the word "max"
            limits.append(int(path.read_text()))
    return min(limits)


def _durable() -> dict[str, str]:
    return {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "wal_level": "replica",  # pg_basebackup needs it
        "restart_after_crash": "on",
    }


def _memory(memory: int) -> dict[str, str]:
    shared = _bounded(memory // 8, 64 * MIB, 2 * GIB)
    return {
        "shared_buffers": _mib(shared),
        "effective_cache_size": _mib(max(memory // 2, shared)),
        "maintenance_work_mem": _mib(_bounded(memory // 32, 32 * MIB, 256 * MIB)),
        "work_mem": _mib(_bounded(memory // 512, 4 * MIB, 16 * MIB)),
    }


def _write_ahead_log(disk_free: int, *, lz4: bool) -> dict[str, str]:
    return {
        # Larger means fewer full pages but a longer recovery: 2 GB are replayed in seconds.
        "max_wal_size": _mib(_bounded(disk_free // 10, 256 * MIB, 2 * GIB)),
        "min_wal_size": "128MB",
        "checkpoint_timeout": "10min",
        "checkpoint_completion_target": "0.9",
        "wal_buffers": "16MB",
        # pglz, which every build has, costs more processor time than the writing it saves.
        "wal_compression": "lz4" if lz4 else "off",
    }


def _vacuum() -> dict[str, str]:
    """Every delivery leaves dead rows in hot indexes: clean early, little and without pauses."""
    return {
        "autovacuum_naptime": "10s",
        "autovacuum_vacuum_scale_factor": "0.05",
        "autovacuum_analyze_scale_factor": "0.05",
        "autovacuum_vacuum_cost_delay": "1ms",
        "autovacuum_vacuum_cost_limit": "2000",
    }


def _logging() -> dict[str, str]:
    return {
        "logging_collector": "on",
        "log_directory": "../log",
        # One file per day of the week, emptied when its day comes again.
        "log_filename": "postgresql-%a.log",
        "log_truncate_on_rotation": "on",
        "log_rotation_age": "1d",
        "log_rotation_size": "0",
        "log_file_mode": "0600",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] %q%u@%d %a ",
        "log_checkpoints": "off",
        # Parameters are payloads and secrets.
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
    }


def _control_group_files() -> list[Path]:
    """Every file that may limit our memory, version 1 and 2, the ancestors' included."""
    files = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                root, name = Path("/sys/fs/cgroup"), "memory.max"
            elif "memory" in controllers.split(","):
                root, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
            else:
                continue
            below = Path(group.lstrip("/"))
            files += [root / one / name for one in (below, *below.parents)]
    return files


def _shared_memory_bytes() -> int:
    try:
        return shutil.disk_usage("/dev/shm").total  # noqa: S108  # only asked for its size
    except OSError:
        return GIB  # no such place (macOS): other means are used


def _bounded(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _mib(value: int) -> str:
    return f"{value // MIB}MB"


def _escape(value: str) -> str:
    return value.replace("'", "''")
