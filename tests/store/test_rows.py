"""The harness itself: fresh databases, the shifted clock, rows in every state."""

from __future__ import annotations

from typing import Any

import pytest

from support import OpenStore
from support.clock import Clock
from support.rows import a_dead_letter, a_job, a_saga
from support.servers import Server
from support.waiting import PATIENCE
from surehook.model.states import JobStatus, SagaStatus


@pytest.mark.parametrize("buckets", [1, 4])
@pytest.mark.parametrize("status", SagaStatus)
async def test_a_saga_reaches_every_status_along_permitted_moves(
    owner: Any, status: SagaStatus, buckets: int
) -> None:
    saga_id = await a_saga(owner, status=status, bucket=buckets - 1)
    found = await owner.fetchrow(
        "SELECT id, status, bucket FROM webhook_delivery_sagas", timeout=PATIENCE
    )
    assert tuple(found) == (saga_id, status, buckets - 1)


@pytest.mark.parametrize("status", JobStatus)
async def test_a_job_reaches_every_status_along_permitted_moves(
    owner: Any, status: JobStatus
) -> None:
    await a_job(owner, status=status)
    assert await owner.fetchval("SELECT status FROM webhook_delivery_jobs") == status


async def test_a_dead_letter_carries_the_payload(owner: Any) -> None:
    await a_dead_letter(owner)
    assert await owner.fetchval("SELECT payload_snapshot FROM dead_letters") == '{"order": 1}'


async def test_a_shifted_clock_moves_defaults_and_cached_statements(
    owner: Any, clock: Clock, open_store: OpenStore
) -> None:
    cleaner = await open_store("cleaner", {"database.connections": 2})
    await a_job(owner, status=JobStatus.LEASED, lease_seconds=30)
    assert (row := await cleaner.one("next_expiry", bucket=0)) and 29 < row[0] <= 30
    await clock.shift(3600)
    assert (row := await cleaner.one("next_expiry", bucket=0)) and -3571 < row[0] <= -3569


async def test_the_server_is_of_the_kind_asked_for(server: Server, owner: Any) -> None:
    assert ("pixeltable" in server.binaries) == (server.kind == "wheel")
    shown = await owner.fetchval("SELECT version()")
    assert server.version.partition(" ")[0] in shown
    assert server.kind != "mariadb" or "MariaDB" in shown


async def test_a_database_is_not_shared_with_another_test(owner: Any) -> None:
    assert await owner.fetchval("SELECT count(*) FROM events") == 0
