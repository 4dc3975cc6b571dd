"""Doctor: proves that a database is fit for surehook, finding by finding.

Reads   what the engine's own doctor reads, one sealed secret       Writes  nothing

A finding is one line: what was looked at, what it means, what to do. A database that cannot be
reached is DatabaseUnreachable, not a finding.
"""

from __future__ import annotations

from typing import Any

from surehook.config import Config
from surehook.delivery.secrets import HOW_TO_MAKE, SETTING, Sealer, SealingError, parse_keys
from surehook.errors import Declined
from surehook.process.database import opened
from surehook.store import engine_of, store_of
from surehook.store.findings import Finding, Level
from surehook.store.logins import DatabaseAccess
from surehook.store.worker import WorkerStore

SUBJECT = "encryption key"


async def examine(config: Config, access: DatabaseAccess) -> list[Finding]:
    """Everything that can be found out; stops early where the rest would make no sense."""
    findings = await engine_of(access.url).examine(config, access)
    if all(finding.level is not Level.WRONG for finding in findings):
        findings.append(await _encryption_key(config, access))
    return findings


async def _encryption_key(config: Config, access: DatabaseAccess) -> Finding:
    """Whether the worker will be able to sign: it must have the key of what was stored last."""
    try:
        sealer = Sealer(parse_keys(access.encryption_key or ""))
        async with opened(config, access, "worker") as database:
            stored = await store_of(WorkerStore, database, "doctor").newest_secret()
        for sealed in stored:
            sealer.require_key_of(sealed)
    except SealingError as error:
        return Finding(SUBJECT, Level.WRONG, error.message, error.advice)
    if not sealer.has_keys:
        says = f"{SETTING} is not set: no subscription can be created."
        return Finding(SUBJECT, Level.NOTE, says, HOW_TO_MAKE)
    what = "fits the secrets that are stored" if stored else "is set; no secret is stored yet"
    return Finding(SUBJECT, Level.GOOD, f"the key {what}")


async def refuse_if_unsafe(config: Config, url: str, connection: Any) -> None:
    """For programs about to start: a server that forgets acknowledged writes is refused."""
    finding = await engine_of(url).durability(config, connection)
    if finding.level is Level.WRONG:
        raise Declined(finding.says, finding.advice)
