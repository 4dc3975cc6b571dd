"""`surehook dev`: the whole system on one machine, and a first webhook delivered by it.

Reads   the configuration       Writes  the embedded database, a key and certificates for this user

The same components, database and HTTPS as anywhere else; only the receiver on loopback, its
certificate authority and the address guard's exception for loopback are for development.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from surehook.config import Config
from surehook.errors import Unreachable
from surehook.process.components import COMPONENTS
from surehook.process.running import Note
from surehook.process.serve import runnable
from surehook.receiver import certificates
from surehook.receiver.listen import Arrival, Listener
from surehook.receiver.statedir import state_directory
from surehook.store.logins import DatabaseAccess

if TYPE_CHECKING:
    from surehook.client import AsyncClient

RECEIVER_PORT = 8443
EVENT_TYPE = "demo.hello"
FIRST_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Ready:
    """What a person needs to go on."""

    api_url: str
    key: str
    receiver_url: str
    server_file: Path
    subscription_id: int
    seconds: float


def kept_key(directory: Path) -> str:
    """The development key: made once, and so a pasted curl line also works tomorrow."""
    file = directory / "key"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = directory / f"key.{secrets.token_hex(4)}"
        draft.touch(mode=0o600)
        draft.write_text("shk_" + secrets.token_urlsafe(32), encoding="ascii")
        draft.replace(file)
    return file.read_text(encoding="ascii").strip()


def free_address(wanted: str) -> str:
    """The wanted address, or the same host with any free port if that one is taken."""
    host, _, port = wanted.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
        except OSError:
            _bind_anywhere(probe, host)
        return f"{host}:{probe.getsockname()[1]}"


def _bind_anywhere(probe: socket.socket, host: str) -> None:
    try:
        probe.bind((host.strip("[]"), 0))
    except OSError as error:
        raise Unreachable(
            f"Cannot listen on {host}: {error.strerror or error}.",
            "Correct api.listen (SUREHOOK_LISTEN).",
        ) from None


class Development:
    """Everything that `dev` starts."""

    def __init__(
        self,
        config: Config,
        access: DatabaseAccess,
        files: certificates.Certificates,
        shown: Callable[[Arrival], None],
        note: Note,
        processes: int = 1,
    ) -> None:
        self._config = config
        self._note = note
        self._files = files
        self._process = runnable(config, access, list(COMPONENTS), processes)
        self._shown = shown
        self._loop = asyncio.get_running_loop()
        self._delivered = asyncio.Event()
        self._listener = self._listen()

    def _listen(self) -> Listener:
        try:
            return Listener(self._arrived, self._files.server_file, port=RECEIVER_PORT)
        except OSError:
            return Listener(self._arrived, self._files.server_file)

    def _arrived(self, arrival: Arrival) -> None:
        """Called in the receiver's own thread."""
        # Shown first: what is below the greeting arrived after it.
        try:
            self._shown(arrival)
        except OSError:  # the reader of our output has gone
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.stop)
        if not arrival.challenge:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._delivered.set)

    async def run(self, ready: Callable[[Ready], None], began: float) -> None:
        """Until stop()."""
        try:
            await self._process.open(list(COMPONENTS))
            address = self._process.api_address
            assert address is not None
            url = f"http://{address}"
            running = self._loop.create_task(self._process.run())
            self._note.serves(address, self._has_kept_key())
            try:
                await self._begin(url, running, ready, began)
            except BaseException:
                self.stop()  # components end before their databases do
                await asyncio.wait((running,))
                raise
            await running
        finally:
            await self._process.close()
            self._listener.close()

    def _has_kept_key(self) -> bool:
        """Whether commands can use the key that is kept: it may have been given from outside."""
        return self._config.text("api.admin_key") == kept_key(state_directory())

    async def _begin(
        self,
        url: str,
        running: asyncio.Task[None],
        ready: Callable[[Ready], None],
        began: float,
    ) -> None:
        """Deliver a first webhook, unless what runs ends before."""
        from surehook import AsyncClient

        key = self._config.text("api.admin_key")
        async with AsyncClient(url, key) as client:
            first = self._loop.create_task(self._first_delivery(client))
            await asyncio.wait((running, first), return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                first.cancel()
                return
            seconds = time.monotonic() - began
            receiver = f"https://localhost:{self._listener.port}/"
            ready(Ready(url, key, receiver, self._files.server_file, await first, seconds))

    def stop(self) -> None:
        self._process.stop()

    async def _first_delivery(self, client: AsyncClient) -> int:
        """A subscription for the local receiver, verified, and one event delivered to it."""
        url = f"https://localhost:{self._listener.port}/"
        made = await client.subscriptions.create(
            EVENT_TYPE, url, description="surehook dev", idempotency_key="surehook-dev"
        )
        if made.callback_url != url:
            await client.subscriptions.update(made.id, callback_url=url)
        # The receiver forgets its secret when dev ends: it begins with a new one.
        rotated = await client.subscriptions.rotate_secret(made.id, overlap_seconds=0)
        self._listener.secrets = [rotated.secret or ""]
        await client.subscriptions.verify(made.id, wait=FIRST_SECONDS_MAX)
        await client.publish(EVENT_TYPE, {"hello": "webhook"})
        await _within(self._delivered.wait(), FIRST_SECONDS_MAX, "The first webhook did not arrive")
        return made.id


async def _within(work: Awaitable[object], seconds: float, what: str) -> None:
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        raise Unreachable(f"{what} within {seconds:g} s.", "The lines above say why.") from None
