"""Upkeep: what a process holds in the course of time, and whether that grows. Linux only.

Reads   /proc      Writes  nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    at: float  # seconds of a monotonic clock
    memory: int  # resident bytes that are its own: what is mapped from files comes and goes
    descriptors: int


def sample(pid: int, at: float) -> Sample:
    process = Path(f"/proc/{pid}")
    anonymous = next(
        line for line in (process / "status").read_text().splitlines() if "RssAnon" in line
    )
    return Sample(at, int(anonymous.split()[1]) * 1024, len(list((process / "fd").iterdir())))


def megabytes_per_minute(samples: Sequence[Sample]) -> float:
    """The slope of the straight line that fits the memory best."""
    count = len(samples)
    middle = sum(one.at for one in samples) / count
    mean = sum(one.memory for one in samples) / count
    spread = sum((one.at - middle) ** 2 for one in samples)
    together = sum((one.at - middle) * (one.memory - mean) for one in samples)
    return 60 * together / spread / MEGABYTE


def more_descriptors(samples: Sequence[Sample]) -> int:
    """The fewest of the second half less the fewest of the first: one that is never closed raises
    it, a connection that comes and goes does not."""
    half = len(samples) // 2
    first, second = samples[:half], samples[half:]
    return min(one.descriptors for one in second) - min(one.descriptors for one in first)
