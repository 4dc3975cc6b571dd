"""The guard triggers: what the state machines do not permit, the database refuses to everyone."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from support import dialects
from support.dialects import as_role
from support.rows import a_dead_letter, a_job, a_saga, a_subscription, an_event
from support.servers import Server
from surehook.model.roles import TABLES_ON
from surehook.model.states import (
    JOB_MOVES,
    JOB_TERMINAL,
    SAGA_MOVES,
    SAGA_TERMINAL,
    JobStatus,
    SagaStatus,
)

REFUSED_MOVE = "SH001"
REFUSED_CHANGE = "SH002"
REFUSED_JOB = "SH003"

SAGA_PAIRS = {(move.source, move.target) for move in SAGA_MOVES}
JOB_PAIRS = {(move.source, move.target) for move in JOB_MOVES}


async def refusal(connection: Any, statement: str, *values: object) -> str | None:
    """The error code with which the database refuses, None if it does not; nothing is kept."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(statement, *values)
    except dialects.Error as error:
        return str(error.sqlstate)
    finally:
        await transaction.rollback()
    return None


# ── Moves ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
async def test_of_the_25_pairs_of_saga_states_only_the_moves_succeed(
    owner: Any, server: Server, database_url: str, buckets: int
) -> None:
    bucket = buckets - 1
    move = (
        "UPDATE webhook_delivery_sagas SET status = $1::saga_status, next_attempt_at = "
        "    next_attempt_at + interval '1 second' * ($1::saga_status = 'PendingRetry')::int "
        "WHERE id = $2 AND bucket = $3"
    )
    async with as_role(server, database_url, "saga_orchestrator") as orchestrator:
        walked = 0
        for source, target in product(SagaStatus, SagaStatus):
            saga_id = await a_saga(owner, status=source, bucket=bucket)
            expected = None if (source, target) in SAGA_PAIRS else REFUSED_MOVE
            for login in (owner, orchestrator):
                assert await refusal(login, move, target, saga_id, bucket) == expected
            walked += 1
        assert walked == 25


@pytest.mark.parametrize("buckets", [1, 4])
async def test_of_the_16_pairs_of_job_states_only_the_moves_succeed(
    owner: Any, server: Server, database_url: str, buckets: int
) -> None:
    bucket = buckets - 1
    move = "UPDATE webhook_delivery_jobs SET status = $1 WHERE id = $2 AND bucket = $3"
    async with (
        as_role(server, database_url, "job_worker") as worker,
        as_role(server, database_url, "lease_cleaner") as cleaner,
    ):
        walked = 0
        for source, target in product(JobStatus, JobStatus):
            job_id = await a_job(owner, status=source, bucket=bucket)
            expected = None if (source, target) in JOB_PAIRS else REFUSED_MOVE
            for login in (owner, worker, cleaner):
                assert await refusal(login, move, target, job_id, bucket) == expected
            walked += 1
        assert walked == 16


@pytest.mark.only_on("mysql", reason="elsewhere a value that is none is always an error")
@pytest.mark.parametrize("value", ["'Nonsense'", "NULL"])
async def test_a_session_without_strict_mode_moves_nothing_to_no_status(
    owner: Any, value: str
) -> None:
    """There a wrong word becomes the empty one, and NULL the column's default."""
    await owner.native("SET SESSION sql_mode = ''")
    for saga_status in SagaStatus:
        saga_id = await a_saga(owner, status=saga_status)
        move = f"UPDATE webhook_delivery_sagas SET status = {value} WHERE id = $1"
        assert await refusal(owner, move, saga_id) == REFUSED_MOVE, saga_status
    for job_status in JobStatus:
        job_id = await a_job(owner, status=job_status)
        move = f"UPDATE webhook_delivery_jobs SET status = {value} WHERE id = $1"
        assert await refusal(owner, move, job_id) == REFUSED_MOVE, job_status


@pytest.mark.only_on("mysql", reason="elsewhere a value that is none is always an error")
@pytest.mark.parametrize("column", ["event_id", "created_at", "next_attempt_at"])
async def test_a_session_without_strict_mode_empties_nothing_that_names_a_row(
    owner: Any, column: str
) -> None:
    await owner.native("SET SESSION sql_mode = ''")
    saga_id = await a_saga(owner, status=SagaStatus.IN_PROGRESS)
    move = f"UPDATE webhook_delivery_sagas SET status = 'PendingRetry', {column} = NULL"
    assert await refusal(owner, f"{move} WHERE id = $1", saga_id) == REFUSED_MOVE


