"""From a callback URL to a TLS connection with an address that was checked.

Reads   DNS through the resolver, the trusted certificates
Writes  to the network: TCP and TLS handshakes, CONNECT to an egress proxy

The guard sees each address in the same function that hands it to connect(): no name is resolved
again in between. Several addresses are tried within the deadline: the next one starts when the one
before has failed, or has been silent for STAGGER_SECONDS. Through a proxy the CONNECT names the
checked address, not the host, so the proxy cannot be led elsewhere either.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import msgspec

from surehook.delivery.address import Address, AddressGuard
from surehook.delivery.connection import Connection
from surehook.delivery.outcome import Outcome, safe_text
from surehook.delivery.resolver import NameNotResolved, Resolver
from surehook.delivery.tls import TlsSocket
from surehook.delivery.url import CallbackUrl
from surehook.errors import ConfigError
from surehook.model.error_codes import ErrorCode

STAGGER_SECONDS = 0.3
MAX_ADDRESSES = 6
MAX_PROXY_ANSWER_BYTES = 16 * 1024

_PROXY = re.compile(
    r"http://(?:(?P<user>[^:@/\s]+):(?P<password>[^@/\s]*)@)?"
    r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})/?",
    re.ASCII,
)
# How to reach one address: straight, or the proxy itself.
Connect = Callable[[Address], Coroutine[object, None, socket.socket]]

_PROXY_GRANTED = re.compile(rb"HTTP/1\.[01] 2[0-9][0-9][ \r]")


class AttemptFailed(Exception):
    """The attempt ended before a byte of the request was written."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail

    def outcome(self) -> Outcome:
        return Outcome(None, self.code, failure_detail=self.detail, sent=False)


class Proxy(msgspec.Struct, frozen=True):
    """An egress proxy that the operator named; its own address is not guarded."""

    host: str
    port: int
    authorization: str | None


