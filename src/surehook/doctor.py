"""Doctor: proves that a database is fit for surehook, finding by finding.

Reads   what the engine's own doctor reads       Writes  nothing

A finding is one line: what was looked at, what it means, what to do. A database that cannot be
reached is no finding but DatabaseUnreachable.
"""

from __future__ import annotations

from typing import Any

from surehook.config import Config
from surehook.errors import AnswerIsNo
from surehook.store import engine_of
from surehook.store.findings import Finding, Level
from surehook.store.logins import Place


async def examine(config: Config, place: Place) -> list[Finding]:
    """Everything that can be found out; stops early where the rest would make no sense."""
    return await engine_of(place.url).examine(config, place)


async def refuse_if_unsafe(config: Config, url: str, connection: Any) -> None:
    """For programs about to start: a server that forgets acknowledged writes is refused."""
    finding = await engine_of(url).durability(config, connection)
    if finding.level is Level.WRONG:
        raise AnswerIsNo(finding.says, finding.advice)
