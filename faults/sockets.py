"""Which process is at the other end of a loopback connection. Reads /proc."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from support.receiver import ReceivedRequest, Receiver


def sender_of(receiver: Receiver, request: ReceivedRequest, pids: Iterable[int]) -> int | None:
    """The process, of these, that sent the request; None if it is gone."""
    port = peer_port(receiver, request)
    inode = None if port is None else _inode_of(port)
    if inode is None:
        return None
    return next((pid for pid in pids if inode in _inodes(pid)), None)


def peer_port(receiver: Receiver, request: ReceivedRequest) -> int | None:
    for connection in receiver._open:
        if connection._number == request.connection and connection._transport is not None:
            port: int = connection._transport.get_extra_info("peername")[1]
            return port
    return None


def _inode_of(port: int) -> str | None:
    """Of the socket with this local port; an IPv6 socket may hold an IPv4 address."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port:
                    return fields[9]
    return None


def _inodes(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found
