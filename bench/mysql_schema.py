"""What the guard and the stand-ins for partial indexes cost on MariaDB: decision 11.

    python bench/mysql_schema.py [deliveries]

Reads nothing; writes only in a temporary directory, on a private MariaDB of its own (Debian's
mariadb-server-core). The writes of one delivery that succeeds at once are done in batches, as the
components do them and under their logins; the server's CPU time is counted. All variants take turns
within one run, so that a noisy machine disturbs all alike.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
# The tools of the repository come before tests/tools.
sys.path.insert(0, str(Path(__file__).parents[1]))

from support.mysql_server import MariadbServer
from support.servers import private_directory
from surehook.store.logins import Login, derived_password
from surehook.store.mysql.connection import Connection, connect
from surehook.store.mysql.migrate import migrate

BATCH, ROUNDS, SECRET = 500, 3, "a role secret of this run"
SAGAS, JOBS = "webhook_delivery_sagas", "webhook_delivery_jobs"
# Login, statement: what a delivery writes.
STEPS = (
    ("router_worker", f"INSERT INTO {SAGAS} (event_id, subscription_id, bucket) VALUES {{sagas}}"),
    (
        "saga_orchestrator",
        f"INSERT INTO {JOBS} (saga_id, event_id, subscription_id, attempt_at) VALUES {{jobs}}",
    ),
    ("saga_orchestrator", f"UPDATE {SAGAS} SET status = 'InProgress', updated_at = {{now}} {{at}}"),
    (
        "job_worker",
        f"UPDATE {JOBS} SET status = 'Leased', lease_until = {{now}}, lease_token = {{first}}, "
        "worker_id = 'worker-1', started_at = {now} {at}",
    ),
    ("job_worker", f"UPDATE {JOBS} SET status = 'Completed', finished_at = {{now}} {{at}}"),
    (
        "saga_orchestrator",
        f"UPDATE {SAGAS} SET status = 'Completed', attempt_count = 1, updated_at = {{now}} {{at}}",
    ),
)
STATUS_FIRST = (
    f"ALTER TABLE {SAGAS} DROP INDEX idx_saga_waiting, DROP INDEX idx_saga_dead, "
    "DROP COLUMN waiting, DROP COLUMN died_at, "
    "ADD INDEX idx_saga_waiting (status, subscription_id, next_attempt_at), "
    "ADD INDEX idx_saga_dead (status, updated_at, id)",
    f"ALTER TABLE {JOBS} DROP INDEX idx_job_open, DROP COLUMN open_for, "
    "ADD INDEX idx_job_open (status, subscription_id)",
)
NO_GUARD = ("DROP TRIGGER guard_saga_moves", "DROP TRIGGER guard_job_moves")
VARIANTS: dict[str, tuple[str, ...]] = {
    "as the schema is": (),
    "status first in every index": STATUS_FIRST,
    "no guard": NO_GUARD,
    "guard that trusts no login": ("everything compared",),
}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def prepare(owner: Connection, changes: tuple[str, ...]) -> None:
    await migrate(owner, role_secret=SECRET)
    for change in changes:
        if change == "everything compared":
            for table in (SAGAS, JOBS):
                name = "guard_saga_moves" if table == SAGAS else "guard_job_moves"
                text = (await owner.fetch(f"SHOW CREATE TRIGGER {name}"))[0][2]
                for role in ("saga_orchestrator", "job_worker"):
                    text = text.replace(f"'{role}@'", "'nobody of this name@'")
                await owner.write(text.replace("CREATE", "CREATE OR REPLACE", 1))
        else:
            await owner.write(change)


async def deliver(logins: dict[str, Connection], count: int) -> None:
    for first in range(1, count, BATCH):
        last = first + BATCH - 1
        numbers = range(first, last + 1)
        parts = {
            "first": first,
            "at": f"WHERE id BETWEEN {first} AND {last}",
            "now": "UTC_TIMESTAMP(6)",
            "sagas": ", ".join(f"({n}, {n % 100}, 0)" for n in numbers),
            "jobs": ", ".join(f"({n}, {n}, {n % 100}, '2026-01-01')" for n in numbers),
        }
        for role, step in STEPS:
            await logins[role].write(step.format(**parts))


async def measure(server: MariadbServer, name: str, changes: tuple[str, ...], count: int) -> float:
    """µs of the server's CPU per delivery."""
    url = urlsplit(server.url)._replace(path=f"/{name}").geturl()
    admin = await connect(Login("bench", server.url), 30)
    await admin.write(f"CREATE DATABASE {name}")
    owner = await connect(Login("bench", url), 30)
    await prepare(owner, changes)
    logins = {
        role: await connect(Login("bench", url, role, derived_password(SECRET, role)), 30)
        for role, _ in STEPS
    }
    pid = int((server.directory / "mariadb.pid").read_text())
    before = cpu_seconds(pid)
    await deliver(logins, count)
    await asyncio.sleep(1)  # what is purged afterwards is part of the price
    used = cpu_seconds(pid) - before
    await admin.write(f"DROP DATABASE {name}")
    for connection in (*logins.values(), owner, admin):
        await connection.close()
    return used / count * 1e6


async def main(count: int) -> None:
    found: dict[str, list[float]] = {name: [] for name in VARIANTS}
    with private_directory() as directory, MariadbServer(directory / "data") as server:
        for turn in range(ROUNDS):
            for number, (name, changes) in enumerate(VARIANTS.items()):
                found[name].append(await measure(server, f"b{turn}_{number}", changes, count))
    for name, figures in found.items():
        shown = ", ".join(f"{figure:.0f}" for figure in figures)
        print(f"{name:30} {statistics.median(figures):5.0f} µs per delivery ({shown})")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
