"""Coverage: which tests are measured, and what a measured run says at its end.

Reads   what pytest-cov collected       Writes  nothing that stays

Python runs at half its speed while it is measured, so what runs the same lines again is not: a
test's second parameters on a server, a second server of the same engine, whole systems under load,
and child processes but of the folders that need them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent.parent
GOAL = 95.0
PACKAGE = "surehook"
# Read the source, or do often and together what the tests of its parts do once and alone.
NOT_MEASURED = (
    "api/test_openapi.py",
    "cli/test_nonsense.py",
    "docs",
    "scenarios",
    "store/test_statements.py",
    "test_harness.py",
    "test_tidy.py",
    "tools",
)
# What runs only in programs of its own: commands, the embedded server's supervisor, `serve`.
CHILDREN_OF = ("bench", "cli", "embedded", "observe", "process", "receiver")
# How coverage lets a child process know that it is measured.
CHILDREN_MEASURED = "COVERAGE_PROCESS_CONFIG"
FIRST_WORKER = "gw0"
UNMEASURED = pytest.StashKey[bool]()


def measured(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin("_cov")


def choose(items: Iterable[pytest.Item], kinds: list[str]) -> None:
    """Measure each test on a server of these kinds with the first of its parameters only."""
    seen: set[tuple[str, object]] = set()
    for item in items:
        parameters: Mapping[str, object] = getattr(getattr(item, "callspec", None), "params", {})
        kind = parameters.get("server_kind")
        which = (item.nodeid.partition("[")[0], kind)
        again = kind is not None and (kind not in kinds or which in seen)
        seen.add(which)
        item.stash[UNMEASURED] = again or _is_in(item, NOT_MEASURED)


def has_measured_children(item: pytest.Item) -> bool:
    return not item.stash.get(UNMEASURED, False) and _is_in(item, CHILDREN_OF)


def _is_in(item: pytest.Item, places: Iterable[str]) -> bool:
    return any(item.path.is_relative_to(TESTS / place) for place in places)


def around_test(item: pytest.Item) -> AbstractContextManager[None]:
    """Its fixtures included: nothing is measured if it was not chosen."""
    return _unmeasured() if item.stash.get(UNMEASURED, False) else nullcontext()


def around_collection(config: pytest.Config) -> AbstractContextManager[None]:
    """Every worker imports the same: the first one measures it for all."""
    worker = getattr(config, "workerinput", {"workerid": FIRST_WORKER})["workerid"]
    return nullcontext() if worker == FIRST_WORKER else _unmeasured()


@contextmanager
def _unmeasured() -> Iterator[None]:
    of_this_thread, of_others = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(of_others)
        sys.settrace(of_this_thread)


def figures(config: pytest.Config) -> list[str]:
    """Lines for people: all of src, then each folder below the goal."""
    report = _report(config)
    if report is None:
        return []
    lines = [f"coverage of src: {_in_words(report['totals'])}"]
    for folder, summary in sorted(_by_folder(report["files"]).items()):
        if _percent(summary, "lines") < GOAL:
            lines.append(f"  below {GOAL:g} %: {folder} ({_in_words(summary)})")
    return lines


def _report(config: pytest.Config) -> Any:
    controller: Any = getattr(config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    if controller is None or controller.cov is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "coverage.json"
        controller.cov.json_report(outfile=str(file))
        return json.loads(file.read_text(encoding="utf-8"))


def _by_folder(files: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """src/surehook/store/mysql/keys.py counts for store/mysql; a file at the top for itself."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, file in files.items():
        parts = Path(name).parts
        inside = parts[parts.index(PACKAGE) + 1 :]
        folder = "/".join(inside[:-1]) or inside[-1]
        for key, value in file["summary"].items():
            if isinstance(value, int):
                sums[folder][key] += value
    return sums


def _percent(summary: Mapping[str, Any], what: str) -> float:
    reached = summary["covered_lines" if what == "lines" else "covered_branches"]
    there = summary["num_statements" if what == "lines" else "num_branches"]
    return 100.0 * reached / there if there else 100.0


def _in_words(summary: Mapping[str, Any]) -> str:
    lines, branches = (_percent(summary, what) for what in ("lines", "branches"))
    return f"lines {lines:.1f} %, branches {branches:.1f} %"
