"""Coverage: which tests are measured, and what a measured run says at its end.

Reads   what pytest-cov collected       Writes  nothing that stays

Measuring costs a test a quarter of its time, so what runs the same code again is not measured: a
second server of the same engine, and child processes but of the folders that need them.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

GOAL = 95.0
PACKAGE = "surehook"
# What runs only in programs of its own: commands, the embedded server's supervisor, `serve`.
CHILDREN_OF = ("bench", "cli", "embedded", "observe", "process", "receiver")
# How coverage lets a child process know that it is measured.
CHILDREN_MEASURED = "COVERAGE_PROCESS_CONFIG"


def measured(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin("_cov")


def leave_out(items: Iterable[pytest.Item], kinds: list[str]) -> None:
    """Do not measure tests on any other kind of server than these."""
    for item in items:
        parameters: Mapping[str, object] = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("server_kind", kinds[0]) not in kinds:
            item.add_marker(pytest.mark.no_cover)


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
