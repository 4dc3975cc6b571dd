"""Making a cluster (PostgreSQL's word for its data directory) in one atomic step.

initdb works in a folder beside, the database is created there, everything is flushed, and only then
the folder gets its name: what a crash leaves half-done is thrown away at the next start.

Reads the passfile; writes `postgres.new-*` and `postgres` in the data directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from surehook.embedded.binaries import Binaries
from surehook.embedded.directory import DATABASE, OWNER, DataDirectory, sync_directory
from surehook.errors import EmbeddedServerError

DRAFT = "postgres.new-"


def clean_environment() -> dict[str, str]:
    """Without PG* variables, which would redirect the programs, and without anybody's secrets."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
    return {"LC_ALL": "C"} | {name: os.environ[name] for name in kept if name in os.environ}


def discard_drafts(data: DataDirectory) -> None:
    for draft in data.path.glob(f"{DRAFT}*"):
        if draft.is_dir():
            shutil.rmtree(draft)
        else:
            draft.unlink()


def create_cluster(data: DataDirectory, binaries: Binaries, *, durable: bool) -> None:
    """A new cluster with the owner and the database. The caller holds the lock."""
    assert data.major is None
    if data.cluster.exists() and any(data.cluster.iterdir()):
        raise EmbeddedServerError(
            f"{data.cluster} is not empty, yet not PostgreSQL's: PG_VERSION is missing.",
            "Put your backup back, or move it away to start with an empty database.",
        )
    data.create_secrets()
    draft = make_draft(data, binaries)
    # Flushed once, below, when all is written.
    single_user(binaries, draft, f"CREATE DATABASE {DATABASE};", "-c", "fsync=off")
    if durable:
        run(binaries, "initdb", "--sync-only", "-D", str(draft))
    draft.rename(data.cluster)
    sync_directory(data.path)


def make_draft(data: DataDirectory, binaries: Binaries) -> Path:
    """An initialised cluster under a passing name, not flushed to disk."""
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=data.path))
    password = draft.with_name(f"{draft.name}-password")
    password.touch(mode=0o600)
    password.write_text(data.owner_password())
    try:
        run(
            binaries,
            "initdb",
            *("-D", str(draft), "--username", OWNER, "--pwfile", str(password)),
            *("--auth", "scram-sha-256", "--data-checksums", "--no-sync", "--no-instructions"),
            # Bytewise order: fastest, and the same whatever C library comes along later.
            *("--encoding", "UTF8", "--locale", "C"),
        )
    finally:
        password.unlink()
    return draft


def single_user(binaries: Binaries, cluster: Path, sql: str, *options: str) -> None:
    run(binaries, "postgres", "--single", "-D", str(cluster), *options, "postgres", given=sql)


def supports_lz4(binaries: Binaries, cluster: Path) -> bool:
    """Whether this build knows lz4: a value that it does not know would stop it from starting."""
    asked = ("-C", "wal_compression", "-c", "wal_compression=lz4", "-D", str(cluster))
    return run(binaries, "postgres", *asked, check=False).returncode == 0


def run(
    binaries: Binaries, program: str, *arguments: str, given: str = "", check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's programs to its end; a failure quotes what it complained about."""
    done = subprocess.run(
        [binaries.program(program), *arguments],
        input=given,
        capture_output=True,
        text=True,
        errors="replace",
        env=clean_environment(),
        cwd="/",  # where we are may be closed to the account that we run as
        check=False,
    )
    if check and done.returncode != 0:
        raise EmbeddedServerError(
            f"PostgreSQL's {program} failed (exit {done.returncode}):"
            f" {last_complaint(done.stderr) or 'it gave no reason'}"
        )
    return done


def last_complaint(text: str) -> str:
    """The line that says why, out of a log: the last FATAL, PANIC or error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marks = ("FATAL:", "PANIC:", "ERROR:", "error:")
    for line in reversed(lines):
        for mark in marks:
            if mark in line:
                return line.partition(mark)[2].strip()
    return lines[-1] if lines else ""
