"""The two state machines, written once. Pure; imports retry only.

Everything that must agree with them is generated from here or tested against here: the guard
triggers, the enum types, docs/states.md, and the set-based SQL that decides in bulk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar, assert_never

from surehook.model.retry import Policy, delay_seconds


class SagaStatus(StrEnum):
    """Where one delivery (event × subscription) stands."""

    PENDING = "Pending"  # routed or requeued; no attempt has begun
    IN_PROGRESS = "InProgress"  # the job for (saga, next_attempt_at) exists
    PENDING_RETRY = "PendingRetry"  # the last attempt failed; rests until next_attempt_at
    COMPLETED = "Completed"  # the endpoint answered 2xx; never changes again
    DEAD_LETTERED = "DeadLettered"  # attempts used up or a permanent error; never changes again


class JobStatus(StrEnum):
    """Where one delivery attempt stands."""

    PENDING = "Pending"  # waits for a worker
    LEASED = "Leased"  # a worker holds it until lease_until
    COMPLETED = "Completed"  # delivered; never changes again
    FAILED = "Failed"  # not delivered; never changes again


S = TypeVar("S", SagaStatus, JobStatus)


@dataclass(frozen=True, slots=True)
class Move(Generic[S]):
    """One permitted change of a status, who makes it and when."""

    name: str
    source: S
    target: S
    by: tuple[str, ...]
    when: str


SAGA_MOVES: tuple[Move[SagaStatus], ...] = (
    Move(
        "start",
        SagaStatus.PENDING,
        SagaStatus.IN_PROGRESS,
        ("orchestrator",),
        "its first job was created",
    ),
    Move(
        "complete",
        SagaStatus.IN_PROGRESS,
        SagaStatus.COMPLETED,
        ("orchestrator",),
        "its job is Completed",
    ),
    Move(
        "retry_later",
        SagaStatus.IN_PROGRESS,
        SagaStatus.PENDING_RETRY,
        ("orchestrator",),
        "its job is Failed and attempts are left",
    ),
    Move(
        "start_again",
        SagaStatus.PENDING_RETRY,
        SagaStatus.IN_PROGRESS,
        ("orchestrator",),
        "it is due and its next job was created",
    ),
    Move(
        "give_up",
        SagaStatus.IN_PROGRESS,
        SagaStatus.DEAD_LETTERED,
        ("orchestrator",),
        "its job is Failed, and that was the last attempt or the error is permanent",
    ),
)

JOB_MOVES: tuple[Move[JobStatus], ...] = (
    Move("lease", JobStatus.PENDING, JobStatus.LEASED, ("worker",), "a worker has a free slot"),
    Move(
        "succeed", JobStatus.LEASED, JobStatus.COMPLETED, ("worker",), "the endpoint answered 2xx"
    ),
    Move(
        "fail",
        JobStatus.LEASED,
        JobStatus.FAILED,
        ("worker", "cleaner"),
        "the attempt failed, or its lease expired for the 6th time",
    ),
    Move(
        "give_back",
        JobStatus.LEASED,
        JobStatus.PENDING,
        ("worker", "cleaner"),
        "its own worker returns it unsent, or its lease expired",
    ),
    Move(
        "succeed_late",
        JobStatus.PENDING,
        JobStatus.COMPLETED,
        ("worker",),
        "a 2xx arrives after the lease had expired",
    ),
)


def terminal(statuses: Iterable[S], moves: Iterable[Move[S]]) -> tuple[S, ...]:
    """The states that nothing leaves."""
    sources = {move.source for move in moves}
    return tuple(status for status in statuses if status not in sources)


SAGA_TERMINAL = terminal(SagaStatus, SAGA_MOVES)
JOB_TERMINAL = terminal(JobStatus, JOB_MOVES)
JOB_ACTIVE = tuple(status for status in JobStatus if status not in JOB_TERMINAL)
SAGA_WAITING = (SagaStatus.PENDING, SagaStatus.PENDING_RETRY)

# A lease that expires for this many times ends its job as Failed / LEASE_EXPIRED.
LEASE_EXPIRIES_MAX = 6


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a decision needs to know of a saga."""

    status: SagaStatus
    attempt_count: int


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a decision needs to know of the job for the saga's current attempt."""

    status: JobStatus
    error_code: str | None = None
    permanent: bool = False
    retry_after_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What to write: the database adds the delay to its own clock."""

    target: SagaStatus
    attempt_count: int
    delay_seconds: float = 0.0
    final_error_code: str | None = None  # None = leave what is there


def decide(saga: Attempt, job: JobResult, policy: Policy) -> Change | None:
    """The only place that chooses a move after a job result; None = nothing to apply.

    Only here is attempt_count compared with the limit, so a PendingRetry saga always gets its
    job: a lowered limit takes effect at the next result.
    """
    if saga.status is not SagaStatus.IN_PROGRESS:
        return None
    attempt_count = saga.attempt_count + 1
    match job.status:
        case JobStatus.PENDING | JobStatus.LEASED:
            return None
        case JobStatus.COMPLETED:
            return Change(SagaStatus.COMPLETED, attempt_count)
        case JobStatus.FAILED if job.permanent or attempt_count >= policy.max_attempts:
            return Change(SagaStatus.DEAD_LETTERED, attempt_count, final_error_code=job.error_code)
        case JobStatus.FAILED:
            return Change(
                SagaStatus.PENDING_RETRY,
                attempt_count,
                delay_seconds(policy, attempt_count, job.retry_after_seconds),
                job.error_code,
            )
        case _:
            assert_never(job.status)
