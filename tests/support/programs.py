"""Programs of others that tests use where they are: clients of the API, and proxies before it.

Reads   PATH        Writes  nothing

A test asks for those that are here; the run says at its end which were not.
"""

from __future__ import annotations

import os
import shutil

# What each is called in Debian.
PACKAGES = {
    "curl": "curl",
    "nginx": "nginx-light",
    "haproxy": "haproxy",
    "java": "openjdk-17-jdk-headless",
    "go": "golang-go",
    "node": "nodejs",
}
_PATH = os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin"


def program(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


def here(*names: str) -> list[str]:
    return [name for name in names if program(name)]


def missing() -> list[str]:
    return [name for name in PACKAGES if not program(name)]
