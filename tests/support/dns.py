"""A tiny name server on loopback UDP: answers as configured, or not at all.

Reads   questions that arrive
Writes  nothing but answers

    async with NameServer() as names:
        names.answer("a.example.test", ["93.184.216.34"], ["127.0.0.1"])  # in turn; last repeats
        names.silent("dead.example.test")
        ... Resolver([names.address]) ...
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from ipaddress import ip_address
from typing import Self

_A, _AAAA = 1, 28
_NO_ERROR, _SERVER_FAILURE, _NO_SUCH_NAME = 0, 2, 3


class NameServer(asyncio.DatagramProtocol):
    """Authoritative for whatever it was told; other names do not exist."""

    def __init__(self, ttl: int = 0) -> None:
        self.ttl = ttl
        self.address = ""
        self.questions: Counter[str] = Counter()
        self._answers: dict[str, tuple[list[str], ...]] = {}
        self._turns: Counter[tuple[str, int]] = Counter()
        self._silent: set[str] = set()
        self._failing: set[str] = set()
        self._default: list[str] | None = None
        self.silent_for_ipv6 = False

    def answer(self, name: str, *turns: list[str]) -> None:
        """The addresses of a name, by turn; each family counts its own turns."""
        self._answers[name] = turns

    def answer_everything(self, addresses: list[str]) -> None:
        self._default = addresses

    def silent(self, name: str) -> None:
        self._silent.add(name)

    def failing(self, name: str) -> None:
        self._failing.add(name)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.address = "127.0.0.1:{}".format(self._transport.get_extra_info("sockname")[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()
        await asyncio.sleep(0)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, end = _read_name(data)
        (kind,) = struct.unpack_from("!H", data, end)
        self.questions[name] += 1
        if name in self._silent or (kind == _AAAA and self.silent_for_ipv6):
            return
        code, records = self._look_up(name, kind)
        head = data[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(records), 0, 0)
        body = b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, self.ttl, len(raw)) + raw for raw in records
        )
        self._transport.sendto(head + data[12 : end + 4] + body, addr)

    def _look_up(self, name: str, kind: int) -> tuple[int, list[bytes]]:
        if name in self._failing:
            return _SERVER_FAILURE, []
        turns = self._answers.get(name)
        if turns is None:
            if self._default is None:
                return _NO_SUCH_NAME, []
            turns = (self._default,)
        turn = self._turns[name, kind]
        self._turns[name, kind] += 1
        addresses = [ip_address(text) for text in turns[min(turn, len(turns) - 1)]]
        wanted = {_A: 4, _AAAA: 6}.get(kind)
        return _NO_ERROR, [each.packed for each in addresses if each.version == wanted]


def _read_name(data: bytes) -> tuple[str, int]:
    labels, place = [], 12
    while (length := data[place]) != 0:
        labels.append(data[place + 1 : place + 1 + length].decode("ascii").lower())
        place += 1 + length
    return ".".join(labels), place + 1
