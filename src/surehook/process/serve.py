"""One process at work: its components, its health and figures, its signals.

Reads   the configuration       Writes  nothing itself

Any mix of processes on any number of machines works together; they meet in the database.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from surehook import __version__, observe
from surehook.config import Config
from surehook.delivery import Sender
from surehook.errors import SurehookError
from surehook.model.records import Myself
from surehook.observe import crashpoints
from surehook.observe.listener import Listener
from surehook.pipeline.registry import Registry
from surehook.pipeline.service import Group
from surehook.process.assembly import Assembly
from surehook.process.notify import STOPPING, notify, notify_when_ready
from surehook.store.logins import DatabaseAccess

if TYPE_CHECKING:
    from surehook.api.server import Server

ANY_PORT = "127.0.0.1:0"


class Process:
    """The chosen components of one process, opened, and closed again in the end."""

    def __init__(
        self,
        config: Config,
        access: DatabaseAccess,
        sender: Callable[[], Sender] | None = None,
        api_socket: socket.socket | None = None,
    ) -> None:
        """`api_socket`: where the API listens, if somebody has bound it for us."""
        self._config = config
        self._parts = Assembly(config, access, sender, api_socket)
        self.hints = self._parts.hints
        self.databases = self._parts.databases
        self.group = Group(self._parts.services)
        self.api: Server | None = None
        self.listener: Listener | None = None
        self._registry: Registry | None = None

    @property
    def api_address(self) -> str | None:
        return self.api.address if self.api is not None else None

    async def open(self, names: Sequence[str]) -> None:
        self._bind_listener(names)
        if self.listener is not None or "api" in names:  # the figures are served
            observe.listen(self._parts.metrics)
        await self._parts.open(names)
        if "api" in names:
            self.api = cast("Server", self.group.services[list(names).index("api")].component)

    def _bind_listener(self, names: Sequence[str]) -> None:
        """Health and figures need an address of their own where no API serves them."""
        wanted = self._config.text("observe.listen")
        if wanted == "off" or (wanted == "auto" and "api" in names):
            return
        address = ANY_PORT if wanted == "auto" else wanted
        self.listener = Listener(address)

    async def run(self) -> None:
        """Until stop(), or until SIGTERM or SIGINT; then drain."""
        announcing = asyncio.ensure_future(notify_when_ready(self._is_ready))
        try:
            await self._show()
            await self.group.run()
        finally:
            announcing.cancel()
            await self.close()

    async def _is_ready(self) -> bool:
        assert self._parts.vitals is not None
        return (await self._parts.vitals.readiness()).ready

    async def _show(self) -> None:
        """Serve health and figures; let the registry know that this process runs."""
        assert self._parts.vitals is not None
        self._parts.vitals.loop_lag.start()
        address = self.api_address
        if self.listener is not None:
            await self.listener.start(self._parts.vitals.pages())
            address = self.listener.address
            observe.emit("observe.listening", listen=address)
        me = Myself(
            process_id=secrets.token_hex(8),
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            version=__version__,
            address=address,
        )
        self._registry = Registry(self._parts.registry, me, self.group.services)
        self._registry.start()

    def stop(self) -> None:
        notify(STOPPING)
        if self._parts.vitals is not None:
            self._parts.vitals.drain()
        self.group.stop()

    async def close(self) -> None:
        registry, self._registry = self._registry, None  # one farewell, however often we are called
        if registry is not None:
            await registry.stop()
        if self.listener is not None:
            await self.listener.close()
        observe.forget(self._parts.metrics)
        await self._parts.close()


class Runnable(Protocol):
    """One process, or several as one (group.py)."""

    @property
    def api_address(self) -> str | None:
        """host:port of the API, if it is among the components, once they are open."""

    async def open(self, names: Sequence[str]) -> None: ...

    async def run(self) -> None: ...

    def stop(self) -> None: ...

    async def close(self) -> None: ...


def event_loop() -> asyncio.Runner:
    """The fastest loop at hand."""
    try:
        import uvloop
    except ImportError:  # not to be had on every platform; the standard loop does the same, slower
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def serve(
    config: Config,
    access: DatabaseAccess,
    names: Sequence[str],
    listening: Callable[[str], None] = lambda _address: None,
    processes: int = 1,
) -> None:
    """Run these components until SIGTERM or SIGINT; `listening` gets the address of the API, if it
    is among them."""
    process = runnable(config, access, names, processes)
    try:
        await process.open(names)
    except BaseException:
        await process.close()
        raise
    if process.api_address is not None:
        listening(process.api_address)
    await serve_process(process)


def runnable(
    config: Config, access: DatabaseAccess, names: Sequence[str], processes: int
) -> Runnable:
    """Something to run these components in, not opened yet."""
    from surehook.process.group import ProcessGroup, layout

    if len(layout(names, processes)) == 1:
        return Process(config, access)
    return ProcessGroup(config, access, processes)


async def serve_process(process: Runnable) -> None:
    """What was opened, until SIGTERM or SIGINT."""
    crashpoints.arm_from_environment()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.stop)
    # Objects made so far live as long as the process: the collector need not look at them again,
    # nor so often at the many short-lived ones.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    try:
        await process.run()
    except* SurehookError as several:
        raise several.exceptions[0] from None
