"""Several processes as one: `surehook serve --processes N`.

Reads   its children's ends, health and figures         Writes  nothing itself

This process starts the others, starts again one that ended, and drains them all when it is told to
end. It owns what there is only one of: the embedded database, the API's listening socket (which
the children inherit, so that connections wait while one of them is started again) and the address
for health and figures, where it answers for all of them (group_health.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Sequence

from surehook import observe
from surehook.config import Config, Origin
from surehook.config.settings import BY_KEY
from surehook.errors import SurehookError, Unreachable
from surehook.observe.listener import Listener, address_of
from surehook.process.child import Order, order_for
from surehook.process.components import COMPONENTS
from surehook.process.group_health import pages_for
from surehook.process.notify import READY, STOPPING, notify
from surehook.process.serve import ANY_PORT
from surehook.store.logins import DatabaseAccess

# Of one that ends soon after its start, the next start is put off for longer and longer; one that
# does so this often in a row will not get better by itself.
SHORT_LIFE_SECONDS = 10.0
SHORT_LIVES_MAX = 5
RESTART_FIRST_SECONDS = 0.2
RESTART_MAX_SECONDS = 5.0


FRONT = ("api", "verifier")


def layout(names: Sequence[str], processes: int) -> list[tuple[str, ...]]:
    """Which components run in which of so many processes: first the API apart from deliveries, then
    the worker apart from what leads to it, then more workers. What cannot be split stays together.
    """
    front = tuple(name for name in names if name in FRONT)
    back = tuple(name for name in names if name not in FRONT and name != "worker")
    workers = [("worker",)] if "worker" in names else []
    shares = [share for share in (front, back) if share]
    if processes < len(shares) + len(workers):
        if processes == 1 or len(shares) < 2:
            return [tuple(names)]
        return [front, tuple(name for name in names if name not in FRONT)]
    more = processes - len(shares) - len(workers)
    return [*shares, *workers, *workers * more]


def useful_processes() -> int:
    """How many help on this machine, if nobody says (docs/operate/processes.md)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min((cores or 1) // 2, 4))


class Child:
    """One process of the group, and those that follow it in its place."""

    def __init__(self, name: str, order: Order) -> None:
        self.name = name
        self.order = order
        self.address: str | None = None  # of its health and figures, once it has begun
        self.process: asyncio.subprocess.Process | None = None
        self.short_lives = 0
        self._began: float | None = None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    @property
    def has_ended(self) -> bool:
        return self.process is not None and self.process.returncode is not None

    async def start(self) -> None:
        """Until it has begun; raises what it says keeps it from beginning."""
        self._began = None
        inherited = () if self.order.api_socket is None else (self.order.api_socket,)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "surehook.process.child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=inherited,
            start_new_session=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.process.stdin.write(pickle.dumps(self.order))
            await self.process.stdin.drain()
        line = await self.process.stdout.readline()
        if not line:  # it has ended without a word: whoever waits for it sees how
            await self.process.wait()
            return
        said = json.loads(line)
        if "error" in said:
            await self.process.wait()
            refused = SurehookError(said["error"], said["advice"])
            refused.exit_code = said["exit_code"]
            raise refused
        self.address = said["address"]
        self._began = time.monotonic()

    async def ended(self) -> str:
        """How, in words, when it has."""
        assert self.process is not None
        code = await self.process.wait()
        self.address = None
        lived = 0.0 if self._began is None else time.monotonic() - self._began
        self.short_lives = self.short_lives + 1 if lived < SHORT_LIFE_SECONDS else 0
        return f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def tell(self, number: signal.Signals) -> None:
        if self.process is not None and not self.has_ended:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class ProcessGroup:
    """So many processes at work; used like the Process of one."""

    def __init__(self, config: Config, access: DatabaseAccess, processes: int) -> None:
        self._config = config
        self._access = access
        self._processes = processes
        self._api: socket.socket | None = None
        self._listener: Listener | None = None
        self._stopping = asyncio.Event()
        self.children: list[Child] = []
        self.api_address: str | None = None

    async def open(self, names: Sequence[str]) -> None:
        """Take the addresses and start every child; if one cannot begin, none goes on."""
        if "api" in names:
            from surehook.api.server import bound_for_api  # without the API it is not loaded

            self._api = bound_for_api(self._config.text("api.listen"))
            self.api_address = address_of(self._api)
        wanted = self._config.text("observe.listen")
        if wanted != "off":
            self._listener = Listener(ANY_PORT if wanted == "auto" else wanted)
        shares = layout(names, self._processes)
        self.children = [self._child(number, share) for number, share in enumerate(shares, 1)]
        starts = (child.start() for child in self.children)
        for child, refused in zip(
            self.children, await asyncio.gather(*starts, return_exceptions=True), strict=True
        ):
            if refused is not None:
                raise refused
            if child.has_ended:
                raise _given_up(child, await child.ended(), "at its start")

    def _child(self, number: int, components: tuple[str, ...]) -> Child:
        what = components[0] if components[0] in ("api", "worker") else "pipeline"
        taken = self._api if "api" in components else None
        descriptor = taken.fileno() if taken is not None else None
        config = self._config
        if config.text("observe.listen") != "off":  # the address that was named is the group's
            setting = BY_KEY["observe.listen"]
            own = {"observe.listen": Origin(setting, ANY_PORT, "the group")}
            config = Config({**config.origins, **own}, config.login_urls)
        return Child(f"{what}-{number}", order_for(components, config, self._access, descriptor))

    async def run(self) -> None:
        """Until stop(), or until a child cannot be kept running; then all have drained."""
        try:
            if self._listener is not None:
                await self._listener.start(pages_for(self))
            observe.emit(
                "process.ready",
                processes=[child.name for child in self.children],
                listen=self._listener.address if self._listener is not None else None,
            )
            notify(READY)
            async with asyncio.TaskGroup() as group:
                for child in self.children:
                    group.create_task(self._keep(child))
        finally:
            await self.close()

    async def _keep(self, child: Child) -> None:
        """Start it again whenever it ends, until the group does."""
        while True:
            how = await child.ended()
            if self._stopping.is_set():
                return
            if child.short_lives >= SHORT_LIVES_MAX:
                raise _given_up(child, how, f"{child.short_lives} times in a row")
            observe.emit("process.ended", process=child.name, pid=child.pid, reason=how)
            if not await self._begun_again(child):
                return

    async def _begun_again(self, child: Child) -> bool:
        """With pauses, for as long as what it needs cannot be reached; False: we are to end."""
        tries = child.short_lives
        while not await self._stopped_within(_pause(tries)):
            try:
                await child.start()
            except SurehookError as error:
                if error.exit_code != Unreachable.exit_code:
                    raise
                observe.emit("process.ended", process=child.name, pid=child.pid, reason=str(error))
                tries += 1
                continue
            if self._stopping.is_set():  # stop() came while it was starting
                child.tell(signal.SIGTERM)
            else:
                observe.emit("process.restarted", process=child.name, pid=child.pid)
            return True
        return False

    async def _stopped_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

    def stop(self) -> None:
        """Let every child drain and end."""
        if not self._stopping.is_set():
            notify(STOPPING)
        self._stopping.set()
        self._close_api()  # the children's copies stay open until they close them
        for child in self.children:
            child.tell(signal.SIGTERM)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _close_api(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            api.close()

    async def close(self) -> None:
        """Whatever happened: no child outlives this process."""
        self.stop()
        for child in self.children:
            if child.process is not None:
                await child.process.wait()
        if self._listener is not None:
            await self._listener.close()


def _pause(tries: int) -> float:
    if not tries:
        return 0.0
    return min(RESTART_FIRST_SECONDS * 2.0 ** (tries - 1), RESTART_MAX_SECONDS)


def _given_up(child: Child, how: str, when: str) -> Unreachable:
    works = " ".join(COMPONENTS[name].name for name in child.order.components)
    return Unreachable(
        f"The process {child.name} ({works}) ended {when} ({how}).",
        "Its last lines in the log say why; `--processes 1` runs everything in one process.",
    )
