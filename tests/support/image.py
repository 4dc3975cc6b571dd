"""The image of deploy/Dockerfile, built and run without a container engine.

Reads   deploy/Dockerfile and what it copies
Writes  below a directory of its own; a base of Debian packages is kept in the tests' cache

buildah builds with chroot isolation. The base, which a registry would have, is made of Debian's
packages under the name that the Dockerfile asks for. A container is the image's files mounted
read-only, a volume and a tmpfs, and the image's own command as its own user.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
CACHE = Path("/var/cache/surehook-tests")
BASE = "docker.io/library/python:3.11-slim-bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
NEEDED = ("buildah", "mmdebstrap", "unshare", "chroot")


def missing() -> str:
    """Why no image can be built here; empty if it can."""
    if os.geteuid() != 0:
        return "not root"
    return ", ".join(f"no {name}" for name in NEEDED if shutil.which(name) is None)


class Images:
    """A private store of images."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def buildah(self, *arguments: str) -> str:
        store = ["--root", str(self.directory / "root"), "--runroot", str(self.directory / "run")]
        done = subprocess.run(
            ["buildah", *store, "--storage-driver", "vfs", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=REPOSITORY,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout.strip()

    def make_base(self) -> None:
        packed = CACHE / "base-bookworm.tar"
        if not packed.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            half = packed.with_suffix(f".{os.getpid()}.tar")
            command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}"]
            subprocess.run([*command, "bookworm", str(half)], check=True)
            half.rename(packed)
        made = self.buildah("from", "scratch")
        self.buildah("add", made, str(packed), "/")
        self.buildah("commit", "--rm", made, BASE)

    def build(self, name: str, *arguments: str) -> None:
        """As the first lines of the Dockerfile say; packages come as they do on this machine."""
        machine = ["/etc/ssl/certs", "/etc/pip.conf", "/etc/resolv.conf"]
        given = [f"--volume={path}:{path}:ro" for path in machine if Path(path).exists()]
        own = Path.home() / ".config" / "pip" / "pip.conf"
        if own.exists() and not Path("/etc/pip.conf").exists():
            given.append(f"--volume={own}:/etc/pip.conf:ro")
        self.buildah(
            *("bud", "--isolation", "chroot", "--pull-never", "--network", "host", *given),
            *("--format", "docker", *arguments, "-f", "deploy/Dockerfile", "-t", name, "."),
        )

    def configuration(self, name: str) -> dict[str, Any]:
        read = json.loads(self.buildah("inspect", "--type", "image", name))
        config: dict[str, Any] = read["Docker"]["config"]
        return config

    def mounted(self, name: str) -> Path:
        made = self.buildah("from", "--pull-never", name)
        return Path(self.buildah("mount", made))


# What runs before the image's command, in its own mount namespace.
ENTER = """
set -eu
root=$1 data=$2 user=$3; shift 3
mount --bind "$root" "$root"
mount --bind "$data" "$root/var/lib/surehook"
mount -t tmpfs tmpfs "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,bind,ro "$root"
exec chroot --userspec="$user" "$root" "$@"
"""


class Container:
    """One image's files with one volume."""

    def __init__(self, root: Path, config: dict[str, Any], data: Path, env: dict[str, str]) -> None:
        self._root, self.data = root, data
        self._user = config["User"]
        self._environment = dict(pair.split("=", 1) for pair in config["Env"]) | env
        self._entry = config["Entrypoint"]
        uid, gid = map(int, self._user.split(":"))
        os.chown(data, uid, gid)

    def command(self, *arguments: str) -> list[str]:
        inside = ["env", "-i", *(f"{name}={value}" for name, value in self._environment.items())]
        # `env` finds the program by the image's PATH; a working directory is the volume's.
        return [
            *("unshare", "--mount", "sh", "-c", ENTER, "sh", str(self._root), str(self.data)),
            *(self._user, *inside, *arguments),
        ]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*self._entry, *arguments), stdout=sys.stderr, stderr=subprocess.PIPE
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False)