async def test_a_refused_move_says_which_row_and_which_move(owner: Any) -> None:
    saga_id = await a_saga(owner)
    with pytest.raises(dialects.Error) as refused:
        await owner.execute("UPDATE webhook_delivery_sagas SET status = 'Completed'")
    message = f"webhook_delivery_sagas {saga_id}: Pending to Completed is not a permitted move"
    assert message in str(refused.value)
    hint = getattr(refused.value, "hint", "docs/states.md")  # MySQL's errors have but a message
    assert "docs/states.md" in hint


# ── Terminal rows and identities ──────────────────────────────────────────────────────────────

TEXTS = ("final_error_code", "error_code", "worker_id", "response_excerpt", "failure_detail")


def another(column: str) -> str:
    """An expression that differs from what is in `column`."""
    if column in ("created_at", "updated_at", "next_attempt_at", "attempt_at", "started_at"):
        return f"{column} + interval '1 second'"
    if column in ("lease_until", "finished_at"):
        return "statement_timestamp() + interval '1 day'"
    if column in TEXTS:
        return "'OTHER'"
    return f"COALESCE({column}, 0) + 1"


@pytest.mark.parametrize("status", SAGA_TERMINAL)
async def test_no_column_of_a_finished_saga_changes_again(owner: Any, status: SagaStatus) -> None:
    saga_id = await a_saga(owner, status=status)
    for column in TABLES_ON["postgres"]["webhook_delivery_sagas"]:
        if column == "status":
            continue
        change = f"UPDATE webhook_delivery_sagas SET {column} = {another(column)} WHERE id = $1"
        assert await refusal(owner, change, saga_id) == REFUSED_MOVE, column


@pytest.mark.parametrize("status", JOB_TERMINAL)
async def test_no_column_of_a_finished_job_changes_again(owner: Any, status: JobStatus) -> None:
    job_id = await a_job(owner, status=status)
    for column in TABLES_ON["postgres"]["webhook_delivery_jobs"]:
        if column == "status":
            continue
        change = f"UPDATE webhook_delivery_jobs SET {column} = {another(column)} WHERE id = $1"
        assert await refusal(owner, change, job_id) == REFUSED_MOVE, column


@pytest.mark.parametrize(
    "column", ["id", "event_id", "subscription_id", "created_at", "requeued_from", "bucket"]
)
async def test_a_permitted_move_cannot_make_another_saga_of_it(owner: Any, column: str) -> None:
    saga_id = await a_saga(owner)
    change = (
        f"UPDATE webhook_delivery_sagas SET status = 'InProgress', {column} = {another(column)} "
        "WHERE id = $1"
    )
    assert await refusal(owner, change, saga_id) == REFUSED_MOVE


@pytest.mark.parametrize(
    "column",
    ["id", "saga_id", "event_id", "subscription_id", "attempt_at", "created_at", "bucket"],
)
async def test_a_permitted_move_cannot_make_another_job_of_it(owner: Any, column: str) -> None:
    job_id = await a_job(owner)
    change = (
        f"UPDATE webhook_delivery_jobs SET status = 'Leased', {column} = {another(column)} "
        "WHERE id = $1"
    )
    assert await refusal(owner, change, job_id) == REFUSED_MOVE


@pytest.mark.parametrize("buckets", [4])
async def test_a_saga_cannot_be_moved_to_another_partition(owner: Any, buckets: int) -> None:
    saga_id = await a_saga(owner, bucket=1)
    change = "UPDATE webhook_delivery_sagas SET status = 'InProgress', bucket = 2 WHERE id = $1"
    assert await refusal(owner, change, saga_id) == REFUSED_MOVE


async def test_the_next_attempt_never_goes_back_in_time(
    owner: Any, server: Server, database_url: str
) -> None:
    saga_id = await a_saga(owner, status=SagaStatus.IN_PROGRESS)
    attempt = await owner.fetchval("SELECT next_attempt_at FROM webhook_delivery_sagas")
    change = (
        "UPDATE webhook_delivery_sagas SET status = 'PendingRetry', next_attempt_at = $2 "
        "WHERE id = $1"
    )
    earlier, later = (attempt + timedelta(microseconds=step) for step in (-1, 1))
    async with as_role(server, database_url, "saga_orchestrator") as orchestrator:
        for login in (owner, orchestrator):
            assert await refusal(login, change, saga_id, earlier) == REFUSED_MOVE
            assert await refusal(login, change, saga_id, later) is None


