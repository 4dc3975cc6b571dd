"""A started sender for tests, and the loop that production uses.

Reads   nothing
Writes  to loopback only: the guard allows nothing else unless a test says so
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from typing import TypeVar

import msgspec
import uvloop

from support import certificates
from support.waiting import PATIENCE
from surehook.delivery import Request, client
from surehook.delivery.client import HttpsSender, SenderSettings
from surehook.delivery.dialer import tls_context

T = TypeVar("T")
# Reading the system's authorities takes 40 ms, and hundreds of tests make a sender each.
vars(client)["tls_context"] = cache(tls_context)
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


def run(scenario: Coroutine[object, None, T], loop: str = "uvloop") -> T:
    """Run to the end on a fresh loop of the given kind."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(scenario)


def settings(**changes: object) -> SenderSettings:
    """Loopback allowed, our test authority trusted, and no name server but one that is told."""
    base = SenderSettings(
        allow_networks=("127.0.0.0/8", "::1/128"),
        ca_file=str(certificates.ca_file()),
        name_servers=("127.0.0.1:9",),
    )
    return msgspec.structs.replace(base, **changes)


@asynccontextmanager
async def started(given: SenderSettings | None = None) -> AsyncIterator[HttpsSender]:
    sender = HttpsSender(settings() if given is None else given)
    await sender.start()
    try:
        yield sender
    finally:
        await sender.close()


async def until(condition: Callable[[], bool], timeout: float = PATIENCE) -> None:
    """Wait for something that only the network can bring about, and that nobody signals."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 — there is no event to wait for
            await asyncio.sleep(0.005)


def request(
    url: str,
    body: bytes = b'{"a":1}',
    deadline: float = PATIENCE,
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),),
) -> Request:
    return Request(url, body, headers, deadline)
