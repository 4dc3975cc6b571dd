"""Rows in a wanted state, made by the owner and along the permitted moves only.

    saga_id = await a_saga(owner, status=SagaStatus.PENDING_RETRY)

What is not named is made up: a saga without an event gets a new event, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import count
from typing import Any, TypeVar

from support.servers import ENCRYPTION_KEY
from surehook.delivery.secrets import Sealer, parse_keys
from surehook.delivery.signature import new_shared_secret
from surehook.model.records import SIGNING_CONTEXT
from surehook.model.states import JOB_MOVES, SAGA_MOVES, JobStatus, Move, SagaStatus

Connection = Any  # asyncpg's, or one that is called like it
Status = TypeVar("Status", bound=StrEnum)

_numbers = count(1)
_sealer = Sealer(parse_keys(ENCRYPTION_KEY))


def way(moves: Iterable[Move[Any]], start: Status, goal: Status) -> list[Status]:
    """The shortest permitted way from start to goal, without the start."""
    moves = tuple(moves)
    ways = [[start]]
    for so_far in ways:  # grows while it is walked
        if so_far[-1] is goal:
            return so_far[1:]
        for move in moves:
            if move.source is so_far[-1] and move.target not in so_far:
                ways.append([*so_far, move.target])
    raise AssertionError(f"no way from {start} to {goal}")


async def an_event(
    owner: Connection,
    *,
    event_type: str = "order.paid",
    payload: str = '{"order": 1}',
    tenant: str = "",
    external_id: str | None = None,
    bucket: int = 0,
) -> int:
    event_id: int = await owner.fetchval(
        "INSERT INTO events (event_type, payload, tenant, external_id, bucket) "
        "VALUES ($1, $2, $3, $4, $5) RETURNING id",
        event_type,
        payload,
        tenant,
        external_id,
        bucket,
    )
    return event_id


async def many_events(
    owner: Connection,
    count: int,
    *,
    event_type: str = "order.paid",
    buckets: Iterable[int] = (0,),
) -> None:
    """One INSERT … VALUES, as an application would write it; over the buckets in turn."""
    in_turn = tuple(buckets)
    rows = (f"('{event_type}', '{{}}', {in_turn[n % len(in_turn)]})" for n in range(count))
    await owner.execute(
        f"/* native */ INSERT INTO events (event_type, payload, bucket) VALUES {', '.join(rows)}"
    )


async def a_subscription(
    owner: Connection,
    *,
    event_type: str = "order.paid",
    callback_url: str | None = None,
    tenant: str = "",
    active: bool = True,
    verified: bool = True,
    secret: str | None = "",
    **others: object,
) -> int:
    """`others` are further columns: max_attempts=3, concurrency_cap=1, …

    `secret` is made up, or given, or None for a subscription without one.
    """
    columns = {
        "event_type": event_type,
        "callback_url": callback_url or f"https://receiver.example/{next(_numbers)}",
        "tenant": tenant,
        "active": active,
        "verified": verified,
        **others,
    }
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    subscription_id: int = await owner.fetchval(
        f"INSERT INTO subscriptions ({', '.join(columns)}) VALUES ({places}) RETURNING id",
        *columns.values(),
    )
    if secret is not None:
        await a_secret(owner, subscription_id, secret or new_shared_secret().reveal())
    return subscription_id


async def a_secret(owner: Connection, subscription_id: int, secret: str) -> int:
    """A live signing secret, sealed with the key that the `access` fixture carries."""
    secret_id: int = await owner.fetchval(
        "INSERT INTO subscription_secrets (subscription_id, scheme, sealed) "
        "VALUES ($1, 'v1', $2) RETURNING id",
        subscription_id,
        _sealer.seal(secret, SIGNING_CONTEXT),
    )
    return secret_id


async def a_saga(
    owner: Connection,
    *,
    status: SagaStatus = SagaStatus.PENDING,
    event_id: int | None = None,
    subscription_id: int | None = None,
    requeued_from: int = 0,
    error_code: str = "HTTP_5XX",
    delay_seconds: float = 0,
    bucket: int = 0,
) -> int:
    """A saga that went the permitted way to `status`, with the jobs that belong to it."""
    subscription_id = subscription_id or await a_subscription(owner)  # eligible before the event
    saga_id: int = await owner.fetchval(
        "INSERT INTO webhook_delivery_sagas (event_id, subscription_id, requeued_from, bucket) "
        "VALUES ($1, $2, $3, $4) RETURNING id",
        event_id or await an_event(owner, bucket=bucket),
        subscription_id,
        requeued_from,
        bucket,
    )
    for target in way(SAGA_MOVES, SagaStatus.PENDING, status):
        if target is SagaStatus.IN_PROGRESS:
            await a_job(owner, saga_id=saga_id, bucket=bucket)
        else:
            ended = JobStatus.COMPLETED if target is SagaStatus.COMPLETED else JobStatus.FAILED
            await _end_current_job(owner, saga_id, ended, error_code, bucket)
        await move_saga(owner, saga_id, target, error_code, delay_seconds, bucket)
    return saga_id


async def many_sagas(
    owner: Connection,
    subscription_id: int,
    count: int,
    *,
    status: SagaStatus = SagaStatus.PENDING,
    due_ago: float = 0,
    updated_ago: float = 0,
    event_type: str = "other",
    buckets: Iterable[int] = (0,),
) -> list[int]:
    """Put there as they are, each of an event of its own; the later ones a moment younger.

    Nobody else may insert events meanwhile.
    """
    await many_events(owner, count, event_type=event_type, buckets=buckets)
    rows = await owner.fetch("SELECT id FROM events ORDER BY id DESC LIMIT $1", count)
    events = sorted(row[0] for row in rows)
    dead = status is SagaStatus.DEAD_LETTERED
    await owner.execute(
        "INSERT INTO webhook_delivery_sagas (event_id, subscription_id, status, bucket, "
        "attempt_count, final_error_code, next_attempt_at, updated_at) "
        "SELECT id, $2, $3, bucket, $4, $5, surehook_now() - interval '1 second' * $6::float8 "
        "+ interval '1 microsecond' * (id - $8), "
        "surehook_now() - interval '1 second' * $7::float8 FROM events WHERE id = ANY($1)",
        events,
        subscription_id,
        status,
        0 if status is SagaStatus.PENDING else 1,
        "GONE" if dead else None,
        due_ago,
        updated_ago,
        events[0],
    )
    rows = await owner.fetch(
        "SELECT id FROM webhook_delivery_sagas WHERE event_id = ANY($1) ORDER BY event_id", events
    )
    return [row[0] for row in rows]


async def move_saga(
    owner: Connection,
    saga_id: int,
    target: SagaStatus,
    error_code: str = "HTTP_5XX",
    delay_seconds: float = 0,
    bucket: int = 0,
) -> None:
    """One move as the orchestrator would write it; the guard refuses one that is not permitted."""
    failed = target in (SagaStatus.PENDING_RETRY, SagaStatus.DEAD_LETTERED)
    counted = failed or target is SagaStatus.COMPLETED
    await owner.execute(
        "UPDATE webhook_delivery_sagas SET status = $3::saga_status, updated_at = surehook_now(), "
        "attempt_count = attempt_count + $4::integer, "
        "final_error_code = CASE WHEN $5::boolean THEN $6::varchar ELSE final_error_code END, "
        "next_attempt_at = CASE WHEN $3::saga_status = 'PendingRetry' THEN GREATEST("
        "    next_attempt_at + interval '1 microsecond', "
        "    surehook_now() + interval '1 second' * $7::float8) ELSE next_attempt_at END "
        "WHERE id = $1 AND bucket = $2",
        saga_id,
        bucket,
        target,
        1 if counted else 0,
        failed,
        error_code,
        delay_seconds,
    )


async def a_job(
    owner: Connection,
    *,
    saga_id: int | None = None,
    status: JobStatus = JobStatus.PENDING,
    lease_seconds: float = 30,
    lease_token: int = 1,
    worker_id: str = "worker-1",
    error_code: str = "HTTP_5XX",
    bucket: int = 0,
    lane: int = 0,
) -> int:
    """The job for the saga's current attempt, led along the permitted way to `status`."""
    # An older schema has no lanes.
    column, value = (", lane", f", {lane:d}") if lane else ("", "")
    job_id: int = await owner.fetchval(
        "INSERT INTO webhook_delivery_jobs "
        f"(saga_id, event_id, subscription_id, attempt_at, bucket{column}) "
        f"SELECT id, event_id, subscription_id, next_attempt_at, bucket{value} "
        "FROM webhook_delivery_sagas WHERE id = $1 AND bucket = $2 RETURNING id",
        saga_id or await a_saga(owner, bucket=bucket),
        bucket,
    )
    # A success after the lease was lost is permitted too, but not the usual way.
    moves = [move for move in JOB_MOVES if move.name != "succeed_late"]
    for target in way(moves, JobStatus.PENDING, status):
        if target is JobStatus.LEASED:
            await _lease(owner, job_id, lease_seconds, lease_token, worker_id, bucket)
        else:
            await _finish(owner, job_id, target, error_code, bucket)
    return job_id


