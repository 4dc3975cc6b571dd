"""Waiting for a state, with a deadline: the only place where a test looks again and again.

Reads   whatever the condition reads
Writes  nothing
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar

T = TypeVar("T")
LOOK_SECONDS = 0.01


async def until(
    condition: Callable[[], T | Awaitable[T]],
    timeout: float = 20.0,
    what: Callable[[], object] = lambda: "",
) -> T:
    """The condition's first true value; fails with `what()` when the time is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    while True:
        found = condition()
        value: Any = await found if isawaitable(found) else found
        if value:
            return value  # type: ignore[no-any-return]
        if loop.time() >= end:
            told = what()
            shown: Any = await told if isawaitable(told) else told
            raise AssertionError(f"not within {timeout} s; last seen {value!r} {shown}")
        await asyncio.sleep(LOOK_SECONDS)


async def until_row(
    owner: Any, sql: str, *values: object, wanted: object = True, timeout: float = 20.0
) -> None:
    """Until the question's first column is `wanted`."""
    last: object = None

    async def asked() -> bool:
        nonlocal last
        last = await owner.fetchval(sql, *values)
        return last == wanted

    await until(asked, timeout, lambda: f"{sql} gave {last!r} instead of {wanted!r}")
