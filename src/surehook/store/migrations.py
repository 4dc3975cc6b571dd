"""The numbered migrations of each engine, and what a database says it has. Reads package files.

What migrating has in common on all engines is here: patience with locks, the number of buckets.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeVar

from surehook import __version__
from surehook.errors import ConfigError, DatabaseUnreachable, Declined
from surehook.model.wording import counted

Result = TypeVar("Result")
Report = Callable[[str], None]

TRIES_MAX = 60


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    text: str
    oldest_program: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def rendered(self, buckets: int) -> str:
        partitioning = "PARTITION BY LIST (bucket)" if buckets > 1 else ""
        return self.text.replace(":partitioning", partitioning).replace(":buckets", str(buckets))


def new_installation() -> str:
    """Random, short and readable: 40 bits as hexadecimal digits."""
    return secrets.token_hex(5)


@cache  # every login asks when it opens
def migrations(dialect: str) -> tuple[Migration, ...]:
    """The migrations of this program for one engine, in order."""
    found = []
    for file in files("surehook.store").joinpath(dialect, "migrations").iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if match is None:
            continue
        text = file.read_text(encoding="utf-8")
        oldest = re.search(r"^-- oldest program: (\S+)$", text, re.MULTILINE)
        assert oldest, f"{file.name} does not say the oldest program that works with it"
        found.append(Migration(int(match[1]), match[2], text, oldest[1]))
    return tuple(sorted(found, key=lambda migration: migration.version))


def generated_sql(dialect: str, name: str) -> str:
    """A file that `make generate` wrote for this engine."""
    resource = files("surehook.store").joinpath(dialect, "generated", f"{name}.sql")
    return resource.read_text(encoding="utf-8")


def version_tuple(version: str) -> tuple[int, ...]:
    """0.1.0.dev0 counts as 0.1.0: a development version has its release's schema."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in (numbers[0] if numbers else "0").split("."))


# ── What is there ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Applied:
    version: int
    name: str
    checksum: str
    oldest_program: str


@dataclass(frozen=True, slots=True)
class State:
    """What a database says about its own schema."""

    dialect: str
    applied: dict[int, Applied]
    settings: dict[str, str]

    @property
    def pending(self) -> list[Migration]:
        return [m for m in migrations(self.dialect) if m.version not in self.applied]

    @property
    def installation(self) -> str:
        """A part of every webhook-id; empty until a migration has made it."""
        return self.settings.get("installation", "")

    @property
    def buckets(self) -> int | None:
        return int(self.settings["buckets"]) if "buckets" in self.settings else None

    @property
    def summary(self) -> str:
        """For people, once nothing is refused."""
        buckets = counted(self.buckets or 1, "bucket")
        return f"up to date, {buckets}, installation {self.installation}"

    def refuse_if_too_new(self) -> None:
        """A running program survives a rolling upgrade until a migration says it is too old."""
        needed = max(
            (applied.oldest_program for applied in self.applied.values()),
            key=version_tuple,
            default="0",
        )
        if version_tuple(needed) > version_tuple(__version__):
            raise Declined(
                f"This database needs surehook {needed} or newer; this is {__version__}.",
                "Upgrade this program.",
            )

    def refuse_if_changed(self) -> None:
        for migration in migrations(self.dialect):
            applied = self.applied.get(migration.version)
            if applied and applied.checksum != migration.checksum:
                raise Declined(
                    f"Migration {migration.version} ({migration.name}) is not the one that was "
                    "applied to this database.",
                    "Released migrations never change: use the program that applied it.",
                )

    def refuse_if_too_old(self) -> None:
        if self.pending:
            names = ", ".join(f"{m.version} {m.name}" for m in self.pending)
            raise Declined(f"The database lacks migrations: {names}.", "Run `surehook migrate`.")
        if not self.installation:
            raise Declined("The database lacks its installation id.", "Run `surehook migrate`.")


# ── Migrating ─────────────────────────────────────────────────────────────────────────────────


def agreed_buckets(fixed: int, wanted: int | None) -> int:
    """Their number is fixed by the first migration."""
    if wanted is not None and wanted != fixed:
        raise ConfigError(
            f"database.buckets is {wanted}, but this database was made with {fixed}.",
            "The number cannot change later: leave the setting out.",
        )
    return fixed


async def patiently(
    work: Callable[[], Awaitable[Result]],
    report: Report,
    busy: Callable[[Exception], tuple[str, bool] | None],
    look_at: str,
) -> Result:
    """Again while someone else holds a lock or changes the same thing.

    `busy` is the engine's: what it says, and if it is a lock; None if trying again is useless.
    """
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            return await work()
        except Exception as error:
            reason = busy(error)
            if reason is None:
                raise
            if not tries_left:
                raise DatabaseUnreachable(
                    f"The schema could not be changed for {TRIES_MAX} tries ({reason[0]}).",
                    f"Something holds a lock on it: look at {look_at}, then run migrate again.",
                ) from None
            if reason[1]:
                report("someone holds a lock on the schema; trying again")
            await asyncio.sleep(random.uniform(0.05, 0.3))
    raise AssertionError("the loop returns or raises")
