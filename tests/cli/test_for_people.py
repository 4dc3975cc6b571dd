"""What a person meets at a terminal: widths, progress, plural forms, tables, empty options."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.commands import run_command
from surehook.cli import output
from surehook.model.wording import counted
from surehook.process.components import COMPONENTS

FIGURES: dict[str, object] = {
    "valid": True,
    "cases": {
        "default": {
            "deliveries_per_s": 1200,
            "cpu_us_per_delivery": {"database": 300.5, "all": 700.0},
            "latency_low_load_ms": {"p50": 5.5, "p99": 9.5},
            "memory_megabytes": {"worker": 54.5},
            "normalised": {"cpu_per_delivery": 0.9},
        },
        "idle": {"queries_per_s": 4.5},
    },
    "not_run": {"mariadb": "it is not here"},
    "normalised_by": "a piece of work",
}
SOURCE = Path(output.__file__).parents[1]
NOBODY = {"SUREHOOK_URL": "http://127.0.0.1:1"}


def seen(program: str, columns: int = 60) -> str:
    """What a program of ours leaves on a terminal that is so wide, without its colours."""
    terminal, side = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm"},
            stdin=side,
            stdout=side,
            stderr=side,
            check=True,
        )
        return re.sub(r"\x1b\[\d*m", "", os.read(terminal, 100_000).decode())
    finally:
        os.close(terminal)
        os.close(side)


@contextmanager
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("surehook.bench.run", lambda *_: dict(FIGURES))
    yield


def test_run_lists_the_components_and_what_each_does() -> None:
    shown = run_command(("run", "--help"), {}).out
    for name in COMPONENTS:
        assert re.search(rf"^    {name} +\w+", shown, re.MULTILINE), shown


@pytest.mark.parametrize("option", ["--api-key", "--url"])
@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_key_or_address_is_not_taken_for_none(option: str, value: str) -> None:
    done = run_command(("event", "list", option, value), {**NOBODY, "SUREHOOK_API_KEY": "shk_x"})
    assert (done.code, done.out) == (2, "")
    assert done.err == f"surehook: {option} is empty. Give it a value, or leave it out.\n"


def test_counts_are_said_in_the_right_number() -> None:
    said = [counted(count, "dead letter") for count in (0, 1, 2)]
    assert said == ["0 dead letters", "1 dead letter", "2 dead letters"]
    assert counted(2, "delivery", "deliveries") == "2 deliveries"


def test_no_text_leaves_the_plural_to_the_reader() -> None:
    """`1 bucket(s)`: the number is known, so is the word."""
    sources = sorted(SOURCE.rglob("*.py"))
    left = re.compile(r"[a-z]\(s\)[ ,.:]")
    assert sources and [one.name for one in sources if left.search(one.read_text())] == []


def test_bench_prints_a_table_for_people_and_the_same_as_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with measured(monkeypatch):
        shown = run_command(("bench",), {}).out
        assert json.loads(run_command(("bench", "--json"), {}).out) == FIGURES
    rows = [re.split(r"  +", line) for line in shown.splitlines()]
    assert rows[0][0] == "CASE"
    assert ["default", "1200", "700", "300.5", "5.5", "9.5", "-", "-", "0.9"] in rows
    assert ["default", "memory megabytes", "worker 54.5"] in rows
    assert ["idle", "queries per s", "4.5"] in rows
    assert "{" not in shown


def test_long_facts_and_notes_go_on_below_themselves_and_break_between_words() -> None:
    words = " ".join(["word"] * 30)
    path = "/a/path/" + "x" * 80
    shown = seen(
        "from surehook.cli import output\n"
        f"output.facts([('name', {words!r}), ('path', {path!r})])\noutput.note({words!r})"
    ).splitlines()
    for line in shown:
        assert len(line) <= 60 or path in line
        assert not re.search(r"\bwor$|^ord\b", line)
    assert shown[1].startswith("      word")


def test_in_a_pipe_nothing_wraps(capsys: pytest.CaptureFixture[str]) -> None:
    output.facts([("name", "word " * 100)])
    output.note("word " * 100)
    written = capsys.readouterr()
    assert written.out.count("\n") == 1 and written.err.count("\n") == 1


def test_long_work_shows_what_it_does_at_a_terminal_and_leaves_no_trace_of_it() -> None:
    shown = seen(
        "from surehook.cli import output\noutput.REDRAW_SECONDS = 0.01\n"
        "import time\n"
        "with output.waiting('counting') as line:\n"
        "    line.draw()\n    line.now('adding')\n    line.echo('a result')\n    line.draw()\n"
    )
    assert "counting … 0 s" in shown and "adding … 0 s" in shown
    assert "\r\x1b[Ka result" in shown and shown.endswith("\r\x1b[K")


def test_long_work_shows_nothing_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    with output.waiting("counting") as line:
        line.now("adding")
        line.echo("a result")
    written = capfd.readouterr()
    assert (written.out, written.err) == ("a result\n", "")
