"""`surehook bench`: what a delivery costs on this machine, and a proof that none was lost.

Reads   nothing of yours
Writes  temporary directories; a database that was named to it, which must be empty

cases.py says what can be measured. Each case gets its own database, processes and receiver; what
arrived is compared with what was owed (ledger.py), and a difference makes the run void.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from surehook import __version__
from surehook.bench import machine
from surehook.bench.cases import CASES, Case, Plan
from surehook.bench.measures import Figures, measure
from surehook.bench.servers import missing

Report = Callable[[str], None]

OLD_ROWS, DEFAULT = "old-rows", "default"
WITH_OLD_ROWS = "_with_old_rows"
NORMALISED_BY = (
    "cpu_per_delivery and deliveries: by machine.work_us, the CPU time of a fixed piece of work "
    "beside the case; latency_low_load: by machine.fsync_us + work_us"
)


def run(
    plan: Plan, cases: Sequence[Case], report: Report, now: Report = lambda _: None
) -> dict[str, object]:
    """Every figure. `report` gets what was found out, `now` what is being done."""
    with _scratch() as directory:
        limits = machine.limits(directory)
    found: dict[str, Figures] = {}
    not_run = {case.name: why for case in cases if (why := missing(case, plan)) is not None}
    wanted = [case for case in cases if case.name not in not_run]
    end = time.monotonic() + plan.within_seconds
    for number, case in enumerate(wanted, 1):
        if time.monotonic() > end:
            not_run[case.name] = f"{plan.within_seconds:g} s were over (--within)"
            continue
        head = f"{number}/{len(wanted)} {case.name}"
        found[case.name] = _measured(case, plan, _prefixed(now, head))
        report(f"{case.name}: {in_words(found[case.name])}")
    return {
        "version": __version__,
        "valid": all(map(holds, found.values())),
        **_first(found),
        "machine": limits,
        "normalised_by": NORMALISED_BY,
        "cases": found,
        "not_run": not_run,
    }


def _prefixed(now: Report, head: str) -> Report:
    return lambda text: now(f"{head}: {text}")


def _measured(case: Case, plan: Plan, now: Report) -> Figures:
    with _scratch() as directory:
        return asyncio.run(measure(case, plan, directory, now))


@contextmanager
def _scratch() -> Iterator[Path]:
    """As root the database runs as another account, which must reach the directory."""
    place = "/var/tmp" if os.geteuid() == 0 else None  # noqa: S108 — a fresh directory inside
    with tempfile.TemporaryDirectory(prefix="surehook-bench-", dir=place) as name:
        directory = Path(name)
        directory.chmod(0o711)
        yield directory


def holds(figures: Mapping[str, object]) -> bool:
    """Nothing was lost, phantom or doubled."""
    ledger = figures.get("ledger")
    if not isinstance(ledger, dict):
        return True
    return not (ledger["lost"] or ledger["phantom"] or ledger["doubled"])


def _first(found: Mapping[str, Figures]) -> Figures:
    """The default case's figures, and the same beside old rows, under their own names."""
    apart = ("what", "machine")
    default = {k: v for k, v in found.get(DEFAULT, {}).items() if k not in apart}
    old = {k: v for k, v in found.get(OLD_ROWS, {}).items() if k not in apart}
    return default | {f"{name}{WITH_OLD_ROWS}": value for name, value in old.items()}


def in_words(figures: Mapping[str, object]) -> str:
    """deliveries per s 900, cpu us per delivery database 120 worker 80 …"""
    parts = []
    for name, value in figures.items():
        if name in ("what", "normalised"):
            continue
        label = name.replace("_", " ")
        if isinstance(value, Mapping):
            inner = " ".join(f"{key.replace('_', ' ')} {one}" for key, one in value.items())
            parts.append(f"{label} {inner}")
        else:
            parts.append(f"{label} {value}")
    return ", ".join(parts)


__all__ = ["CASES", "Plan", "holds", "run"]
