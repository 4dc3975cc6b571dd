"""A small HTTP/1.1 client for tests: raw enough to send what is wrong, short enough to read.

Reads and writes one connection per request, unless it is given one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

Headers = dict[str, str]


@dataclass(frozen=True)
class Reply:
    """An answer as it arrived; header names in lower case."""

    status: int
    headers: Headers
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Client:
    """Asks one server, with one key."""

    def __init__(self, address: str, key: str | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.host, self.port = host.strip("[]"), int(port)
        self.key = key

    def with_key(self, key: str | None) -> Client:
        return Client(f"{self.host}:{self.port}", key)

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.ask("GET", path, headers=headers)

    async def post(self, path: str, body: object = None, **headers: str) -> Reply:
        return await self.ask("POST", path, body, headers)

    async def ask(
        self, method: str, path: str, body: object = None, headers: Headers | None = None
    ) -> Reply:
        """`body`: bytes as they are, anything else as JSON."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(self.request(method, path, body, headers))
            return await read_reply(reader, method)
        finally:
            writer.close()

    def request(
        self, method: str, path: str, body: object = None, headers: Headers | None = None
    ) -> bytes:
        content = b""
        if body is not None:
            content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        given: Headers = {"host": "test", "content-length": str(len(content))}
        if self.key is not None:
            given["authorization"] = f"Bearer {self.key}"
        for name, value in (headers or {}).items():
            given[name.replace("_", "-")] = value
        if "transfer-encoding" in given:
            del given["content-length"]
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in given.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1") + content


async def read_reply(reader: asyncio.StreamReader, method: str = "GET") -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {}
    for line in head[1:]:
        if line:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
    length = 0 if method == "HEAD" else int(headers.get("content-length", 0))
    return Reply(int(head[0].split(" ")[1]), headers, await reader.readexactly(length))
