"""`surehook bench`, as small as it can be: it delivers everything and says what that cost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner

from support.servers import private_directory
from support.waiting import PATIENCE
from surehook import bench
from surehook.cli import surehook
from surehook.embedded.server import EmbeddedServer
from surehook.errors import Declined

SMALL = ("--events", "40", "--seconds", "0.2", "--old-rows", "20", "--json")


def measured(*cases: str, options: Sequence[str] = ()) -> dict[str, Any]:
    named = [word for case in cases for word in ("--case", case)]
    done = subprocess.run(
        [sys.executable, "-m", "surehook", "bench", *named, *SMALL, *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert figures["valid"]
    return figures


def test_the_benchmark_delivers_everything_and_reports_rates_cpu_latency_and_memory() -> None:
    figures = measured("default", "old-rows")
    assert figures["deliveries_per_s"] > 0 and figures["deliveries_per_s_with_old_rows"] > 0
    assert figures["ingest_events_per_s"] > 0
    assert set(figures["cpu_us_per_delivery"]) == {"database", "worker", "rest", "all"}
    for load in ("latency_low_load_ms", "latency_half_load_ms"):
        assert 0 < figures[load]["p50"] <= figures[load]["p99"]
    assert set(figures["memory_megabytes"]) == {"worker", "rest", "database"}
    assert all(figures["memory_megabytes"].values())
    assert set(figures["normalised"]) == {"cpu_per_delivery", "deliveries", "latency_low_load"}
    gauge = figures["cases"]["default"]["machine"]
    assert set(gauge) == {"work_us", "fsync_us", "receiver_us_per_delivery"}


def test_what_fails_at_first_is_delivered_once_in_the_end() -> None:
    """More posts than deliveries, none lost, none accepted twice."""
    failures = measured("failures")["cases"]["failures"]["ledger"]
    assert failures["posts"] > failures["owed"]


def test_several_processes_are_measured_as_one_and_the_memory_of_each_is_shown() -> None:
    several = measured("processes")["cases"]["processes"]
    assert set(several["cpu_us_per_delivery"]) == {"database", "serve", "all"}
    assert {"serve-1", "serve-2", "serve-3"} <= set(several["memory_megabytes"])


def test_ingest_and_idleness_are_measured_over_the_real_api() -> None:
    cases = measured("ingest", "idle")["cases"]
    assert cases["ingest"]["single_events_per_s"] > 0 and cases["ingest"]["batch_events_per_s"] > 0
    assert cases["idle"]["queries_per_s"] >= 0
    assert "all" in cases["idle"]["cpu_percent_of_a_core"]


def test_mariadb_is_measured_where_there_is_one() -> None:
    figures = measured("mariadb")
    if "mariadb" in figures["not_run"]:
        pytest.skip(figures["not_run"]["mariadb"])
    assert figures["cases"]["mariadb"]["cpu_us_per_delivery"]["database"] > 0


def test_a_database_that_is_named_is_measured_and_its_server_too_where_it_is_local() -> None:
    with private_directory() as directory, EmbeddedServer(directory / "data") as server:
        figures = measured("postgresql", options=("--postgresql", server.url))
    assert figures["cases"]["postgresql"]["cpu_us_per_delivery"]["database"] > 0


def test_no_case_begins_when_the_time_is_over() -> None:
    figures = measured("default", "idle", options=("--within", "1"))
    assert set(figures["cases"]) == {"default"} and "--within" in figures["not_run"]["idle"]


def test_a_run_in_which_anything_was_lost_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    void = {"valid": False, "cases": {}, "not_run": {}, "normalised_by": ""}
    monkeypatch.setattr(bench, "run", lambda *_: void)
    done = CliRunner().invoke(surehook, ["bench", "--json"])
    assert isinstance(done.exception, Declined) and "void" in str(done.exception)
    assert json.loads(done.stdout) == void


def test_a_database_that_is_not_here_is_named_and_not_measured() -> None:
    figures = measured("postgresql")
    assert "--postgresql" in figures["not_run"]["postgresql"] and not figures["cases"]


def test_the_table_for_people_has_a_line_for_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = {
        "deliveries_per_s": 900,
        "cpu_us_per_delivery": {"database": 100.0, "serve": 90.0, "all": 190.0},
        "latency_low_load_ms": {"p50": 4.5, "p99": 9.0},
        "normalised": {"cpu_per_delivery": 0.5},
        "memory_megabytes": {"serve": 50.0},
    }
    idle = {"queries_per_s": 4.5}
    found = {
        "valid": True,
        "cases": {"default": flow, "idle": idle},
        "not_run": {"mariadb": "not here"},
        "normalised_by": "…",
    }
    monkeypatch.setattr(bench, "run", lambda *_: found)
    done = CliRunner().invoke(surehook, ["bench"])
    assert done.exit_code == 0, done.output
    assert "default" in done.stdout and "190" in done.stdout and "4.5" in done.stdout
    assert "queries per s" in done.stdout and "not run: mariadb" in done.stderr


def test_an_unknown_case_is_refused_with_the_list() -> None:
    done = CliRunner().invoke(surehook, ["bench", "--case", "defualt"])
    assert "There is no case defualt" in str(done.exception)
    listed = CliRunner().invoke(surehook, ["bench", "--list"])
    assert all(name in listed.stdout for name in bench.CASES)
