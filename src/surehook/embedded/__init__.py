"""The PostgreSQL that surehook runs itself, for users who have none.

    account     as whom it runs; never as root
    binaries    which PostgreSQL programs
    directory   what lies where in the data directory: secrets, lock, state
    settings    postgresql.conf and pg_hba.conf
    cluster     initdb, in one atomic step
    postmaster  one run of `postgres`: start, wait until ready, stop
    supervisor  the process that owns it: lock, start, watch, restart, stop
    server      EmbeddedServer: what the rest of surehook uses
    upgrade     to a newer major version of PostgreSQL

Imports only `surehook.errors`. Reads the environment only to find the default data directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from surehook.errors import UsageError

__all__ = ["default_data_dir", "development_data_dir"]


def default_data_dir() -> Path:
    """Where the data lies unless somebody says otherwise."""
    if named := os.environ.get("SUREHOOK_DATA_DIR"):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/var/lib/surehook")
    if base := os.environ.get("XDG_DATA_HOME"):
        return Path(base) / "surehook"
    try:
        return Path.home() / ".local" / "share" / "surehook"
    except RuntimeError:
        raise UsageError(
            "This user has no home directory for the data.", "Name one with SUREHOOK_DATA_DIR."
        ) from None


def development_data_dir() -> Path:
    """Where `surehook dev` keeps its data by default: never among that of production."""
    usual = default_data_dir()
    return usual.with_name(f"{usual.name}-dev")
