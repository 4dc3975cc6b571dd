"""aiohttp on a kept connection, which sends each head in a packet before its body: with a length,
in parts with and without a length (chunked), waiting for 100 Continue, offering an Upgrade."""

import asyncio
import sys
from collections.abc import AsyncIterator

import aiohttp


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    yield body[:3]
    await asyncio.sleep(0.05)  # so that the rest comes in a packet of its own
    yield body[3:]


async def main(url: str, key: str, text: str) -> None:
    body = text.encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    length = {"content-length": str(len(body))}
    upgrade = {"connection": "upgrade", "upgrade": "websocket"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for data, more, expect in (
            (body, {}, False),
            (in_parts(body), length, False),
            (in_parts(body), {}, False),
            (body, {}, True),
            (in_parts(body), length, True),
            (body, upgrade, False),
            (in_parts(body), upgrade | length, False),
            (in_parts(body), upgrade, False),
        ):
            async with session.post(url, data=data, headers=more, expect100=expect) as response:
                print(response.status)


asyncio.run(main(*sys.argv[1:]))
