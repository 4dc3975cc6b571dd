"""Moving a cluster to a newer major version of PostgreSQL with pg_upgrade, in copy mode.

The new cluster is made beside. Two renames put it in place, and `finish` completes them at the next
start if they were cut short, so that a start never finds no cluster and makes an empty one. The old
cluster stays as `postgres.old-…` and is never changed.

Reads the cluster; writes `postgres.new-*`, `postgres.upgraded`, `postgres.old-*`, `postgres` and
log/upgrade.log in the data directory.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from surehook.embedded.binaries import Binaries
from surehook.embedded.cluster import DRAFT, clean_environment, make_draft
from surehook.embedded.directory import OWNER, DataDirectory, sync_directory
from surehook.errors import EmbeddedServerError


def require_space(data: DataDirectory) -> None:
    needed = sum(one.lstat().st_size for one in data.cluster.rglob("*") if one.is_file())
    free = shutil.disk_usage(data.path).free
    if free < needed * 1.2:
        raise EmbeddedServerError(
            f"The upgrade makes a copy of {needed >> 20} MB, but only {free >> 20} MB are free in"
            f" {data.path}.",
            "Make room and run it again.",
        )


def upgrade(data: DataDirectory, old: Binaries, new: Binaries, socket_directory: Path) -> Path:
    """Copy the stopped cluster into one of the new version; returns where the old one is kept."""
    draft = make_draft(data, new)
    work = Path(tempfile.mkdtemp(prefix=f"{DRAFT}work-", dir=data.path))
    done = subprocess.run(
        [
            new.program("pg_upgrade"),
            *("--old-bindir", old.directory, "--new-bindir", new.directory),
            *("--old-datadir", data.cluster, "--new-datadir", draft),
            *("--username", OWNER, "--socketdir", socket_directory),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=clean_environment() | {"PGPASSFILE": str(data.passfile)},
        cwd=work,
        check=False,
    )
    (data.log / "upgrade.log").write_text(done.stdout)
    if done.returncode != 0:
        raise EmbeddedServerError(
            f"pg_upgrade from {old.version} to {new.version} failed; the old data is untouched.",
            f"What it said is in {data.log / 'upgrade.log'}.",
        )
    return _put_in_place(data, draft, old)


def finish(data: DataDirectory) -> None:
    """After a crash: complete an upgrade whose new cluster is the only one, forget it otherwise."""
    if not data.upgraded.exists():
        return
    if data.cluster.exists():
        shutil.rmtree(data.upgraded)
    else:
        data.upgraded.rename(data.cluster)
    sync_directory(data.path)


def _put_in_place(data: DataDirectory, draft: Path, old: Binaries) -> Path:
    kept = data.path / f"postgres.old-{old.major}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    draft.rename(data.upgraded)
    sync_directory(data.path)
    data.cluster.rename(kept)
    data.upgraded.rename(data.cluster)
    sync_directory(data.path)
    return kept
