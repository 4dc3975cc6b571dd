"""The task on pgqueuer. Its queue is in the PostgreSQL that the PG… variables name."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from datetime import timedelta

import asyncpg
import uvloop
from common import BODY, AsyncSender, enqueue_async
from pgqueuer import AsyncpgDriver, DatabaseRetryEntrypointExecutor, PgQueuer, Queries
from pgqueuer.models import Job


async def prepare() -> None:
    connection = await asyncpg.connect()
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def enqueue() -> None:
    connection = await asyncpg.connect()
    queries = Queries(AsyncpgDriver(connection))

    async def add(ids: list[str]) -> None:
        payloads = [json.dumps({"id": one, "body": BODY}).encode() for one in ids]
        await queries.enqueue(["deliver"] * len(ids), payloads, [0] * len(ids))

    await enqueue_async(add)
    await connection.close()


async def work() -> None:
    pool = await asyncpg.create_pool(min_size=4, max_size=8)
    queuer = PgQueuer.from_asyncpg_pool(pool)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, queuer.shutdown.set)
    async with AsyncSender() as sender:

        @queuer.entrypoint(
            "deliver",
            executor_factory=lambda given: DatabaseRetryEntrypointExecutor(
                parameters=given, max_attempts=5, initial_delay=timedelta(seconds=1)
            ),
        )
        async def deliver(job: Job) -> None:
            message = json.loads(job.payload or b"{}")
            await sender.send(message["id"], message["body"])

        await queuer.run(
            batch_size=100, max_concurrent_tasks=256, heartbeat_timeout=timedelta(seconds=10)
        )


uvloop.run({"prepare": prepare, "enqueue": enqueue, "work": work}[sys.argv[1]]())
