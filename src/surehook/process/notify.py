"""What systemd hears of this process (`Type=notify`): that it is ready, that it is ending.

Reads   NOTIFY_SOCKET      Writes  datagrams to that socket

Without the variable nothing is sent. Units that depend on ours wait for READY, and `systemctl stop`
shows STOPPING while deliveries under way are finished.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

READY = "READY=1"
STOPPING = "STOPPING=1"
LOOK_SECONDS = 0.2


def notify(state: str) -> None:
    """Send one state; a service manager that is not there is no reason to fail."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # a name in the kernel instead of one in the file system
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
        try:
            sending.sendto(state.encode(), address)
        except OSError:
            return


async def notify_when_ready(is_ready: Callable[[], Awaitable[bool]]) -> None:
    """Send READY once; costs nothing where no service manager listens."""
    if "NOTIFY_SOCKET" not in os.environ:
        return
    while not await is_ready():  # noqa: ASYNC110 — the database is asked: it has no event
        await asyncio.sleep(LOOK_SECONDS)
    notify(READY)
