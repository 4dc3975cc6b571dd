"""A release: the same bytes every time, and a bill of materials that names what is locked."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import release

NAMES = re.findall(r"^([\w.-]+)==", release.LOCK.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_bill_of_materials_names_every_locked_package_with_its_hashes() -> None:
    bill = release.bill_of_materials(release.LOCK.read_text(encoding="utf-8"), "1.0")
    assert [one["name"] for one in bill["components"]] == NAMES
    assert all(one["properties"] for one in bill["components"])
    assert bill["dependencies"][0]["dependsOn"] == [one["purl"] for one in bill["components"]]
    assert json.dumps(bill)


@pytest.mark.long
def test_wheel_and_sdist_are_the_same_twice_and_hold_what_they_should(tmp_path: Path) -> None:
    inside = ["git", "rev-parse", "--is-inside-work-tree"]
    if subprocess.run(inside, cwd=release.REPOSITORY, check=False).returncode:
        pytest.skip("NOT SHOWN: that a release is reproducible (no git history)")
    wheel, sdist = release.built_twice(tmp_path)
    names = zipfile.ZipFile(wheel).namelist()
    assert "surehook/py.typed" in names
    assert "surehook/store/postgres/router.sql" in names
    assert not [name for name in names if name.startswith(("tests/", "tools/", "deploy/"))]
    with tarfile.open(sdist) as packed:
        members = [name.partition("/")[2] for name in packed.getnames()]
    assert "deploy/Dockerfile" in members and "tests/test_tidy.py" in members