async def _lease(
    owner: Connection, job_id: int, seconds: float, token: int, worker_id: str, bucket: int
) -> None:
    await owner.execute(
        "UPDATE webhook_delivery_jobs SET status = 'Leased', lease_token = $3, worker_id = $4, "
        "started_at = surehook_now(), "
        "lease_until = surehook_now() + interval '1 second' * $5::float8 "
        "WHERE id = $1 AND bucket = $2",
        job_id,
        bucket,
        token,
        worker_id,
        seconds,
    )


async def _finish(
    owner: Connection, job_id: int, target: JobStatus, error_code: str, bucket: int
) -> None:
    succeeded = target is JobStatus.COMPLETED
    await owner.execute(
        "UPDATE webhook_delivery_jobs SET status = $3, finished_at = surehook_now(), "
        "response_status = $4, error_code = $5 WHERE id = $1 AND bucket = $2",
        job_id,
        bucket,
        target,
        200 if succeeded else 500,
        None if succeeded else error_code,
    )


async def _end_current_job(
    owner: Connection, saga_id: int, target: JobStatus, error_code: str, bucket: int
) -> None:
    job_id: int = await owner.fetchval(
        "SELECT j.id FROM webhook_delivery_jobs j JOIN webhook_delivery_sagas s "
        "ON j.saga_id = s.id AND j.attempt_at = s.next_attempt_at AND j.bucket = s.bucket "
        "WHERE s.id = $1 AND s.bucket = $2",
        saga_id,
        bucket,
    )
    await _lease(owner, job_id, 30, 1, "worker-1", bucket)
    await _finish(owner, job_id, target, error_code, bucket)


