"""What the peers need, installed beside this file and nowhere else.

Reads   requirements.lock, package.json, package-lock.json
Writes  .venv and node_modules here; redis-server by apt, if it is missing and we are root
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
MODULES = HERE / "node_modules"


def python() -> Path | None:
    """The virtual environment's interpreter, everything in it; None if that cannot be."""
    ready = VENV / ".ready"
    lock = HERE / "requirements.lock"
    if not ready.exists() or ready.stat().st_mtime < lock.stat().st_mtime:
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        pip = [str(VENV / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(
            [
                *pip,
                "install",
                "--require-hashes",
                "--no-deps",
                "--only-binary",
                ":all:",
                "-r",
                lock,
            ],
            check=False,
        )
        if done.returncode:
            return None
        ready.touch()
    return VENV / "bin/python"


def node() -> Path | None:
    """Node, with the packages of package-lock.json; None if that cannot be."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        return None
    ready = MODULES / ".ready"
    lock = HERE / "package-lock.json"
    if not ready.exists() or ready.stat().st_mtime < lock.stat().st_mtime:
        command = [npm, "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        if subprocess.run(command, cwd=HERE, check=False).returncode:
            return None
        ready.touch()
    return Path(found)


def redis() -> Path | None:
    """Debian's redis-server, installed if we may."""
    found = shutil.which("redis-server")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "-qq", "install", "-y", "--no-install-recommends", "redis-server"],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        found = shutil.which("redis-server")
    return Path(found) if found else None
