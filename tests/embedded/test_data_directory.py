"""Which directories are taken, which are refused, and by which user they are used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from embedded_harness import FAST, IS_ROOT, PROGRAM, processes_of, sql, system_binaries

import surehook
from surehook.embedded import default_data_dir
from surehook.embedded.directory import DataDirectory
from surehook.embedded.server import EmbeddedServer
from surehook.errors import UsageError

only_as_root = pytest.mark.skipif(not IS_ROOT, reason="is about what root does")
# System interpreters, which an ordinary user can reach where a virtual environment is root's own.
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3", sys.executable)


@only_as_root
def test_a_directory_that_the_account_cannot_reach_is_named_with_what_to_do(place: Path) -> None:
    (place / "home").mkdir(mode=0o700)
    server = EmbeddedServer(place / "home" / "deep" / "data")
    with pytest.raises(UsageError, match=r"cannot reach .*/home/deep/data .*Name a directory"):
        server.start()
    assert list((place / "home").iterdir()) == []


def test_a_directory_with_something_else_in_it_is_refused_and_left_alone(place: Path) -> None:
    (place / "letter.txt").write_text("dear")
    before = place.stat()
    with pytest.raises(UsageError, match="not empty and not a data directory"):
        EmbeddedServer(place).start()
    assert (place.stat().st_uid, place.stat().st_mode) == (before.st_uid, before.st_mode)


def test_a_file_in_place_of_the_directory_is_refused(place: Path) -> None:
    (place / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        EmbeddedServer(place / "file").start()
    with pytest.raises(UsageError, match="cannot"):
        EmbeddedServer(place / "file" / "below").start()


def test_a_foreign_folder_at_the_place_of_the_socket_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataDirectory(place / ("x" * 150))
    folder = data.socket_directory()
    try:
        assert folder.name.endswith("-0")
        folder.chmod(0o777)  # as if somebody else had been there first
        other = data.socket_directory()
        assert other != folder
        other.rmdir()
    finally:
        folder.rmdir()


def test_the_default_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREHOOK_DATA_DIR", "/somewhere")
    assert default_data_dir() == Path("/somewhere")
    monkeypatch.delenv("SUREHOOK_DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", "/home/x/.data")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/surehook")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_data_dir() == Path("/home/x/.data/surehook")


@only_as_root
def test_an_ordinary_user_runs_it_as_itself(place: Path) -> None:
    python = next((one for one in PYTHONS if _works_for_nobody(one, place)), None)
    if python is None or system_binaries() is None:
        pytest.skip("nobody can reach neither a Python nor a PostgreSQL here")
    home = place / "home"
    home.mkdir()
    shutil.chown(home, "nobody")
    source = place / "source" / "surehook"
    shutil.copytree(Path(surehook.__file__).parent, source)
    done = subprocess.run(
        [python, "-c", PROGRAM, str(home / "data"), "", "off"],
        input="\n",
        capture_output=True,
        text=True,
        user="nobody",
        group=(home.stat().st_gid),
        extra_groups=[],
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source.parent)},
        check=False,
    )
    assert done.stdout.startswith("ready"), done.stdout + done.stderr
    assert (home / "data" / "postgres").stat().st_uid == home.stat().st_uid
    assert not processes_of(place)
    # Root goes on with that directory as its owner, not as the account it would itself choose.
    with EmbeddedServer(home / "data", settings=FAST) as server:
        assert sql(server, "SELECT 1") == "1"
        assert (home / "data" / "server.json").stat().st_uid == home.stat().st_uid


def _works_for_nobody(python: str, place: Path) -> bool:
    asked = "import sys; sys.exit(sys.version_info < (3, 11))"
    try:
        command = [python, "-c", asked]
        done = subprocess.run(command, user="nobody", extra_groups=[], cwd="/", check=False)
    except OSError:
        return False
    return done.returncode == 0
