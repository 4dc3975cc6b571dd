"""What deploy/ ships, as far as it can be read: settings exist, units are hardened, files agree."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from surehook import __version__
from surehook.config import FROM_FILE, LOGIN_URL, OTHER_VARIABLES
from surehook.config.settings import LOGINS, SETTINGS
from surehook.process.components import COMPONENTS

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".json")
SYSTEMD = DEPLOY / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))


def names(paths: list[Path]) -> list[str]:
    return [path.relative_to(DEPLOY).as_posix() for path in paths]


def known_variables() -> set[str]:
    secrets = {setting.variable for setting in SETTINGS if setting.secret}
    secrets |= {f"{LOGIN_URL}{login.upper()}" for login in LOGINS}
    plain = {setting.variable for setting in SETTINGS}
    return plain | secrets | {name + FROM_FILE for name in secrets} | set(OTHER_VARIABLES)


@pytest.mark.parametrize("path", FILES, ids=names(FILES))
def test_every_variable_in_the_file_is_a_setting(path: Path) -> None:
    named = set(re.findall(r"\bSUREHOOK_[A-Z_]+[A-Z]\b", path.read_text(encoding="utf-8")))
    assert named <= known_variables()


# ── systemd ───────────────────────────────────────────────────────────────────────────────────


def lines_of(unit: Path) -> list[str]:
    text = unit.read_text(encoding="utf-8").partition("[Service]")[2]
    return [line for line in text.splitlines() if line and not line.startswith(("#", "ExecStart"))]


def test_both_units_differ_in_what_they_start_and_nowhere_else() -> None:
    serve, one = UNITS
    assert lines_of(serve) == lines_of(one)


def systemd_analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("NOT SHOWN: what systemd says to the units (no systemd-analyze)")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unit", UNITS, ids=names(UNITS))
def test_a_unit_is_exposed_no_more_than_2_0(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name.replace("@", "@worker")
    shutil.copy(unit, copy)
    done = systemd_analyze("security", "--offline=true", "--threshold=20", str(copy))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=names(UNITS))
def test_systemd_understands_every_line_of_a_unit(unit: Path, tmp_path: Path) -> None:
    """The program, which is not there, stands for itself: /bin/true is."""
    text = unit.read_text(encoding="utf-8").replace("/opt/surehook/bin/surehook", "/bin/true")
    copy = tmp_path / unit.name.replace("@", "@worker")
    copy.write_text(text)
    done = systemd_analyze("verify", "--man=no", str(copy))
    wrong = [line for line in done.stderr.splitlines() if copy.name in line]
    assert not wrong


# ── Image and compose ─────────────────────────────────────────────────────────────────────────


def test_what_the_image_copies_is_there_and_sent_to_the_builder() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    sent = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    sources = {name for line in copied for name in line.split()}
    assert sources
    for name in sources:
        assert (REPOSITORY / name).exists() and f"!{name}\n" in sent, name


def compose(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


COMPOSE = ["compose.yaml", "compose.postgres.yaml", "compose.mysql.yaml"]


def ours(name: str) -> Iterator[Any]:
    for service in compose(name)["services"].values():
        if service["image"] == "surehook":
            yield service


@pytest.mark.parametrize("name", COMPOSE)
def test_our_containers_may_write_nowhere_and_have_no_privilege(name: str) -> None:
    assert list(ours(name))
    for service in ours(name):
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["stop_grace_period"] == "45s"


@pytest.mark.parametrize("name", [*COMPOSE, "compose.monitoring.yaml"])
def test_no_container_is_published_beyond_this_machine(name: str) -> None:
    for service in compose(name)["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", COMPOSE)
def test_what_a_compose_file_asks_of_the_environment_is_what_init_prints(name: str) -> None:
    from surehook.cli.init import environment_file

    texts = [(DEPLOY / file).read_text() for file in (name, "compose.monitoring.yaml")]
    asked = set(re.findall(r"\$\{(\w+)", "".join(texts)))
    printed = set(re.findall(r"^(\w+)=", environment_file(), re.MULTILINE))
    assert asked <= printed


@pytest.mark.parametrize("name", [*COMPOSE, "compose.monitoring.yaml"])
def test_every_file_that_a_container_mounts_is_there(name: str) -> None:
    for service in compose(name)["services"].values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).is_dir(), source


# ── Chart ─────────────────────────────────────────────────────────────────────────────────────

CHART = DEPLOY / "helm" / "surehook"


def test_the_deployments_of_the_chart_run_every_component_once() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    parts = ",".join(one["components"] for one in values["split"].values())
    assert sorted(parts.split(",")) == sorted(COMPONENTS)


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert __version__.startswith(chart["appVersion"])