def parse_proxy(text: str) -> Proxy:
    """http://[user:password@]host:port"""
    match = _PROXY.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ConfigError(
            "The egress proxy is not of the form http://[user:password@]host:port.",
            "HTTPS and SOCKS proxies are not supported.",
        )
    authorization = None
    if match["user"]:
        credentials = f"{match['user']}:{match['password']}".encode()
        authorization = "Basic " + base64.b64encode(credentials).decode("ascii")
    return Proxy(match["host"].strip("[]"), int(match["port"]), authorization)


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """TLS 1.2 or newer, host name and chain verified, the system's authorities and ours."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_quick_ciphers(context))
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            what = "is empty or not PEM" if Path(ca_file).is_file() else "cannot be read"
            raise ConfigError(f"The CA file {ca_file} {what} ({error}).") from None
    return context


def _quick_ciphers(context: ssl.SSLContext) -> str:
    """The context's own without DHE: there the server names the modulus, up to 10,000 bits, and the
    event loop would calculate with it for seconds. What has DHE and no ECDHE is long out of use."""
    ciphers = context.get_ciphers()
    return ":".join(cipher["name"] for cipher in ciphers if cipher["kea"] != "kx-dhe")


class Dialer:
    """Makes connections; every one to an address that the guard has just let through."""

    def __init__(
        self, resolver: Resolver, guard: AddressGuard, tls: ssl.SSLContext, proxy: Proxy | None
    ) -> None:
        self._resolver = resolver
        self._guard = guard
        self._tls = tls
        self._proxy = proxy

    async def dial(self, url: CallbackUrl) -> Connection:
        """A connection ready for a request, or AttemptFailed. The caller watches the deadline."""
        addresses = self._permitted(await self._addresses(url))
        if self._proxy is None:
            sock = await _first(addresses, lambda each: self._connect(each, url.port))
        else:
            sock = await self._through_proxy(self._proxy, addresses[0], url.port)
        return await self._secure(sock, url)

    async def _addresses(self, url: CallbackUrl) -> tuple[Address, ...]:
        if url.address is not None:
            return (url.address,)
        try:
            return await self._resolver.resolve(url.host)
        except NameNotResolved as error:
            raise AttemptFailed(ErrorCode.DNS_FAILED, f"{url.host}: {error}") from None

    def _permitted(self, addresses: tuple[Address, ...]) -> list[Address]:
        permitted = [each for each in addresses if self._guard.refusal(each) is None]
        if not permitted:
            reason = self._guard.refusal(addresses[0])
            raise AttemptFailed(ErrorCode.BLOCKED_ADDRESS, f"{addresses[0]} is {reason}")
        return permitted[:MAX_ADDRESSES]

    async def _connect(self, address: Address, port: int) -> socket.socket:
        """TCP to exactly this address. The guard is asked here: no way leads around it."""
        reason = self._guard.refusal(address)
        if reason is not None:
            raise AttemptFailed(ErrorCode.BLOCKED_ADDRESS, f"{address} is {reason}")
        return await _tcp(address, port)

    async def _through_proxy(self, proxy: Proxy, address: Address, port: int) -> socket.socket:
        try:
            hosts: tuple[Address, ...] = (ip_address(proxy.host),)
        except ValueError:
            try:
                hosts = await self._resolver.resolve(proxy.host)
            except NameNotResolved as error:
                raise AttemptFailed(ErrorCode.CONNECT_FAILED, f"egress proxy: {error}") from None
        sock = await _first(list(hosts[:MAX_ADDRESSES]), lambda each: _tcp(each, proxy.port))
        try:
            await _request_tunnel(sock, proxy, address, port)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _secure(self, sock: socket.socket, url: CallbackUrl) -> Connection:
        try:
            tls = await _handshake(self._tls, sock, url.host)
        except ssl.SSLCertVerificationError as error:
            raise _tls_failed(f"certificate: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise _tls_failed(error.reason or str(error)) from None
        except (OSError, ValueError) as error:
            raise _tls_failed(f"the handshake was cut off ({_reason(error)})") from None
        return Connection(asyncio.get_running_loop(), url.origin, tls)


async def _handshake(context: ssl.SSLContext, sock: socket.socket, host: str) -> TlsSocket:
    """The socket with TLS around it; closed if that fails or is cancelled."""
    try:
        tls = TlsSocket(context, sock, host)
        await tls.shake_hands()
    except BaseException:
        sock.close()
        raise
    return tls


def _tls_failed(detail: str) -> AttemptFailed:
    return AttemptFailed(ErrorCode.TLS_FAILED, safe_text(detail))


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return safe_text(str(error), 100) or type(error).__name__


async def _tcp(address: Address, port: int) -> socket.socket:
    six = isinstance(address, IPv6Address)
    sock = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except BaseException:
        sock.close()
        raise
    return sock


async def _first(addresses: list[Address], connect: Connect) -> socket.socket:
    """The first socket to connect; the others are closed."""
    try:
        if len(addresses) == 1:
            return await connect(addresses[0])
        return await _race(addresses, connect)
    except OSError as error:
        where = ", ".join(map(str, addresses))
        raise AttemptFailed(ErrorCode.CONNECT_FAILED, f"{where}: {_reason(error)}") from None


async def _race(addresses: list[Address], connect: Connect) -> socket.socket:
    tasks: list[asyncio.Task[socket.socket]] = []
    winner: asyncio.Task[socket.socket] | None = None
    try:
        for place, address in enumerate(addresses):
            tasks.append(asyncio.create_task(connect(address)))
            patience = STAGGER_SECONDS if place + 1 < len(addresses) else None
            winner = await _next_winner(tasks, patience)
            if winner is not None:
                return winner.result()
        raise next(error for task in tasks if (error := task.exception()) is not None)
    finally:
        for task in tasks:
            if task is not winner:
                task.cancel()
                task.add_done_callback(_close_result)


async def _next_winner(
    tasks: list[asyncio.Task[socket.socket]], patience: float | None
) -> asyncio.Task[socket.socket] | None:
    """A task that has connected; None when the newest has failed or the patience is at an end."""
    loop = asyncio.get_running_loop()
    until = None if patience is None else loop.time() + patience
    while True:
        for task in tasks:
            if task.done() and task.exception() is None:
                return task
        pending = [task for task in tasks if not task.done()]
        if not pending or (until is not None and tasks[-1].done()):
            return None
        left = None if until is None else until - loop.time()
        if left is not None and left <= 0:
            return None
        await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)


def _close_result(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _request_tunnel(sock: socket.socket, proxy: Proxy, address: Address, port: int) -> None:
    loop = asyncio.get_running_loop()
    target = f"[{address}]:{port}" if isinstance(address, IPv6Address) else f"{address}:{port}"
    login = f"proxy-authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    head = f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{login}\r\n"
    answer = b""
    with suppress(OSError):
        await loop.sock_sendall(sock, head.encode("ascii"))
        while b"\r\n\r\n" not in answer and len(answer) < MAX_PROXY_ANSWER_BYTES:
            data = await loop.sock_recv(sock, 4096)
            if not data:
                break
            answer += data
    # Anything behind the blank line would be read as the endpoint's: TLS servers speak second.
    if not _PROXY_GRANTED.match(answer) or not answer.endswith(b"\r\n\r\n"):
        line = answer.split(b"\r\n", 1)[0].decode("latin-1")
        raise AttemptFailed(
            ErrorCode.CONNECT_FAILED, f"the egress proxy refused ({safe_text(line, 100)})"
        )
