"""Dump a database and restore it into another server, with the engine's own programs.

Reads   the database, a file of the test's own       Writes  that file, the other database

The commands are those of docs/operate/backup.md.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support import mysql_connection
from support.mysql_server import PROGRAMS
from support.server import Server

DUMP = ("--single-transaction", "--routines", "--triggers", "--no-tablespaces")


def dump(server: Server, url: str, file: Path) -> None:
    if server.engine == "postgres":
        _run([f"{server.binaries}/pg_dump", "--format=custom", f"--file={file}", url])
        return
    gtid = ["--set-gtid-purged=OFF"] if server.kind == "mysql" else []
    with file.open("wb") as out:
        _run([*_client(server, "mysqldump", url), *DUMP, *gtid, _database(url)], url, stdout=out)


def restore(server: Server, file: Path, url: str) -> None:
    if server.engine == "postgres":
        how = ["--no-owner", "--no-privileges", "--exit-on-error"]
        _run([f"{server.binaries}/pg_restore", *how, f"--dbname={url}", str(file)])
        return
    with file.open("rb") as given:
        _run([*_client(server, "mysql", url), _database(url)], url, stdin=given)


def _client(server: Server, name: str, url: str) -> list[str]:
    where = mysql_connection.parameters(url)
    return [
        *PROGRAMS[server.kind].client(name),
        "--no-defaults",
        f"--socket={where['unix_socket']}",
        f"--user={where['user']}",
    ]


def _database(url: str) -> str:
    return str(mysql_connection.parameters(url)["database"])


def _run(command: list[str], url: str = "", **how: object) -> None:
    word = mysql_connection.parameters(url)["password"] if url else ""
    done = subprocess.run(  # type: ignore[call-overload]
        command, env={**os.environ, "MYSQL_PWD": word}, stderr=subprocess.PIPE, check=False, **how
    )
    assert done.returncode == 0, done.stderr.decode()
