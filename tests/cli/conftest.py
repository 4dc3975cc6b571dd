"""The API of this test's own database, and commands that call it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from support import Configure
from support.commands import SENDING, Command, commands
from surehook.store.logins import Place


@pytest.fixture
async def open_commands(
    configure: Configure, place: Place, tmp_path: Path
) -> AsyncIterator[object]:
    """await open_commands("verifier", …): the API with these components beside it."""
    async with AsyncExitStack() as opened:

        async def opening(*components: str) -> Command:
            return await opened.enter_async_context(
                commands(configure(SENDING), place, *components, home=str(tmp_path))
            )

        yield opening


@pytest.fixture
async def command(configure: Configure, place: Place, tmp_path: Path) -> AsyncIterator[Command]:
    """await command("event", "list"): what it printed, and its exit code."""
    async with commands(configure(SENDING), place, home=str(tmp_path)) as running:
        yield running
