"""Hints: how one component lets another know that there is work.

Reads   notifications       Writes  notifications (NOTIFY)

In the same process a hint is a function call; to other processes it is one coalesced NOTIFY on a
direct connection, sent after the commit. Nothing depends on hints: every component also polls, so
a lost one costs a moment and never a delivery.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from enum import StrEnum

from surehook.errors import DatabaseUnreachable


class Channel(StrEnum):
    EVENTS = "surehook_events"  # to the router: events were stored
    SAGAS = "surehook_sagas"  # to the orchestrator: sagas were made
    JOBS = "surehook_jobs"  # to workers: jobs were made
    RESULTS = "surehook_results"  # to the orchestrator: these sagas' jobs have ended
    CHALLENGES = "surehook_challenges"  # to the verifier: a verification was asked for
    DEATHS = "surehook_deaths"  # to the dead letters: sagas have died


Heard = Callable[[int, list[int]], None]  # bucket, ids
Notify = Callable[[str, str], Awaitable[object]]

# NOTIFY carries at most 8,000 bytes; ids have up to 19 digits.
IDS_PER_MESSAGE = 350
# A burst of commits becomes one NOTIFY.
COALESCE_SECONDS = 0.002
# More than this that wait to be sent are dropped: hints are only hints.
WAITING_MAX = 100_000


class Hints:
    """One per process. `outward` sends to other processes; None keeps hints in this one."""

    def __init__(self) -> None:
        self._local: dict[Channel, list[Heard]] = defaultdict(list)
        self._outward: Notify | None = None
        self._waiting: dict[tuple[Channel, int], set[int]] = {}
        self._sender: asyncio.Task[None] | None = None

    def on(self, channel: Channel, heard: Heard) -> None:
        """Let a component of this process hear a channel."""
        self._local[channel].append(heard)

    def send_outward(self, notify: Notify | None) -> None:
        self._outward = notify

    def hint(self, channel: Channel, bucket: int, ids: Iterable[int] = ()) -> None:
        """Wakes listeners in this process; if there are none, notifies other processes."""
        listeners = self._local[channel]
        if listeners:
            known = list(ids)
            for heard in listeners:
                heard(bucket, known)
        elif self._outward is not None:
            waiting = self._waiting.setdefault((channel, bucket), set())
            if len(waiting) < WAITING_MAX:
                waiting.update(ids)
            if self._sender is None or self._sender.done():
                self._sender = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        while self._waiting:
            await asyncio.sleep(COALESCE_SECONDS)
            waiting, self._waiting = self._waiting, {}
            for (channel, bucket), ids in waiting.items():
                for message in _messages(bucket, sorted(ids)):
                    if self._outward is None:
                        return
                    try:
                        await self._outward(channel, message)
                    except DatabaseUnreachable:
                        return  # the database is gone; the other components poll

    def hear(self, channel: Channel, message: str) -> None:
        """A notification from another process."""
        try:
            bucket, _, ids = message.partition(":")
            known = [int(item) for item in ids.split(",") if item]
            number = int(bucket)
        except ValueError:
            return  # not ours
        for heard in self._local[channel]:
            heard(number, known)

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)


def _messages(bucket: int, ids: list[int]) -> Iterator[str]:
    if not ids:
        yield f"{bucket}:"
    for start in range(0, len(ids), IDS_PER_MESSAGE):
        yield f"{bucket}:{','.join(map(str, ids[start : start + IDS_PER_MESSAGE]))}"
