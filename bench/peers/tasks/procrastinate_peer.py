"""The task on procrastinate. Its queue is in the PostgreSQL that the PG… variables name."""

from __future__ import annotations

import sys

import uvloop
from common import BODY, AsyncSender, enqueue_async
from procrastinate import App, PsycopgConnector, RetryStrategy

app = App(connector=PsycopgConnector(min_size=4, max_size=8))
sender = AsyncSender()


@app.task(name="deliver", retry=RetryStrategy(max_attempts=5, exponential_wait=2))
async def deliver(message_id: str, body: str) -> None:
    await sender.send(message_id, body)


@app.periodic(cron="* * * * *")
@app.task(name="retry_stalled", queueing_lock="retry_stalled", pass_context=True)
async def retry_stalled(context: object, timestamp: int) -> None:
    """As the documentation advises: nothing else takes back what a dead worker held."""
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=10):
        await app.job_manager.retry_job(job)


async def prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue() -> None:
    async with app.open_async():

        async def add(ids: list[str]) -> None:
            await deliver.batch_defer_async(*({"message_id": one, "body": BODY} for one in ids))

        await enqueue_async(add)


async def work() -> None:
    async with sender, app.open_async():
        await app.run_worker_async(
            concurrency=64,
            delete_jobs="successful",
            update_heartbeat_interval=3,
            stalled_worker_timeout=10,
        )


uvloop.run({"prepare": prepare, "enqueue": enqueue, "work": work}[sys.argv[1]]())
