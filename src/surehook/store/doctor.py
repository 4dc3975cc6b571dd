"""What the doctors of all engines have in common: what a finding means, and the logins.

Reads   what it is given, and the catalogue as each role       Writes  nothing

A finding is one line: what was looked at, what it means, what to do. A database that cannot be
reached is not a finding but DatabaseUnreachable. What is looked at, and in which order, is in each
engine's folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from surehook.config import Config
from surehook.errors import Declined, SurehookError
from surehook.model.roles import ROLES_ON, Role
from surehook.store.database import Database
from surehook.store.findings import Finding, Level
from surehook.store.logins import DatabaseAccess, login
from surehook.store.migrations import State
from surehook.store.rights import Right, expected
from surehook.store.shape import Fault, listed

Result = TypeVar("Result")
Around = tuple[str, set[Right]]  # who a login is, and what it may do

# A statement that meets a lock must come back at once; one that waits this long does not skip.
SKIP_SECONDS_MAX = 2.0
CLOCK_SECONDS_MAX = 5.0
ROW_TO_LOCK = "SELECT name FROM schema_settings WHERE name = 'buckets' FOR UPDATE"


def refusal(subject: str, error: SurehookError) -> Finding:
    return Finding(subject, Level.WRONG, error.message, error.advice)


def durability_of(config: Config, unsafe: str, good: str, advice: str) -> Finding:
    """Whether the server forgets what it acknowledged: `unsafe` says by which settings."""
    if not unsafe:
        return Finding("durability", Level.GOOD, good)
    says = f"The server may lose acknowledged events: {unsafe}."
    if config.flag("database.allow_unsafe"):
        return Finding("durability", Level.NOTE, says, "Permitted by database.allow_unsafe.")
    advice += "; or set database.allow_unsafe = true if losing events is acceptable here."
    return Finding("durability", Level.WRONG, says, advice)


async def clock(asking: Awaitable[datetime]) -> Finding:
    asked = datetime.now(UTC)
    theirs = await asking
    ours = asked + (datetime.now(UTC) - asked) / 2
    seconds = (theirs - ours).total_seconds()
    if abs(seconds) <= CLOCK_SECONDS_MAX:
        return Finding("clock", Level.GOOD, f"the database's clock differs by {seconds:+.3f} s")
    return Finding(
        "clock",
        Level.NOTE,
        f"The database's clock differs from this machine's by {seconds:+.1f} s.",
        "Only the database's counts; receivers refuse signatures that are minutes off: run NTP.",
    )


def schema(state: State) -> Finding:
    try:
        state.refuse_if_too_new()
        state.refuse_if_changed()
        state.refuse_if_too_old()
    except Declined as error:
        return refusal("schema", error)
    return Finding("schema", Level.GOOD, state.summary)


def parts(wrong: list[Fault], compared: str) -> Finding:
    """Whether these parts of the schema are what the migrations made."""
    if wrong:
        return Finding("parts", Level.WRONG, f"{listed(wrong)}.", "Run `surehook migrate`.")
    return Finding("parts", Level.GOOD, f"{compared} are as migrated")


async def unless_it_waits(rows: Awaitable[Result]) -> Result:
    """What a statement returned at once; TimeoutError if it waited for a lock."""
    return await asyncio.wait_for(rows, SKIP_SECONDS_MAX)


def locks(not_skipping: str, engine: str) -> Finding:
    """Whether a row that one connection holds is passed by, by another; else why not."""
    if not not_skipping:
        return Finding("locks", Level.GOOD, "SKIP LOCKED passes by what another connection holds")
    return Finding(
        "locks",
        Level.WRONG,
        f"SKIP LOCKED does not skip here ({not_skipping}).",
        f"Use {engine} itself: workers would wait for each other or send the same job twice.",
    )


# ── The logins ────────────────────────────────────────────────────────────────────


async def logins(
    config: Config,
    access: DatabaseAccess,
    kind: type[Database],
    look_around: Callable[[Any], Awaitable[Around]],
    difference_of: Callable[[Role, set[Right]], str],
) -> list[Finding]:
    """Each logs in as it does in service, through its pool, and looks around."""
    roles = ROLES_ON[kind.dialect]

    async def finding(subject: str, who: str, judge: Callable[[set[Right]], str]) -> Finding:
        database = kind(config, login(config, access, who))
        try:
            await database.open()  # asserts the session settings from inside
            user, found = await database.run(look_around)
        except SurehookError as error:
            return refusal(subject, error)
        finally:
            await database.close()
        words = judge(found)
        if words:
            return Finding(subject, Level.WRONG, f"{user} {words}.", "Run `surehook migrate`.")
        who = who if config.flag("database.roles") else user
        return Finding(subject, Level.GOOD, f"{who} logs in, its settings and rights are right")

    if config.flag("database.roles"):
        return [
            await finding(f"role {role.name}", role.login, partial(difference_of, role))
            for role in roles
        ]
    return [
        Finding(
            "roles",
            Level.NOTE,
            "Roles are off: every login is the main one, with all of its rights.",
            "The database no longer stops a component that oversteps its part; the triggers "
            "still refuse forbidden moves and changes of events and dead letters.",
        ),
        await finding("main login", roles[0].login, partial(_lacking, roles)),
    ]


def _lacking(roles: tuple[Role, ...], found: set[Right]) -> str:
    """With roles off one login does everything: it must be able to, by whichever right."""
    needed: set[Right] = set().union(*(expected(role) for role in roles))
    missing = [
        (verb, table, column)
        for verb, table, column in needed
        if not {(verb, table, column), (verb, table, "*"), (verb, "*", "*"), (verb, "*.*", "*")}
        & found
    ]
    return f"lacks {len(missing)} of the rights that the logins need" if missing else ""