async def a_dead_letter(owner: Connection, *, saga_id: int | None = None, bucket: int = 0) -> int:
    """The dead letter of a dead saga."""
    saga_id = saga_id or await a_saga(owner, status=SagaStatus.DEAD_LETTERED, bucket=bucket)
    dead_letter_id: int = await owner.fetchval(
        "INSERT INTO dead_letters (saga_id, event_id, subscription_id, final_error_code, "
        "    failed_at, payload_snapshot, bucket) "
        "SELECT s.id, s.event_id, s.subscription_id, s.final_error_code, s.updated_at, e.payload, "
        "    s.bucket "
        "FROM webhook_delivery_sagas s JOIN events e ON e.id = s.event_id AND e.bucket = s.bucket "
        "WHERE s.id = $1 AND s.bucket = $2 RETURNING id",
        saga_id,
        bucket,
    )
    return dead_letter_id


async def many_deliveries(owner: Connection, event_id: int, count: int) -> list[int]:
    """So many sagas of one event, newest first."""
    subscription_id = await a_subscription(owner)
    rows = await owner.fetch(
        "INSERT INTO webhook_delivery_sagas (event_id, subscription_id, requeued_from) "
        "SELECT $1, $2, n FROM generate_series(1, $3::bigint) AS n RETURNING id",
        event_id,
        subscription_id,
        count,
    )
    return sorted((row[0] for row in rows), reverse=True)
