"""Names to addresses, by c-ares, without ever blocking anyone.

Reads   the system's resolver configuration and hosts file, the network (DNS)
Writes  its own cache

One dead name server must delay only the names it serves. So lookups are sockets of the event loop;
there is at most one lookup per host at a time, shared by all who ask; answers and failures are
remembered for a while; waiting ends with the caller's deadline or LOOKUP_SECONDS after the question
was asked, whichever is first. IPv4 and IPv6 are asked for separately: when one has answered the
other gets a moment more, no longer. Search domains and $HOSTALIASES are ignored: a callback URL
names its host in full.

An address that is returned here is not yet safe to dial; the guard decides at each connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import msgspec
import pycares

from surehook.delivery.address import Address

LOOKUP_SECONDS = 8.0  # c-ares itself gives up after 5.6 s
SECOND_FAMILY_SECONDS = 0.05
MIN_TTL_SECONDS = 5.0
MAX_TTL_SECONDS = 300.0
FAILURE_TTL_SECONDS = 5.0
MAX_REMEMBERED = 8192
MAX_LOOKUPS = 4096
MAX_ADDRESSES = 16
# A thousand questions in one moment overflow a name server's socket. They are spread out instead of
# being limited in number: a limit would let dead names hold up the others.
BURST = 64
BURST_SECONDS = 0.005
RECEIVE_BUFFER_BYTES = 1 << 20
TICK_SECONDS = 0.1
RELOAD_SECONDS = 5.0

_FLAGS = pycares.ARES_FLAG_NOSEARCH | pycares.ARES_FLAG_NOALIASES | pycares.ARES_FLAG_EDNS
_AI_NOSORT = 1 << 7  # sorting would open a socket towards every address before it was checked
_CONFIGURATION = Path("/etc/resolv.conf")
_NO_SOCKET = pycares.ARES_SOCKET_BAD
_FAMILIES = (socket.AF_INET6, socket.AF_INET)


class NameNotResolved(Exception):
    """The name has no address, or none arrived in time."""


class _Entry(msgspec.Struct):
    """A finished lookup in the cache; `addresses` is empty when it failed."""

    addresses: tuple[Address, ...]
    reason: str
    expires: float


class _Lookup:
    """One host being asked for, both families."""

    def __init__(self, future: asyncio.Future[_Entry]) -> None:
        self.future = future
        self.found: dict[int, list[Address]] = {}
        self.ttl = MAX_TTL_SECONDS
        self.reason = "no address"
        self.waiting = set(_FAMILIES)
        self.timer: asyncio.TimerHandle | None = None

    def addresses(self) -> tuple[Address, ...]:
        """IPv6 and IPv4 in turn: a dead family costs one step at most."""
        lists = [self.found.get(family, []) for family in _FAMILIES]
        longest = max(map(len, lists))
        turns = [found[turn] for turn in range(longest) for found in lists if turn < len(found)]
        return tuple(turns[:MAX_ADDRESSES])


class Resolver:
    """An asynchronous resolver with a cache; use it from one event loop."""

    def __init__(
        self, servers: Sequence[str] = (), *, min_ttl_seconds: float = MIN_TTL_SECONDS
    ) -> None:
        self._servers = tuple(servers)
        self._min_ttl = min_ttl_seconds
        self._channel: pycares.Channel | None = None
        self._entries: dict[str, _Entry] = {}
        self._lookups: dict[str, _Lookup] = {}
        self._unasked: deque[tuple[str, _Lookup]] = deque()
        self._pacer: asyncio.TimerHandle | None = None
        self._asked = 0
        self._watched: set[int] = set()
        self._ticker: asyncio.TimerHandle | None = None
        self._reload_at = 0.0
        self._configured = 0

    def start(self) -> None:
        """Open the channel; the running loop gets the answers."""
        self._loop = asyncio.get_running_loop()
        self._channel = pycares.Channel(
            sock_state_cb=self._watch,
            flags=_FLAGS,
            timeout=0.8,
            tries=3,
            servers=self._servers or None,
            socket_receive_buffer_size=RECEIVE_BUFFER_BYTES,
        )

    def close(self) -> None:
        """Give up every lookup at once; never waits for a name server."""
        channel, self._channel = self._channel, None
        if channel is None:
            return
        for host, lookup in self._lookups.items():
            self._finish(host, lookup, "the sender was closed")
        self._lookups.clear()
        self._unasked.clear()
        for timer in (self._pacer, self._ticker):
            if timer is not None:
                timer.cancel()
        channel.cancel()
        for fd in list(self._watched):  # before the channel, in its own thread, closes them
            self._unwatch(fd)
        channel.close()

    async def resolve(self, host: str) -> tuple[Address, ...]:
        """At least one address, or NameNotResolved."""
        entry = self._entries.get(host)
        if entry is None or entry.expires <= self._loop.time():
            # Shielded: others may wait for the same answer when this caller gives up.
            entry = await asyncio.shield(self._ask(host))
        if not entry.addresses:
            raise NameNotResolved(entry.reason)
        return entry.addresses

    def _ask(self, host: str) -> asyncio.Future[_Entry]:
        under_way = self._lookups.get(host)
        if under_way is not None:
            return under_way.future
        if self._channel is None:
            raise NameNotResolved("the sender was closed")
        if len(self._lookups) >= MAX_LOOKUPS:
            raise NameNotResolved("too many names are being looked up at once")
        self._follow_configuration(self._channel)
        lookup = self._lookups[host] = _Lookup(self._loop.create_future())
        self._unasked.append((host, lookup))
        self._ask_some()
        return lookup.future

    def _ask_some(self) -> None:
        while self._unasked and self._asked < BURST and self._channel is not None:
            self._asked += 1
            host, lookup = self._unasked.popleft()
            lookup.timer = self._loop.call_later(
                LOOKUP_SECONDS, self._finish, host, lookup, "the name servers did not answer"
            )
            for family in _FAMILIES:
                self._query(self._channel, host, lookup, family)
        if self._asked and self._pacer is None:
            self._pacer = self._loop.call_later(BURST_SECONDS, self._next_burst)
        if self._ticker is None and self._lookups:
            self._ticker = self._loop.call_later(TICK_SECONDS, self._tick)

    def _next_burst(self) -> None:
        self._pacer = None
        self._asked = 0
        self._ask_some()

    def _query(
        self, channel: pycares.Channel, host: str, lookup: _Lookup, family: socket.AddressFamily
    ) -> None:
        def answered(result: pycares.AddrInfoResult | None, error: int | None) -> None:
            if self._channel is not None:
                self._answered(host, lookup, family, result, error)

        channel.getaddrinfo(
            host, None, family=family, type=socket.SOCK_STREAM, flags=_AI_NOSORT, callback=answered
        )

    def _answered(
        self,
        host: str,
        lookup: _Lookup,
        family: int,
        result: pycares.AddrInfoResult | None,
        error: int | None,
    ) -> None:
        lookup.waiting.discard(family)
        if result is not None:
            nodes = [(ip_address(node.addr[0].decode("ascii")), node.ttl) for node in result.nodes]
            lookup.found[family] = [address for address, _ in nodes]
            lookup.ttl = min([lookup.ttl, *(ttl for _, ttl in nodes)])
        elif error is not None and not lookup.found:
            lookup.reason = str(pycares.errno.strerror(error))
        if not lookup.waiting:
            self._finish(host, lookup, lookup.reason)
            self._lookups.pop(host, None)
        elif lookup.addresses() and not lookup.future.done():
            if lookup.timer is not None:
                lookup.timer.cancel()
            lookup.timer = self._loop.call_later(
                SECOND_FAMILY_SECONDS, self._finish, host, lookup, ""
            )

    def _finish(self, host: str, lookup: _Lookup, reason: str) -> None:
        """Remember what is known; a late second family replaces what the first one gave."""
        if lookup.timer is not None:
            lookup.timer.cancel()
        addresses = lookup.addresses()
        ttl = max(self._min_ttl, lookup.ttl) if addresses else FAILURE_TTL_SECONDS
        entry = _Entry(addresses, reason, self._loop.time() + ttl)
        self._entries.pop(host, None)
        while len(self._entries) >= MAX_REMEMBERED:
            del self._entries[next(iter(self._entries))]
        self._entries[host] = entry
        if not lookup.future.done():
            lookup.future.set_result(entry)

    # --- c-ares and the event loop ---------------------------------------------------------------

    def _watch(self, fd: int, readable: bool, writable: bool) -> None:
        """c-ares opened a socket, or wants other news of it, or is about to close it."""
        if self._channel is None:
            return
        if not (readable or writable):
            self._unwatch(fd)
            return
        self._watched.add(fd)
        if readable:
            self._loop.add_reader(fd, self._process, fd, _NO_SOCKET)
        else:
            self._loop.remove_reader(fd)
        if writable:
            self._loop.add_writer(fd, self._process, _NO_SOCKET, fd)
        else:
            self._loop.remove_writer(fd)

    def _unwatch(self, fd: int) -> None:
        self._watched.discard(fd)
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)

    def _process(self, readable: int, writable: int) -> None:
        if self._channel is not None:
            self._channel.process_fd(readable, writable)

    def _tick(self) -> None:
        """c-ares's own time-outs, while anything is being looked up."""
        self._ticker = None
        self._process(_NO_SOCKET, _NO_SOCKET)
        if self._lookups:
            self._ticker = self._loop.call_later(TICK_SECONDS, self._tick)

    def _follow_configuration(self, channel: pycares.Channel) -> None:
        """Read the system's name servers again when their file has changed."""
        now = self._loop.time()
        if self._servers or now < self._reload_at:
            return
        self._reload_at = now + RELOAD_SECONDS
        try:
            changed = _CONFIGURATION.stat().st_mtime_ns
        except OSError:
            return
        if self._configured and changed != self._configured:
            channel.reinit()
        self._configured = changed
