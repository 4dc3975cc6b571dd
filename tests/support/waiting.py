"""Waiting: for a state, looked at again and again, or for something that must not take long.

Reads   whatever the condition reads
Writes  nothing
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar

T = TypeVar("T")

# For whatever another process, a thread or a server has to do: more than any machine needs, however
# busy it is. A wait ends with what it waits for, so this costs time only when it fails.
PATIENCE = 300.0
LEASE_SECONDS = 300
# What our own processes are given, wherever it is not the subject when they give up: else a slow
# machine gets 503 for an answer, loses its database, or sends a second time what took too long.
PATIENT = {
    "SUREHOOK_API_ANSWER_TIMEOUT": f"{PATIENCE}s",
    "SUREHOOK_API_REQUEST_TIMEOUT": f"{PATIENCE}s",
    "SUREHOOK_DATABASE_CONNECT_TIMEOUT": f"{PATIENCE}s",
    "SUREHOOK_REQUEST_TIMEOUT": "200s",
    "SUREHOOK_LEASE_DURATION": f"{LEASE_SECONDS}s",
}
LOOK_SECONDS = 0.01
# A request passes through fewer rounds of the loop than this.
STEPS = 40


async def until(
    condition: Callable[[], Any],
    timeout: float = PATIENCE,
    what: Callable[[], object] = lambda: "",
) -> Any:
    """The condition's first true value; fails with `what()` when the time is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    while True:
        found = condition()
        value = await found if isawaitable(found) else found
        if value:
            return value
        if loop.time() >= end:
            raise AssertionError(f"not within {timeout} s; last seen {value!r} {what()}")
        await asyncio.sleep(LOOK_SECONDS)


async def in_time(work: Awaitable[T], seconds: float) -> T:
    """What `work` returns; it must end before many short timers of the same loop, one after the
    other, do. On a busy machine every round of the loop is late: those timers add that up, as the
    work does, which also needs some rounds beside its own timer. So speed decides nothing.

    Only for work that other timers of this loop bring to its end: what another thread or process
    has to do takes as long as it takes.
    """
    task = asyncio.ensure_future(work)
    for _ in range(STEPS):
        if not task.done():
            await asyncio.wait([task], timeout=seconds / STEPS)
    assert task.done(), f"not within {seconds} s"
    return task.result()


async def until_row(owner: Any, sql: str, *values: object, wanted: object = True) -> None:
    """Until the question's first column is `wanted`; fails when it has not changed for long."""
    last: object = None

    async def moved() -> bool:
        nonlocal last
        before, last = last, await owner.fetchval(sql, *values)
        return bool(last == wanted or last != before)

    while last != wanted:
        await asyncio.sleep(0 if last is None else LOOK_SECONDS)
        await until(moved, what=lambda: f"{sql} gave {last!r} instead of {wanted!r}")
