"""What a child process of a test runs; configured by its environment, like the program.

    python -m support.child serve router,orchestrator       components, until SIGTERM
    python -m support.child poisoned worker                 … that die of a payload with "poison"
    python -m support.child publish 40                      40 events handed in, then it ends
    python -m support.child requeue 7                       one dead letter requeued
    python -m support.child whole 40                        everything, and 40 events handed in

`whole` requeues every dead letter when it gets SIGUSR1.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop

from support import clock
from support.pipeline import ALL
from surehook.actions.ingest import Ingest
from surehook.actions.requeue import Requeue
from surehook.config import Config, load
from surehook.delivery import Outcome, Request
from surehook.delivery.client import HttpsSender, SenderSettings
from surehook.model.records import NewEvent
from surehook.model.resources.dead_letter import DeadLetterFilter
from surehook.observe import crashpoints, log
from surehook.process.serve import Process, serve
from surehook.store import open_database, store_of
from surehook.store.deadletters import DeadLetterStore
from surehook.store.hints import Hints
from surehook.store.ingest import IngestStore
from surehook.store.logins import DatabaseAccess


class PoisonedSender(HttpsSender):
    """Some payloads kill whoever sends them."""

    async def send(self, request: Request) -> Outcome:
        if b"poison" in request.body:
            await crashpoints.kill()
        return await super().send(request)


async def poisoned(config: Config, access: DatabaseAccess, names: list[str]) -> None:
    settings = SenderSettings(
        allow_networks=tuple(map(str, config.allow_networks)),
        ca_file=str(config.optional_path("delivery.ca_file")),
    )
    process = Process(config, access, lambda: PoisonedSender(settings))
    await process.open(names)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.stop)
    await process.run()


def orders(count: int) -> list[NewEvent]:
    return [NewEvent("order.paid", f'{{"n": {n}}}', external_id=str(n)) for n in range(count)]


async def publish(config: Config, access: DatabaseAccess, count: int) -> None:
    database = await open_database(config, access, "ingest")
    hints = Hints()
    hints.send_outward(database.notify)
    await Ingest(store_of(IngestStore, database), hints, database.buckets).publish_all(
        orders(count)
    )
    await database.close()


async def requeue_one(config: Config, access: DatabaseAccess, letter: int) -> None:
    database = await open_database(config, access, "deadletters")
    store = store_of(DeadLetterStore, database)
    await Requeue(store, Hints(), range(database.buckets)).by_id([letter])
    await database.close()


async def whole(config: Config, access: DatabaseAccess, count: int) -> None:
    crashpoints.arm_from_environment()
    process = Process(config, access)
    await process.open(ALL)
    database = await open_database(config, access, "ingest")
    ingest = Ingest(store_of(IngestStore, database), process.hints, database.buckets)
    letters = store_of(DeadLetterStore, process.databases["deadletters"])
    requeue = Requeue(letters, process.hints, range(database.buckets))
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[object]] = set()

    def do(work: object) -> None:
        tasks.add(loop.create_task(work))  # type: ignore[arg-type]

    loop.add_signal_handler(signal.SIGTERM, process.stop)
    loop.add_signal_handler(
        signal.SIGUSR1, lambda: do(requeue.matching(DeadLetterFilter(), 10_000))
    )
    do(ingest.publish_all(orders(count)))
    await process.run()
    await asyncio.gather(*tasks)
    await database.close()


def main(mode: str, what: str) -> None:
    clock.adopt_from_environment()
    config = load()
    log.start(config.text("log.level"), config.text("log.format"))
    access = DatabaseAccess(
        config.text("database.url"),
        config.optional_text("database.role_secret"),
        config.optional_text("delivery.encryption_key"),
    )
    if mode == "serve":
        uvloop.run(serve(config, access, what.split(",")))
    elif mode == "poisoned":
        uvloop.run(poisoned(config, access, what.split(",")))
    elif mode == "publish":
        uvloop.run(publish(config, access, int(what)))
    elif mode == "requeue":
        uvloop.run(requeue_one(config, access, int(what)))
    else:
        uvloop.run(whole(config, access, int(what)))


if __name__ == "__main__":
    main(*sys.argv[1:])
