"""What the indexes cost that the original documents name and others serve: decision 5.

    python bench/indexes.py

Reads nothing; writes only in a temporary directory, on a durable embedded server of its own. Both
variants are measured in turns within one run, so that a noisy machine disturbs both alike.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg

from surehook.embedded.server import EmbeddedServer
from surehook.store.postgres.migrate import migrate

ROWS = 100_000
BATCH = 500
ROUNDS = 3
REDUNDANT = (
    "CREATE INDEX idx_saga_event ON webhook_delivery_sagas (event_id)",
    "CREATE INDEX idx_saga_status ON webhook_delivery_sagas (status)",
    "CREATE INDEX idx_job_saga ON webhook_delivery_jobs (saga_id)",
)
# The writes of one delivery that succeeds at once, in batches, as the components do them.
STEPS = (
    "INSERT INTO webhook_delivery_sagas (event_id, subscription_id) "
    "SELECT g, g % 100 FROM generate_series($1::bigint, $2::bigint) g",
    "INSERT INTO webhook_delivery_jobs (saga_id, event_id, subscription_id, attempt_at) "
    "SELECT id, event_id, subscription_id, next_attempt_at FROM webhook_delivery_sagas "
    "WHERE id BETWEEN $1 AND $2",
    "UPDATE webhook_delivery_sagas SET status = 'InProgress', updated_at = surehook_now() "
    "WHERE id BETWEEN $1 AND $2",
    "UPDATE webhook_delivery_jobs SET status = 'Leased', lease_until = surehook_now() "
    "WHERE id BETWEEN $1 AND $2",
    "UPDATE webhook_delivery_jobs SET status = 'Completed', finished_at = surehook_now() "
    "WHERE id BETWEEN $1 AND $2",
    "UPDATE webhook_delivery_sagas SET status = 'Completed', attempt_count = 1 "
    "WHERE id BETWEEN $1 AND $2",
)


async def measure(url: str, name: str, redundant: bool) -> tuple[float, float, float]:
    """µs and bytes of WAL per delivery, MB of indexes at the end."""
    admin = await asyncpg.connect(url)
    await admin.execute(f"CREATE DATABASE {name}")
    connection = await asyncpg.connect(url.replace("/surehook?", f"/{name}?", 1))
    await migrate(connection)
    for statement in REDUNDANT if redundant else ():
        await connection.execute(statement)
    await admin.execute("CHECKPOINT")
    wal = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
    before, began = await connection.fetchval(wal), time.perf_counter()
    for first in range(1, ROWS, BATCH):
        for step in STEPS:
            await connection.execute(step, first, first + BATCH - 1)
    seconds = time.perf_counter() - began
    written = await connection.fetchval(wal) - before
    size = await connection.fetchval(
        "SELECT pg_indexes_size('webhook_delivery_sagas') "
        "+ pg_indexes_size('webhook_delivery_jobs')"
    )
    await connection.close()
    await admin.execute(f"DROP DATABASE {name}")
    await admin.close()
    return seconds / ROWS * 1e6, float(written) / ROWS, size / 1e6


async def compare(url: str) -> None:
    found: dict[bool, list[Any]] = {False: [], True: []}
    for number in range(ROUNDS):
        for redundant in (False, True):
            found[redundant].append(await measure(url, f"b{number}{int(redundant)}", redundant))
    for redundant, rows in found.items():
        microseconds, wal, size = (statistics.median(column) for column in zip(*rows, strict=True))
        label = "with the redundant indexes" if redundant else "as the schema is"
        print(f"{label:<27} {microseconds:6.1f} µs {wal:7.0f} B of WAL {size:6.1f} MB of indexes")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="surehook-bench-") as directory:
        Path(directory).chmod(0o711)
        with EmbeddedServer(Path(directory) / "data") as server:
            asyncio.run(compare(server.url))


if __name__ == "__main__":
    main()
