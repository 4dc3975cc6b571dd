"""The pipeline in the test's own process: senders without a network, components at work, facts.

Reads and writes only the test's own database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from inspect import isawaitable
from typing import Any

from support import OpenStore
from support.waiting import PATIENCE
from surehook import observe
from surehook.config import Config
from surehook.delivery import Outcome, Request, Sender
from surehook.model.error_codes import ErrorCode
from surehook.observe.facts import Level
from surehook.process.check import check
from surehook.process.serve import Process
from surehook.store import store_of
from surehook.store.logins import DatabaseAccess
from surehook.store.observer import ObserverStore

DELIVERED = Outcome(200, None)
ALL = ("router", "orchestrator", "worker", "cleaner", "deadletters")


def failed(
    code: ErrorCode = ErrorCode.HTTP_5XX, status: int | None = 503, retry_after: int | None = None
) -> Outcome:
    return Outcome(status, code, retry_after)


class FakeSender:
    """Answers without a network; `answer` says what, and may take its time."""

    opened = 0
    reused = 0

    def __init__(
        self, answer: Callable[[Request], Outcome | Awaitable[Outcome]] = lambda _: DELIVERED
    ) -> None:
        self.requests: list[Request] = []
        self.under_way = 0
        self.most_at_once = 0
        self.closed = False
        self._answer = answer

    async def start(self) -> None:
        pass

    async def send(self, request: Request) -> Outcome:
        self.requests.append(request)
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            answer: Any = self._answer(request)
            outcome: Outcome = await answer if isawaitable(answer) else answer
            return outcome
        finally:
            self.under_way -= 1

    async def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def running(
    config: Config,
    access: DatabaseAccess,
    names: Sequence[str] = ALL,
    sender: Sender | None = None,
    *,
    https: bool = False,
) -> AsyncIterator[Process]:
    """These components at work in this process until the block ends; then they drain.

    They send by `sender`, else to nobody; with `https` for real.
    """
    fake = sender or FakeSender()
    process = Process(config, access, None if https else lambda: fake)
    await process.open(names)
    work = asyncio.get_running_loop().create_task(process.run())
    try:
        yield process
    finally:
        process.stop()
        async with asyncio.timeout(PATIENCE):
            await work


@contextmanager
def facts() -> Iterator[list[tuple[str, dict[str, object]]]]:
    """Every fact that is reported meanwhile."""
    heard: list[tuple[str, dict[str, object]]] = []
    observe.listen(lambda name, _, fields: heard.append((name, fields)), Level.DEBUG)
    try:
        yield heard
    finally:
        observe.silence()


async def broken_invariants(open_store: OpenStore, margin: float = 0.0) -> dict[str, Any]:
    """What `check` finds, by invariant; {} = nothing."""
    store = store_of(ObserverStore, await open_store("observer"))
    findings = await check(store, margin=margin)
    return {finding.invariant: finding.broken for finding in findings if finding.broken}


async def statuses(owner: Any) -> dict[str, int]:
    """How many sagas are in each status."""
    rows = await owner.fetch("SELECT status, count(*) FROM webhook_delivery_sagas GROUP BY status")
    return {row[0]: row[1] for row in rows}


UNFINISHED = (
    "SELECT count(*) FROM webhook_delivery_sagas WHERE status NOT IN ('Completed', 'DeadLettered')"
)
