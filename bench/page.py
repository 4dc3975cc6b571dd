"""docs/performance.md: writes the stored results into it.

Reads   bench/stored.json (`surehook bench --json`), bench/peers/stored.json (`run.py --json`)
Writes  docs/performance.md, between its markers

    python bench/page.py              write the page
    python bench/page.py --check      exit 1 if the page does not have what is stored

`make bench-write` measures anew and does both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
OURS = ROOT / "bench" / "stored.json"
PEERS = ROOT / "bench" / "peers" / "stored.json"
BEGIN, END = "<!-- results: written by make bench-write -->", "<!-- end of results -->"
HEAD = (
    "case", "what", "deliveries/s", "CPU µs per delivery (database)", "p50 / p99 ms at 20/s",
    "p50 / p99 ms at half load", "normalised CPU",
)  # fmt: skip
PEERS_HEAD = (
    "", "deliveries/s", "CPU µs per delivery", "p50 / p99 ms at 20/s",
    "not there 2 min after kill -9",
    "sent again", "last arrived after, s", "settings",
)  # fmt: skip
LATENCIES = ("latency_low_load_ms", "latency_half_load_ms")
Figures = dict[str, Any]


def rendered() -> str:
    ours = json.loads(OURS.read_text(encoding="utf-8"))
    return "\n".join([*_about(ours), "", *_flow(ours), "", *_others(ours), "", *_peers()])


def _about(ours: Figures) -> Iterator[str]:
    machine = ours["machine"]
    yield (
        f"surehook {ours['version']}, {machine['cores']} cores ({machine['machine']}), Python "
        f"{machine['python']}, load {machine['load_before']} before the run, a piece of work "
        f"{machine['work_us']:.0f} µs, a synced write {machine['fsync_us']:.0f} µs. Database, "
        "receiver and publisher on the same cores."
    )


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def _both(found: Figures, name: str) -> str:
    return f"{found[name]['p50']} / {found[name]['p99']}" if name in found else ""


def _flow(ours: Figures) -> Iterator[str]:
    rows = []
    for name, found in ours["cases"].items():
        if "deliveries_per_s" in found:
            cpu = found["cpu_us_per_delivery"]
            spent = f"{cpu['all']:.0f} ({cpu.get('database', 0):.0f})"
            times = (_both(found, latency) for latency in LATENCIES)
            relative = found["normalised"]["cpu_per_delivery"]
            row = (name, found["what"], f"{found['deliveries_per_s']:,}", spent, *times, relative)
            rows.append(row)
    return _table(HEAD, rows)


def _in_words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return str(value)


def _others(ours: Figures) -> Iterator[str]:
    cases = ours["cases"]
    shown = [
        (name, figure)
        for name in ("ingest", "idle")
        for figure in cases.get(name, {})
        if figure.startswith(("single", "batch", "cpu", "queries"))
    ]
    rows = [
        (name, figure.replace("_", " "), _in_words(cases[name][figure])) for name, figure in shown
    ]
    rows += [
        (name, "memory megabytes", _in_words(cases[name]["memory_megabytes"]))
        for name in ("default", "one-process", "processes", "idle")
        if name in cases
    ]
    return _table(("case", "figure", "value"), rows)


def _peers() -> Iterator[str]:
    if not PEERS.exists():
        yield "The others are not measured yet: `make bench-write`."
        return
    report = json.loads(PEERS.read_text(encoding="utf-8"))
    amounts = report["amounts"]
    yield (
        f"The others (`python bench/peers/run.py --deliveries {amounts['deliveries']} --killed "
        f"{amounts['killed']}`), one endpoint:"
    )
    yield ""
    rows: list[tuple[Any, ...]] = []
    for name, found in report["results"].items():
        if "not_run" in found:
            rows.append((name, *[""] * (len(PEERS_HEAD) - 2), found["not_run"]))
            continue
        times = _both(found, "latency_low_load_ms")
        after = ("lost_after_kill", "sent_again_after_kill", "seconds_after_kill")
        rate = f"{found['deliveries_per_s']:,}" if found["deliveries_per_s"] else "did not end"
        cells = (rate, found["cpu_us_per_delivery"], times, *(found[one] for one in after))
        rows.append((name, *cells, found["settings"]))
    yield from _table(PEERS_HEAD, rows)


def page_with(text: str) -> str:
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} has lost its markers"
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main(arguments: list[str]) -> int:
    wanted = page_with(rendered())
    if "--check" in arguments:
        return int(wanted != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
