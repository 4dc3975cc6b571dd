"""`surehook bench`, as small as it can be: it delivers everything and says what that cost."""

from __future__ import annotations

import json
import subprocess
import sys

from support.waiting import PATIENCE


def test_the_benchmark_delivers_everything_and_reports_rates_cpu_and_latency() -> None:
    small = ("--events", "40", "--subscriptions", "3", "--seconds", "0.2", "--old-rows", "20")
    done = subprocess.run(
        [sys.executable, "-m", "surehook", "bench", *small, "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["deliveries_per_s"] > 0 and figures["deliveries_per_s_with_old_rows"] > 0
    assert set(figures["cpu_us_per_delivery"]) == {"database", "worker", "rest", "all"}
    assert figures["latency_low_load_ms"]["p50"] <= figures["latency_low_load_ms"]["p99"]
