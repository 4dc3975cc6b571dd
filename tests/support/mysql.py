"""Where a real MySQL's programs are, how they get there, and how they want to be called.

Reads   the machine's own apt sources, packages of Debian unstable
Writes  the directory that `home()` names, once; it survives runs and clones

Debian's stable releases have MariaDB only. Its unstable one has MySQL, linked against a newer C
library than the machine may have, so the server is unpacked with every library it needs, into a
directory of its own, and started by its own loader. Nothing is installed, so no root is needed.

    python tests/support/mysql.py     what `make mysql` runs
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

PACKAGES = ("mysql-server-core", "mysql-client-core")
SUITE = "sid"
# A package's dependency that the server itself has no use for: scripts.
NOT_NEEDED = ("perl", "libperl", "libgdbm", "libdb5")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SETTINGS = (
    "--innodb-redo-log-capacity=128M",
    "--skip-log-bin",  # a run's data is nobody's to replay
    "--mysqlx=OFF",
    "--secure-file-priv=",  # Debian's build names a directory that is not there
)


class NotToBeHad(Exception):
    """Why there is no MySQL for this machine."""


# ── Calling it ────────────────────────────────────────────────────────────────────────────────


@cache  # known before its keeper becomes another account
def home() -> Path:
    """Where the programs are kept: the server's own account must reach it too."""
    if os.geteuid() == 0:
        return Path("/var/cache/surehook-tests/mysql")
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "surehook-tests", "mysql")


def is_installed() -> bool:
    return all((home() / name).exists() for name in ("usr/sbin/mysqld", "usr/bin/mysqldump"))


def directory() -> Path:
    return home() / "usr/sbin"


@cache
def daemon() -> list[str]:
    return _loaded(directory() / "mysqld")


def client(name: str) -> list[str]:
    """mysql or mysqldump."""
    return _loaded(home() / "usr/bin" / name)


def _loaded(program: Path) -> list[str]:
    loader = next(home().glob("usr/lib/*/ld-linux*.so.*"))
    return [str(loader), "--library-path", str(loader.parent), str(program)]


def initialization(data: Path) -> list[str]:
    """What makes a new data directory."""
    return [
        *daemon(),
        "--no-defaults",
        f"--datadir={data}",
        "--initialize-insecure",
        "--secure-file-priv=",
        "--innodb-flush-method=nosync",
        "--innodb-use-native-aio=0",
    ]


# ── Getting it ────────────────────────────────────────────────────────────────────────────────


def install() -> None:
    """Unpack it, unless it is there; several may try at once."""
    place = home()
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if is_installed():
            return
        for program in ("apt-get", "dpkg"):
            if shutil.which(program) is None:
                raise NotToBeHad(f"there is no {program} here")
        print(f"unpacking {', '.join(PACKAGES)} of Debian {SUITE} into {place}", flush=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
            root = Path(scratch, "root")
            root.mkdir()
            for package in _download(Path(scratch)):
                _run("dpkg", "-x", str(package), str(root))
            root.chmod(0o755)
            shutil.rmtree(place, ignore_errors=True)
            root.rename(place)


def _download(scratch: Path) -> list[Path]:
    """The server's package and all that it depends on, by an apt that knows nothing else."""
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (scratch / "sources.list").write_text(f"deb {signed}{_mirror()} {SUITE} main\n")
    (scratch / "status").touch()  # nothing is installed: every library comes from there
    for name in ("parts", "state/lists/partial", "cache/archives/partial"):
        (scratch / name).mkdir(parents=True)
    options = {
        "Dir::Etc::SourceList": scratch / "sources.list",
        "Dir::Etc::SourceParts": scratch / "parts",
        "Dir::Etc::PreferencesParts": scratch / "parts",
        "Dir::State": scratch / "state",
        "Dir::State::Lists": scratch / "state/lists",
        "Dir::State::Status": scratch / "status",
        "Dir::Cache": scratch / "cache",
        "APT::Sandbox::User": "",
        "APT::Install-Recommends": "false",
        "APT::Get::AllowUnauthenticated": "false",
        "Acquire::Retries": "3",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Debug::NoLocking": "true",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    _run(*apt, "update")
    _run(*apt, "--download-only", "--yes", "install", *PACKAGES)
    packages = sorted((scratch / "cache/archives").glob("*.deb"))
    return [one for one in packages if not one.name.startswith(NOT_NEEDED)]


def _mirror() -> str:
    """Where this machine gets its own Debian from, read from its sources: no update is needed."""
    said = _run("apt-get", "-o", "Debug::NoLocking=true", "--print-uris", "update")
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    codename = release.get("VERSION_CODENAME", "").strip('"')
    found = re.search(rf"^'(\S+)/dists/{codename}/", said, re.MULTILINE)
    if release.get("ID") != "debian" or not found:
        raise NotToBeHad("this machine's packages are not Debian's")
    return found[1]


def _run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NotToBeHad(f"{command[0]}: {lines[-1]}")
    return done.stdout


if __name__ == "__main__":
    try:
        install()
    except (NotToBeHad, OSError) as error:
        print(f"MySQL cannot be had: {error}. The tests will say what was not run.")
        sys.exit(0)
