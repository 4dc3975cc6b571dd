"""Crash points: every gap between two commits has a name, and a test can stop the program there.

Reads   SUREHOOK_TEST_CRASHPOINT, once, when a process starts       Writes  nothing

Not armed, `await here(...)` is one comparison. facts.py lists the points.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from surehook.observe.facts import POINTS

Action = Callable[[], Awaitable[None]]

_armed: dict[str, Action] | None = None


class Crash(BaseException):
    """Raised at an armed point; not an Exception: no recovery code may catch it."""


async def here(point: str) -> None:
    """A gap between two commits."""
    if _armed is not None and point in _armed:
        await _armed[point]()


def arm(point: str, action: Action) -> None:
    """Let a test act at `point` from now on."""
    global _armed
    assert point in POINTS, point
    _armed = {**(_armed or {}), point: action}


def disarm() -> None:
    global _armed
    _armed = None


async def crash() -> None:
    raise Crash


async def kill() -> None:
    """As a power cut would: no clean-up, no last words."""
    os.kill(os.getpid(), signal.SIGKILL)


def wait(seconds: float) -> Action:
    async def waiting() -> None:
        await asyncio.sleep(seconds)

    return waiting


def arm_from_environment() -> None:
    """For processes that a test starts: POINT=kill, POINT=raise or POINT=wait:SECONDS."""
    given = os.environ.get("SUREHOOK_TEST_CRASHPOINT")
    if not given:
        return
    point, _, action = given.partition("=")
    word, _, seconds = action.partition(":")
    actions = {"kill": kill, "raise": crash, "wait": wait(float(seconds or 0))}
    arm(point, actions[word])
