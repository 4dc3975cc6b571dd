"""Where this user's state is kept: certificates, the development key, notes of what runs.

Reads   the environment     Writes  nothing
"""

from __future__ import annotations

import os
from pathlib import Path

from surehook.errors import UsageError


def state_directory() -> Path:
    """That of `dev` and `listen` alike, so that the one trusts the other's certificate."""
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:
        raise UsageError(
            "This user has no home directory for certificates and keys.",
            "Name a directory for them with XDG_STATE_HOME.",
        ) from None
    return state / "surehook" / "dev"
