"""Programs of others that tests use where they are: clients of the API, and proxies before it.

Reads   PATH, the packages of the system's Python       Writes  nothing

A test asks for those that are here; the run says at its end which were not.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# What each is called in Debian.
PACKAGES = {
    "curl": "curl",
    "nginx": "nginx-light",
    "haproxy": "haproxy",
    "java": "openjdk-17-jdk-headless",
    "go": "golang-go",
    "node": "nodejs",
    "aiohttp": "python3-aiohttp",
}
_PATH = os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin"
# A package of Debian's own Python, not of the one that runs the tests.
_OF_PYTHON = {"aiohttp": Path("/usr/lib/python3/dist-packages/aiohttp")}


def program(name: str) -> str | None:
    if name in _OF_PYTHON:
        return shutil.which("/usr/bin/python3") if _OF_PYTHON[name].is_dir() else None
    return shutil.which(name, path=_PATH)


def here(*names: str) -> list[str]:
    return [name for name in names if program(name)]


def missing() -> list[str]:
    return [name for name in PACKAGES if not program(name)]
