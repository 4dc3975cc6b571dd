"""Report: results as lines, as a table in docs/reliability.md, as JSON.

Reads   docs/reliability.md      Writes  the same, between its markers, and the JSON file
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from faults import ROOT
from faults.scenario import PROMISES, Result
from surehook import __version__

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- results: written by python -m faults --write -->", "<!-- end of results -->"
# These must be 0 in every scenario, so they have columns of their own.
PROMISED = tuple(bound.figure for bound in PROMISES)


@dataclass(frozen=True)
class Run:
    """What is said of all results together."""

    command: str
    seed: int
    long: bool
    minutes: float
    servers: Sequence[str]


def line(result: Result) -> str:
    """One per scenario and engine, while the run goes on; the promises only if one is broken."""
    head = f"{result.word:<8} {result.scenario} ({result.engine}, {result.seconds:.0f} s)"
    if result.not_run:
        return f"{head}: {result.not_run}"
    more = [f"         {one}" for one in (*result.missed, result.error) if one]
    if result.logs:
        more.append(f"         logs: {result.logs}")
    return "\n".join([f"{head}: {measured(result)}", *more])


def measured(result: Result) -> str:
    """Every figure that has a bound of its own, with what it must be."""
    return "; ".join(
        f"{name} {number(result.figures[name])} ({wanted})"
        for name, wanted in result.bounds.items()
        if name in result.figures and name not in PROMISED
    )


def summary(results: Sequence[Result], minutes: float) -> str:
    """For a terminal: the promises, in columns."""
    rows = [("", "scenario", "engine", "events", *PROMISED, "seconds")]
    for result in results:
        rows.append((result.word, result.scenario, *_facts(result), f"{result.seconds:.0f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = 3  # columns of words; numbers stand to the right
    lines = [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    counts = Counter(result.word for result in results)
    said = ", ".join(
        f"{counts[word]} {name}"
        for word, name in (("pass", "passed"), ("FAIL", "failed"), ("not run", "not run"))
    )
    return "\n".join([*lines, "", f"{said}, in {minutes:g} minutes."])


def _facts(result: Result) -> list[str]:
    """Its engine, events and promises."""
    known = result.figures
    figures = (number(known[name]) if name in known else "" for name in ("events", *PROMISED))
    return [result.engine, *figures]


def number(value: float) -> str:
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.2f}"


def table(results: Sequence[Result], run: Run) -> str:
    """For the page."""
    lines = [
        f"`{run.command}`, {run.minutes:g} minutes, surehook {__version__} on {machine()}, "
        f"{', '.join(run.servers)}.",
        "",
        f"| fault | engine | events | {' | '.join(PROMISED)} | measured (must be) | |",
        f"|---|---|---{'|---' * len(PROMISED)}|---|---|",
    ]
    lines += [_row(result) for result in results]
    return "\n".join(lines)


def _row(result: Result) -> str:
    said = result.not_run or result.error or measured(result)
    return f"| {' | '.join([result.fault, *_facts(result), said, result.word])} |"


def machine() -> str:
    """What kind of machine this is; nothing that says which."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GB, "
        f"Python {platform.python_version()}"
    )


def as_json(results: Sequence[Result], run: Run) -> str:
    return json.dumps(
        {
            **asdict(run),
            "version": __version__,
            "machine": machine(),
            "passed": all(result.passed for result in results),
            "results": [
                {**asdict(result), "passed": result.passed, "logs": ""} for result in results
            ],
        },
        indent=1,
        ensure_ascii=False,
    )


def write_page(text: str, page: Path = PAGE) -> None:
    """Replace what stands between the markers."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{page.name} has lost its markers"
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
