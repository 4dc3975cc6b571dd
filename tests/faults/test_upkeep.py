"""What a process holds is measured, and growth is told from up and down."""

from __future__ import annotations

import subprocess
import sys

import pytest

from faults.upkeep import Sample, megabytes_per_minute, more_descriptors, sample

MEGABYTE = 1_000_000
# Says when it has started, grows when it is told to, says so, and waits for its end.
GROWING = """
import os, sys
print(flush=True)
sys.stdin.readline()
held = bytearray(os.urandom(1_000_000) * 30)
opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
print(flush=True)
sys.stdin.readline()
"""


def test_memory_that_grows_evenly_has_that_slope() -> None:
    samples = [Sample(10.0 * turn, 50 * MEGABYTE + turn * MEGABYTE // 2, 9) for turn in range(30)]
    assert megabytes_per_minute(samples) == pytest.approx(3.0)


def test_memory_that_goes_up_and_down_has_no_slope() -> None:
    samples = [Sample(float(turn), (turn % 2) * MEGABYTE, 9) for turn in range(601)]
    assert abs(megabytes_per_minute(samples)) < 0.01


def test_descriptors_that_are_never_closed_are_told_from_those_that_come_and_go() -> None:
    def grown(*counts: int) -> int:
        return more_descriptors([Sample(float(at), 0, count) for at, count in enumerate(counts)])

    assert grown(9, 12, 20, 9) == 0 and grown(9, 12, 10, 13) == 1


def test_a_sample_sees_memory_and_descriptors_of_a_process() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", GROWING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        before = sample(process.pid, 1.0)
        process.stdin.write(b"grow\n")
        process.stdin.flush()
        process.stdout.readline()
        after = sample(process.pid, 2.0)
        process.stdin.close()
    assert after.memory - before.memory > 20 * MEGABYTE
    assert after.descriptors == before.descriptors + 5
