"""One process of a group: does what its parent orders, until a signal or the parent's end.

Reads   its order on standard input         Writes  one line on standard output: where it serves
                                                    health and figures, or why it cannot begin

The order comes through a pipe, so no secret stands in an argument or in the environment. The pipe
stays open for as long as the parent lives: when it breaks, the parent was killed, and the child
drains as if it had been told to end.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import select
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from surehook import observe
from surehook.config import Config, Origin
from surehook.config.parsers import Value
from surehook.config.settings import BY_KEY
from surehook.errors import SurehookError
from surehook.observe import log
from surehook.process.serve import Process, event_loop, serve_process
from surehook.store.logins import DatabaseAccess


@dataclass(frozen=True, slots=True)
class Order:
    """What a child is to run, on which database, with which settings."""

    components: tuple[str, ...]
    settings: Mapping[str, tuple[Value, str]]  # by key: the value and where it came from
    login_urls: Mapping[str, str]
    access: DatabaseAccess
    installation: str
    api_socket: int | None  # the descriptor of the group's listening socket

    @property
    def config(self) -> Config:
        origins = {key: Origin(BY_KEY[key], *given) for key, given in self.settings.items()}
        return Config(origins, self.login_urls)

    def __repr__(self) -> str:  # no secret in a log or a traceback
        return f"Order({', '.join(self.components)})"


def order_for(
    components: tuple[str, ...], config: Config, access: DatabaseAccess, api_socket: int | None
) -> Order:
    return Order(
        components,
        {key: (origin.value, origin.source) for key, origin in config.origins.items()},
        dict(config.login_urls),
        access,
        observe.installation,
        api_socket,
    )


class WholeLines(io.RawIOBase):
    """Standard error of a process that shares it: a pipe keeps writes of several processes apart
    only up to PIPE_BUF bytes, so that none is longer unless a single line is."""

    def write(self, data: Any) -> int:
        start = 0
        while start < len(data):
            end = len(data)
            if end - start > select.PIPE_BUF:
                end = data.rfind(b"\n", start, start + select.PIPE_BUF) + 1
                end = end or data.find(b"\n", start) + 1 or len(data)
            while start < end:
                start += os.write(sys.stderr.fileno(), data[start:end])
        return len(data)

    def isatty(self) -> bool:
        return sys.stderr.isatty()


def answer(message: Mapping[str, object]) -> None:
    """The one line that the parent waits for."""
    print(json.dumps(message), flush=True)


async def _work(order: Order) -> None:
    taken = None if order.api_socket is None else socket.socket(fileno=order.api_socket)
    process = Process(order.config, order.access, api_socket=taken)
    try:
        await process.open(order.components)
    except BaseException:
        await process.close()
        raise
    address = process.listener.address if process.listener is not None else None
    answer({"address": address})
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), _end_with_the_parent, loop, process)
    await serve_process(process)


def _end_with_the_parent(loop: asyncio.AbstractEventLoop, process: Process) -> None:
    """Nothing follows the order: what can be read is the end of the pipe."""
    loop.remove_reader(sys.stdin.fileno())
    process.stop()


def main() -> int:
    os.environ.pop("NOTIFY_SOCKET", None)  # the service manager hears the parent alone
    order: Order = pickle.load(sys.stdin.buffer)  # noqa: S301 — written by our own parent
    config = order.config
    log.start(config.text("log.level"), config.text("log.format"), cast("BinaryIO", WholeLines()))
    observe.identify(order.installation)
    try:
        with event_loop() as runner:
            runner.run(_work(order))
    except SurehookError as error:
        answer({"error": error.message, "advice": error.advice, "exit_code": error.exit_code})
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
