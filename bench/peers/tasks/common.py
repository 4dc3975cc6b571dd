"""What the Python peers have in common: the task itself, and how tasks are enqueued.

Reads   its environment: where to POST, which authority to trust, the secret
Writes  the file that the enqueuing program is given: when each task was handed in, and its CPU

A task is: sign this body as Standard Webhooks asks for and POST it; anything but 2xx is an error,
which the peer retries.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import ssl
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path

URL = os.environ.get("PEER_URL", "")
CA_FILE = os.environ.get("PEER_CA", "")
SECRET = os.environ.get("PEER_SECRET", "").encode()
LIST = 64
THREADS = 8
BODY = '{"order": "A-1001", "note": "' + "x" * 993 + '"}'


def headers(message_id: str, body: str) -> dict[str, str]:
    now = str(int(time.time()))
    signed = f"{message_id}.{now}.{body}".encode()
    signature = b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": now,
        "webhook-signature": f"v1,{signature}",
    }


class AsyncSender:
    """aiohttp with kept connections."""

    async def __aenter__(self) -> AsyncSender:
        import aiohttp

        context = ssl.create_default_context(cafile=CA_FILE)
        connector = aiohttp.TCPConnector(limit=256, ssl=context)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, message_id: str, body: str) -> None:
        async with self._session.post(
            URL, data=body.encode(), headers=headers(message_id, body), allow_redirects=False
        ) as answer:
            await answer.read()
            answer.raise_for_status()


_own = threading.local()  # greenlets have their own too, where gevent has patched it


def send(message_id: str, body: str) -> None:
    """requests, one session for each thread or greenlet."""
    import requests

    session = getattr(_own, "session", None)
    if session is None:
        session = _own.session = requests.Session()
        session.verify = CA_FILE
        session.trust_env = False
    answer = session.post(
        URL,
        data=body.encode(),
        headers=headers(message_id, body),
        timeout=15,
        allow_redirects=False,
    )
    answer.raise_for_status()


# ── Enqueuing: PROGRAM enqueue COUNT PER_SECOND PREFIX FILE; 0 per second: as fast as it goes ────


def _written(times: dict[str, float], file: str) -> None:
    cpu = time.process_time()
    Path(file).write_text(json.dumps({"times": times, "cpu_us": 1e6 * cpu}))


def _asked() -> tuple[int, float, str, str]:
    count, per_second, prefix, file = sys.argv[2:6]
    return int(count), float(per_second), prefix, file


async def enqueue_async(add: Callable[[list[str]], Awaitable[object]]) -> None:
    """`add` stores these messages durably, by one call."""
    count, per_second, prefix, file = _asked()
    ids = [f"{prefix}{number}" for number in range(count)]
    times: dict[str, float] = {}
    began = time.monotonic()
    step = 1 if per_second else LIST
    for start in range(0, count, step):
        if per_second:
            await asyncio.sleep(max(0.0, began + start / per_second - time.monotonic()))
        part = ids[start : start + step]
        times.update(dict.fromkeys(part, time.monotonic()))
        await add(part)
    _written(times, file)


def enqueue_threads(add: Callable[[str], object]) -> None:
    """`add` stores one message durably; several threads do it at once."""
    count, per_second, prefix, file = _asked()
    numbers = iter(range(count))
    lock = threading.Lock()
    times: dict[str, float] = {}
    began = time.monotonic()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            if per_second:
                time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            times[f"{prefix}{number}"] = time.monotonic()
            add(f"{prefix}{number}")

    threads = [threading.Thread(target=work) for _ in range(1 if per_second else THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _written(times, file)
