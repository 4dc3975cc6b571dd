"""Moving a data directory to a newer major version."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from embedded_harness import FAST, processes_of, sql, wheel_binaries

from surehook.embedded.server import EmbeddedServer
from surehook.errors import EmbeddedServerError, UsageError

OLD = wheel_binaries("pginstall")


def make_old(data: Path) -> None:
    with EmbeddedServer(data, binaries=OLD, settings=FAST) as server:
        sql(server, "CREATE ROLE component LOGIN; CREATE TABLE kept AS SELECT 42 AS n")


def test_an_upgrade_takes_everything_along_and_keeps_the_old_data(place: Path) -> None:
    data = place / "data"
    make_old(data)
    command = [sys.executable, "-m", "surehook", "db", "upgrade", "--data-dir", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("upgraded from 16.")
    assert "nothing to do" in subprocess.run(command, capture_output=True, text=True).stdout
    (kept,) = data.glob("postgres.old-16-*")
    assert (kept / "PG_VERSION").read_text() == "16\n"
    assert not list(data.glob("postgres.new-*")) and not processes_of(place)
    with EmbeddedServer(data, settings=FAST) as server:
        assert server.version.startswith("18.")
        assert sql(server, "SELECT n FROM kept") == "42"
        assert sql(server, "SELECT count(*) FROM pg_roles WHERE rolname = 'component'") == "1"
        assert sql(server, "SHOW data_checksums") == "on"


def test_an_upgrade_cut_short_between_its_renames_is_completed(data: Path) -> None:
    (data / "postgres").rename(data / "postgres.upgraded")
    with EmbeddedServer(data, settings=FAST) as server:
        assert sql(server, "SELECT 1") == "1"
    assert not (data / "postgres.upgraded").exists()


def test_an_upgrade_cut_short_before_its_renames_is_forgotten(data: Path) -> None:
    subprocess.run(["cp", "-a", data / "postgres", data / "postgres.upgraded"], check=True)
    with EmbeddedServer(data, settings=FAST) as server:
        assert sql(server, "SELECT 1") == "1"
    assert not (data / "postgres.upgraded").exists()


def test_a_failed_upgrade_leaves_the_old_data_usable(place: Path) -> None:
    data = place / "data"
    make_old(data)
    with EmbeddedServer(data, settings=FAST) as server:
        # pg_upgrade refuses a database that does not accept connections.
        sql(server, "CREATE DATABASE closed ALLOW_CONNECTIONS false")
    with pytest.raises(EmbeddedServerError, match=r"the old data is untouched.*upgrade\.log"):
        EmbeddedServer(data).upgrade()
    with EmbeddedServer(data, settings=FAST) as server:
        assert server.version.startswith("16.") and sql(server, "SELECT n FROM kept") == "42"


def test_a_directory_in_use_or_without_a_database_is_not_upgraded(data: Path, place: Path) -> None:
    with EmbeddedServer(data, settings=FAST), pytest.raises(EmbeddedServerError, match="in use"):
        EmbeddedServer(data).upgrade()
    with pytest.raises(UsageError, match="no database"):
        EmbeddedServer(place / "empty").upgrade()
