"""A loop that was held up is seen to be late, for a while."""

from __future__ import annotations

import time

from support.waiting import until
from surehook.observe.loop_lag import LOOK_SECONDS, LoopLag


async def test_a_loop_that_was_held_up_shows_by_how_much() -> None:
    lag = LoopLag()
    lag.start()
    try:
        time.sleep(LOOK_SECONDS + 0.4)  # noqa: ASYNC251 — this is what holds it up
        assert await until(lag.worst) >= 0.4
    finally:
        lag.stop()
