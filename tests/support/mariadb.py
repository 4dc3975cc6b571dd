"""Where MariaDB's programs are and how they want to be called. Reads the path; writes nothing."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

# Where Debian and others keep daemons that are not in an ordinary user's path.
PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/mysql/bin")
SETTINGS = ("--innodb-log-file-size=64M",)


@cache
def program(name: str) -> Path | None:
    """A program of MariaDB's, if this machine has it."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *PLACES])
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def is_installed() -> bool:
    return all(program(name) for name in ("mariadbd", "mariadb-install-db"))


def directory() -> Path:
    daemon = program("mariadbd")
    assert daemon is not None, "this machine has no MariaDB"
    return daemon.parent


def daemon() -> list[str]:
    return [str(directory() / "mariadbd")]


def initialization(data: Path) -> list[str]:
    """What makes a new data directory."""
    return [
        str(program("mariadb-install-db")),
        "--no-defaults",
        f"--datadir={data}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
        "--innodb-flush-method=nosync",
        "--innodb-use-native-aio=0",
    ]


def client(name: str) -> list[str]:
    """By the name that MySQL's has: mysql or mysqldump."""
    found = program(name.replace("mysqldump", "mariadb-dump").replace("mysql", "mariadb"))
    assert found is not None, f"this machine has no {name} of MariaDB's: make mariadb"
    return [str(found)]
