"""Watch: sessions whose server takes long to answer, and whether it is still at it.

Reads   what the server says of our sessions (an engine's `Ask`)      Writes  nothing itself

A network can go silent: what we send is taken, nothing comes back, and no error ever tells. From
this side that looks like a long statement. So the server is asked, over a new connection, about
the sessions that have waited for some time. It goes on with those that it works on. The others have
lost their question or their answer: the engine ends them on the server, so that they hold no lock
and nothing of theirs arrives late, and their user is told that the database does not answer. The
same if the server cannot even be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from surehook.errors import DatabaseUnreachable

# A session is asked for after so many ticks, then again and again. Ticks, not seconds: a process
# that gets no CPU time has few of them, and must not take its own slowness for the server's. With
# the time that a connection may take (database.connect_timeout, 5 s) a silence is noticed in 10 s.
TICK_SECONDS = 0.5
PATIENCE_TICKS = 6
AGAIN_TICKS = 2
# A session that the server has seen rest for so long has no question under way to it and no answer
# from it: by the server's clock.
RESTED_SECONDS = 3.0

# The server's numbers of sessions → those that it still works on; the others it has ended.
Ask = Callable[[Collection[int]], Awaitable[Collection[int]]]


@dataclass(eq=False, slots=True)
class Use:
    """One use of a session, from when it was taken until it is given back."""

    session: int
    give_up: Callable[[], object]
    since: int  # tick


class Watch:
    """One per pool. `lost` is called when silence was met: idle sessions are not to be trusted."""

    def __init__(self, ask: Ask, lost: Callable[[], Awaitable[None]]) -> None:
        self._ask = ask
        self._lost = lost
        self._uses: dict[Use, None] = {}  # the oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None
        self._ticks = 0
        self._look_due = 0

    def began(self, session: int, give_up: Callable[[], object]) -> Use:
        use = Use(session, give_up, self._ticks)
        self._uses[use] = None
        if self._timer is None:
            self._wait()
        return use

    def ended(self, use: Use) -> None:
        self._uses.pop(use, None)

    def in_use(self) -> set[int]:
        return {use.session for use in self._uses}

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._uses:
            return
        self._ticks += 1
        self._wait()
        idle = self._look is None or self._look.done()
        if idle and self._ticks >= self._look_due and self._late():
            self._look = asyncio.get_running_loop().create_task(self._look_after())

    def _late(self) -> list[Use]:
        limit = self._ticks - PATIENCE_TICKS
        late = []
        for use in self._uses:
            if use.since > limit:
                break
            late.append(use)
        return late

    async def _look_after(self) -> None:
        late = self._late()
        try:
            at_work = await self._ask({use.session for use in late})
        except DatabaseUnreachable:
            late, at_work = self._late(), ()
        self._look_due = self._ticks + AGAIN_TICKS
        silent = [use for use in late if use.session not in at_work and use in self._uses]
        for use in silent:
            self.ended(use)
            use.give_up()
        if silent:
            await self._lost()
