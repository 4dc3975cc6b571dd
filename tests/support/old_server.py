"""A server that speaks just enough of PostgreSQL's protocol to say that it is version 14.

There are no binaries that old to test with. It lets anybody in, names its version as PostgreSQL
does, and hangs up at the first statement: nothing may be asked of a server that is too old.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
TERMINATE = b"X"


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _greeting(version: str) -> bytes:
    parameters = {
        "server_version": version,
        "client_encoding": "UTF8",
        "standard_conforming_strings": "on",
        "integer_datetimes": "on",
        "TimeZone": "UTC",
    }
    return b"".join(
        [
            _message(b"R", struct.pack("!i", 0)),
            *(_message(b"S", f"{name}\0{value}\0".encode()) for name, value in parameters.items()),
            _message(b"K", struct.pack("!ii", 1, 1)),
            _message(b"Z", b"I"),
        ]
    )


@asynccontextmanager
async def old_server(version: str = "14.9") -> AsyncIterator[tuple[str, list[bytes]]]:
    """Its URL, and the kinds of messages that clients sent after they were let in."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size, code = struct.unpack("!ii", await reader.readexactly(8))
                await reader.readexactly(size - 8)
                if code not in (SSL_REQUEST, GSS_REQUEST):
                    break
                writer.write(b"N")
            writer.write(_greeting(version))
            asked.append(await reader.readexactly(1))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"postgresql://somebody:sesame@127.0.0.1:{port}/anything", asked