async def test_an_attempt_never_moves_back_in_time(owner: Any) -> None:
    """A move by status alone is permitted; that a retry gets a later time is the statement's."""
    saga_id = await a_saga(owner, status=SagaStatus.IN_PROGRESS)
    back = (
        "UPDATE webhook_delivery_sagas SET status = 'PendingRetry', "
        "next_attempt_at = next_attempt_at - interval '1 second' WHERE id = $1"
    )
    assert await refusal(owner, back, saga_id) == REFUSED_MOVE
    assert await refusal(owner, back.replace(" - interval '1 second'", ""), saga_id) is None


async def test_starting_a_saga_keeps_its_attempt(
    owner: Any, server: Server, database_url: str
) -> None:
    """InProgress means that the job for (saga, next_attempt_at) exists."""
    saga_id = await a_saga(owner)
    change = (
        "UPDATE webhook_delivery_sagas SET status = 'InProgress', "
        "next_attempt_at = next_attempt_at + interval '1 second' WHERE id = $1"
    )
    async with as_role(server, database_url, "saga_orchestrator") as orchestrator:
        for login in (owner, orchestrator):
            assert await refusal(login, change, saga_id) == REFUSED_MOVE


@pytest.mark.parametrize("buckets", [4])
@pytest.mark.parametrize("table", ["webhook_delivery_sagas", "webhook_delivery_jobs"])
async def test_a_partition_is_guarded_like_its_table(owner: Any, table: str, buckets: int) -> None:
    await a_saga(owner, status=SagaStatus.COMPLETED, bucket=2)
    change = dialects.of_partition(owner, "UPDATE", table, 2, "SET status = 'Pending'")
    assert await refusal(owner, change) == REFUSED_MOVE


# ── New jobs ──────────────────────────────────────────────────────────────────────────────────

NEW_JOB = (
    "INSERT INTO webhook_delivery_jobs (saga_id, event_id, subscription_id, attempt_at, bucket) "
    "SELECT {saga_id}, {event_id}, {subscription_id}, {attempt_at}, bucket "
    "FROM webhook_delivery_sagas WHERE id = $1 AND bucket = $2"
)


def new_job(**other: str) -> str:
    """The job for a saga's current attempt, but for what is said otherwise."""
    usual = {
        "saga_id": "id",
        "event_id": "event_id",
        "subscription_id": "subscription_id",
        "attempt_at": "next_attempt_at",
    }
    return NEW_JOB.format(**{**usual, **other})


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_job_is_refused_to_a_finished_saga(
    owner: Any, server: Server, database_url: str, buckets: int
) -> None:
    bucket = buckets - 1
    later = new_job(attempt_at="next_attempt_at + interval '1 second'")
    async with as_role(server, database_url, "saga_orchestrator") as orchestrator:
        for status in SAGA_TERMINAL:
            saga_id = await a_saga(owner, status=status, bucket=bucket)
            for login, job in product(
                (owner, orchestrator), (later, new_job(attempt_at="'2030-01-01'"))
            ):
                assert await refusal(login, job, saga_id, bucket) == REFUSED_JOB
        saga_id = await a_saga(owner, bucket=bucket)
        assert await refusal(orchestrator, new_job(), saga_id, bucket) is None


async def test_a_job_has_the_attempt_event_and_subscription_of_its_saga(owner: Any) -> None:
    saga_id = await a_saga(owner, status=SagaStatus.PENDING_RETRY)
    for wrong in (
        new_job(attempt_at="next_attempt_at + interval '1 second'"),
        new_job(event_id="event_id + 1"),
        new_job(subscription_id="subscription_id + 1"),
        new_job(saga_id="id + 1"),
    ):
        assert await refusal(owner, wrong, saga_id, 0) == REFUSED_JOB, wrong
    assert await refusal(owner, new_job(), saga_id, 0) is None


async def test_one_wrong_job_among_many_refuses_the_statement(owner: Any) -> None:
    for status in (SagaStatus.PENDING, SagaStatus.COMPLETED, SagaStatus.PENDING):
        await a_saga(owner, status=status)
    several = new_job(attempt_at="next_attempt_at + interval '1 second' * attempt_count")
    everyone = several.replace("WHERE id = $1 AND bucket = $2", "WHERE id > $1 AND bucket = $2")
    assert await refusal(owner, everyone, 0, 0) == REFUSED_JOB


@pytest.mark.parametrize("buckets", [4])
async def test_a_partition_refuses_a_job_like_its_table(owner: Any, buckets: int) -> None:
    await a_saga(owner, status=SagaStatus.COMPLETED, bucket=2)
    job = dialects.of_partition(
        owner,
        "INSERT INTO",
        "webhook_delivery_jobs",
        2,
        "(id, saga_id, event_id, subscription_id, attempt_at, bucket) "
        "SELECT -1, id, event_id, subscription_id, updated_at, bucket FROM webhook_delivery_sagas",
    )
    assert await refusal(owner, job) == REFUSED_JOB


