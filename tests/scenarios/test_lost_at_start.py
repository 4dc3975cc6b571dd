"""A database session that is lost while a command starts: one line and exit 3, at any moment."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from support.commands import run_command
from support.waiting import PATIENCE
from surehook.store.logins import DatabaseAccess

TERMINATED = b"SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
COMMANDS = ("migrate", "migrate --status", "doctor", "check", "key list")


class Cutter:
    """Between a command and the server: the `moment`-th answer is cut off, and all after it."""

    def __init__(self, url: str, moment: int) -> None:
        self._parts = urlsplit(url)
        self._left = moment
        self.cut = False
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _socket(self) -> str | None:
        options = {name: values[0] for name, values in parse_qs(self._parts.query).items()}
        if "host" in options:
            return f"{options['host']}/.s.PGSQL.{options.get('port', '5432')}"
        return options.get("unix_socket")

    def url(self, port: int) -> str:
        login = self._parts.netloc.rpartition("@")[0]
        kept = [one for one in self._parts.query.split("&") if one.startswith("passfile")]
        if self._parts.scheme != "postgresql":
            kept.append("ssl-mode=PREFERRED")  # MySQL wants a password encrypted where TCP is used
        return self._parts._replace(
            netloc=f"{login}@127.0.0.1:{port}", query="&".join(kept)
        ).geturl()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        this = asyncio.current_task()
        assert this is not None
        self._tasks.add(this)
        if self.cut:
            writer.close()
            return
        if self._socket is not None:
            answers, asked = await asyncio.open_unix_connection(self._socket)
        else:
            host, port = self._parts.hostname or "localhost", self._parts.port or 3306
            answers, asked = await asyncio.open_connection(host, port)
        self._writers.append(asked)
        asking = asyncio.create_task(self._forward(reader, asked))
        self._tasks.add(asking)
        with suppress(OSError):
            while (chunk := await answers.read(1 << 16)) and not self.cut:
                self._left -= 1
                if self._left <= 0:
                    self.end(writer)
                    break
                writer.write(chunk)
                await writer.drain()
        asking.cancel()
        writer.close()
        asked.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)

    async def close(self) -> None:
        self.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            with suppress(OSError):
                await writer.wait_closed()

    def end(self, last: asyncio.StreamWriter | None = None) -> None:
        self.cut = True
        if last is not None and self._parts.scheme == "postgresql":
            last.write(b"E" + (len(TERMINATED) + 4).to_bytes(4, "big") + TERMINATED)
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def cutting(
    access: DatabaseAccess, moment: int
) -> AsyncIterator[tuple[Cutter, dict[str, str]]]:
    cutter = Cutter(access.url, moment)
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield (
            cutter,
            {
                "SUREHOOK_DATABASE_URL": cutter.url(port),
                "SUREHOOK_ROLE_SECRET": access.role_secret or "",
                "SUREHOOK_LISTEN": "127.0.0.1:0",
            },
        )
    finally:
        server.close()
        await cutter.close()


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_session_that_is_lost_is_one_line_and_exit_3(
    access: DatabaseAccess, name: str
) -> None:
    codes = []
    for moment in (1, 2, 3, 4, 6, 9):
        async with cutting(access, moment) as (cutter, env):
            done = await asyncio.to_thread(run_command, tuple(name.split()), env)
            assert done.code == (3 if cutter.cut else 0), (moment, done)
            assert not cutter.cut or len(done.err.splitlines()) == 1, done.err
            codes.append(done.code)
    assert codes.count(3) >= 3  # else nothing was cut


@pytest.mark.parametrize("moment", [2, 7, 20])
async def test_serve_whose_session_is_lost_while_it_starts_ends_with_exit_3(
    access: DatabaseAccess, moment: int, tmp_path: Path
) -> None:
    kept = {n: v for n, v in os.environ.items() if "SUREHOOK" not in n and n != "DATABASE_URL"}
    own = {
        "SUREHOOK_LOG_LEVEL": "error",
        "SUREHOOK_CONFIG": os.devnull,
        "SUREHOOK_ENCRYPTION_KEY": access.encryption_key or "",
    }
    async with cutting(access, moment) as (_, env):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "surehook", "serve"),
            env={**kept, **own, **env, "SUREHOOK_DATABASE_ALLOW_UNSAFE": "on"},
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 3 and len(said.splitlines()) == 1, said.decode()
    assert b"The database does not answer" in said
