"""A gate between a program and its PostgreSQL: open, shut, or silent.

Reads and writes the bytes that pass; listens on a Unix socket in a directory of its own.

    async with Gate(postgres_url) as gate:
        ... connect to gate.url ...
        gate.shut()      # as a server that was stopped: connections end, new ones are refused
        gate.silence()   # as a server that hangs: nothing passes, nothing ends
        await gate.open()
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlencode, urlsplit

SOCKET = ".s.PGSQL.5432"


class Gate:
    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        query = parse_qs(self._parts.query)
        self._query = {name: values[0] for name, values in query.items()}
        self._behind = f"{self._query['host']}/.s.PGSQL.{self._query.get('port', '5432')}"
        self._directory = tempfile.TemporaryDirectory(prefix="gate-")
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        query = urlencode({**self._query, "host": self._directory.name, "port": "5432"})
        return self._parts._replace(query=query).geturl()

    async def open(self) -> None:
        self._flowing.set()
        if self._server is None:
            path = Path(self._directory.name) / SOCKET
            self._server = await asyncio.start_unix_server(self._accept, path)

    def shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            (Path(self._directory.name) / SOCKET).unlink(missing_ok=True)
        for writer in self._writers:
            writer.transport.abort()

    def silence(self) -> None:
        self._flowing.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_unix_connection(self._behind)
        self._writers |= {writer, behind_writer}
        tasks = {
            asyncio.ensure_future(self._pass(reader, behind_writer)),
            asyncio.ensure_future(self._pass(behind_reader, writer)),
        }
        self._tasks |= tasks
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, behind_writer):
            one.transport.abort()
            self._writers.discard(one)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.shut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._directory.cleanup()
