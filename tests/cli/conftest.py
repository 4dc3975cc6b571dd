"""The API of this test's own database, and commands that call it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support import Configure
from support.commands import SENDING, Command, commands
from surehook.store.logins import DatabaseAccess


@pytest.fixture
def components() -> tuple[str, ...]:
    """What works beside the API; override by @pytest.mark.parametrize."""
    return ()


@pytest.fixture
async def command(
    configure: Configure, access: DatabaseAccess, tmp_path: Path, components: tuple[str, ...]
) -> AsyncIterator[Command]:
    """await command("event", "list"): what it printed, and its exit code."""
    async with commands(configure(SENDING), access, *components, home=str(tmp_path)) as running:
        yield running