@pytest.mark.parametrize("buckets", [1, 4])
async def test_a_saga_has_one_active_job_at_most_whatever_the_triggers_say(
    owner: Any, server: Server, buckets: int
) -> None:
    bucket = buckets - 1
    await dialects.without_guards(owner)
    saga_id = await a_saga(owner, bucket=bucket)
    second = new_job(attempt_at="next_attempt_at + interval '1 second'")
    for status, expected in (
        (JobStatus.PENDING, dialects.TAKEN[server.engine]),
        (JobStatus.LEASED, dialects.TAKEN[server.engine]),
        (JobStatus.COMPLETED, None),
        (JobStatus.FAILED, None),
    ):
        await owner.execute("DELETE FROM webhook_delivery_jobs")
        await a_job(owner, saga_id=saga_id, status=status, bucket=bucket)
        assert await refusal(owner, second, saga_id, bucket) == expected, status


# ── Append-only tables ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("buckets", [1, 4])
@pytest.mark.parametrize("table", ["events", "dead_letters"])
async def test_an_append_only_table_refuses_every_change_of_a_row(
    owner: Any, server: Server, table: str, buckets: int
) -> None:
    bucket = buckets - 1
    await a_dead_letter(owner, bucket=bucket)
    before = await owner.fetch(f"SELECT * FROM {table}")
    changes = [
        f"UPDATE {table} SET {column} = {column}" for column in TABLES_ON[server.engine][table]
    ]
    for change in (*changes, f"DELETE FROM {table}", *dialects.OVERWRITING[server.engine, table]):
        assert await refusal(owner, change) == REFUSED_CHANGE, change
    if buckets > 1:
        change = dialects.of_partition(owner, "DELETE FROM", table, bucket)
        assert await refusal(owner, change) == REFUSED_CHANGE
    assert await owner.fetch(f"SELECT * FROM {table}") == before


@pytest.mark.only_on("postgres", reason="MySQL has no triggers for a statement, nor for TRUNCATE")
@pytest.mark.parametrize("buckets", [1, 4])
@pytest.mark.parametrize("table", ["events", "dead_letters"])
async def test_an_append_only_table_refuses_every_change_even_without_rows(
    owner: Any, table: str, buckets: int
) -> None:
    names = [table] if buckets == 1 else [table, *(f"{table}_b{n}" for n in range(buckets))]
    for with_rows in (False, True):
        if with_rows:
            for bucket in range(buckets):
                await a_dead_letter(owner, bucket=bucket)
        for name in names:
            for change in (
                *(
                    f"UPDATE {name} SET {column} = {column}"
                    for column in TABLES_ON["postgres"][table]
                ),
                f"DELETE FROM {name}",
                f"TRUNCATE {name}",
                f"TRUNCATE {name} CASCADE",
                f"MERGE INTO {name} USING (SELECT 1) one ON true WHEN MATCHED THEN DELETE",
            ):
                assert await refusal(owner, change) == REFUSED_CHANGE, change


@pytest.mark.only_on("postgres", reason="MySQL truncates one table at a time, without a trigger")
async def test_truncating_several_tables_at_once_is_refused_too(owner: Any) -> None:
    change = "TRUNCATE webhook_delivery_sagas, events"
    assert await refusal(owner, change) == REFUSED_CHANGE


async def test_the_history_of_eligibility_refuses_every_change_of_a_row(
    owner: Any, server: Server
) -> None:
    await a_subscription(owner)
    await owner.execute("UPDATE subscriptions SET active = false")
    table = "subscription_eligibility"
    before = await owner.fetch(f"SELECT * FROM {table}")
    assert len(before) == 1
    for column in TABLES_ON[server.engine][table]:
        assert await refusal(owner, f"UPDATE {table} SET {column} = {column}") == REFUSED_CHANGE
    assert await refusal(owner, f"DELETE FROM {table}") == REFUSED_CHANGE
    if server.engine == "postgres":
        assert await refusal(owner, f"TRUNCATE {table}") == REFUSED_CHANGE
    assert await owner.fetch(f"SELECT * FROM {table}") == before


async def test_an_upsert_cannot_change_an_event(owner: Any, server: Server) -> None:
    event_id = await an_event(owner, external_id="key")
    assert await refusal(owner, dialects.UPSERT_OF_EVENT[server.engine]) == REFUSED_CHANGE
    assert await owner.fetchval("SELECT event_type FROM events WHERE id = $1", event_id) != "x"
