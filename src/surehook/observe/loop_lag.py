"""By how much the event loop is late: the first sign of too little CPU.

Reads   the clock of the event loop      Writes  nothing

A timer that is due twice a second notes how late it came. The worst of the last half minute is
shown, so that no scrape misses it.
"""

from __future__ import annotations

import asyncio
from collections import deque

LOOK_SECONDS = 0.5
KEPT = 60


class LoopLag:
    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=KEPT)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._wait(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def worst(self) -> float:
        return max(self._late, default=0.0)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(LOOK_SECONDS, self._look, loop, loop.time() + LOOK_SECONDS)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._late.append(max(0.0, loop.time() - due))
        self._wait(loop)
