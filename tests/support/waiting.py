"""Waiting for a state, with a deadline: the only place where a test looks again and again.

Reads   whatever the condition reads
Writes  nothing
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

LOOK_SECONDS = 0.01


async def until(
    condition: Callable[[], Any],
    timeout: float = 40.0,
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


async def until_row(
    owner: Any, sql: str, *values: object, wanted: object = True, timeout: float = 40.0
) -> None:
    """Until the question's first column is `wanted`."""
    last: object = None

    async def asked() -> bool:
        nonlocal last
        last = await owner.fetchval(sql, *values)
        return last == wanted

    await until(asked, timeout, lambda: f"{sql} gave {last!r} instead of {wanted!r}")
