"""The records that components hand to each other's code. Pure; imports states only.

Rows become these frozen structs at the store's edge, so that no raw row travels further. Times
are aware UTC. A payload is bytes; no component looks inside.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import NewType

import msgspec

from surehook.model.states import JobStatus, SagaStatus

EventId = NewType("EventId", int)
SubscriptionId = NewType("SubscriptionId", int)
SagaId = NewType("SagaId", int)
JobId = NewType("JobId", int)
DeadLetterId = NewType("DeadLetterId", int)

# What a sealed text belongs to: it opens for nothing else.
SIGNING_CONTEXT = "subscription_secrets"
HEADERS_CONTEXT = "custom_headers"


def correlation_id(event_id: int) -> str:
    """The name under which one event is followed through every log."""
    return f"evt_{event_id}"


class NewEvent(msgspec.Struct, frozen=True):
    """An event as an application hands it over; payload is JSON text, kept byte for byte."""

    event_type: str
    payload: str
    tenant: str = ""
    external_id: str | None = None


class StoredEvent(msgspec.Struct, frozen=True):
    """The acknowledgement: durable under this id."""

    id: EventId
    created_at: datetime
    duplicate: bool


class RoutedSaga(msgspec.Struct, frozen=True):
    """A saga that the router has just inserted."""

    saga_id: SagaId
    event_id: EventId
    subscription_id: SubscriptionId


class Lane(IntEnum):
    """Where a job waits for a worker; the orchestrator decides when it creates the job.

    The endpoint of the first two answers quickly, as far as is known. A worker that sees it hang
    puts what still waits there aside.
    """

    EXPRESS = 0  # of a tenant that has little under way: there is always a slot for these
    BULK = 1
    UNPROVEN = 2  # the endpoint has hardly answered yet
    SLOW = 3  # a request to it is under way for long, or the last one was
    ASIDE = 4  # waited in one of the first two when its endpoint began to hang


class WaitingSubscription(msgspec.Struct, frozen=True):
    """A subscription with due sagas, as the orchestrator sees it."""

    subscription_id: SubscriptionId
    tenant: str
    due: int  # 0 = not counted
    rate_limited: bool
    slow: bool | None = False
    ramp: int | None = 0  # how many jobs may be open for now; 0 = the cap; None = never seen


class Share(msgspec.Struct, frozen=True):
    """How many jobs a subscription may get now, and in which lane."""

    subscription_id: int
    places: int
    lane: Lane = Lane.EXPRESS
    ramp: int = 0


class PickedSaga(msgspec.Struct, frozen=True):
    """A due saga that was picked; job_id is None where its job was there already."""

    saga_id: SagaId
    attempt_at: datetime
    event_id: EventId
    subscription_id: SubscriptionId
    job_id: JobId | None


class AppliedResult(msgspec.Struct, frozen=True):
    """A saga that took over its job's result."""

    saga_id: SagaId
    event_id: EventId
    job_id: JobId
    status: SagaStatus
    attempt_count: int
    error_code: str | None
    next_attempt_at: datetime
    subscription_id: SubscriptionId
    lane: int
    slow: bool | None  # its request was under way for long


class LeasedJob(msgspec.Struct, frozen=True):
    """A job with all that its attempt needs."""

    job_id: JobId
    saga_id: SagaId
    event_id: EventId
    subscription_id: SubscriptionId
    lease_resets: int
    leased_at: datetime
    lease_until: datetime
    event_type: str
    payload: str
    callback_url: str
    deliverable: bool  # active and verified when the lease was taken
    request_timeout_seconds: float | None
    custom_headers: str | None  # sealed
    event_age_seconds: float  # when the lease was taken
    lane: int = Lane.EXPRESS


class WaitingJob(msgspec.Struct, frozen=True):
    """A job that waits in a lane where everything hangs, as the worker sees it."""

    id: JobId
    subscription_id: SubscriptionId
    tenant_hangs: bool  # other endpoints of its tenant do


class Pace(msgspec.Struct, frozen=True):
    """How a subscription's endpoint did lately: what the orchestrator keeps of it."""

    slow: bool
    step: int  # 1 = it answered, -1 = it hung, 0 = nothing has ended


class JobReport(msgspec.Struct, frozen=True):
    """What a worker writes about one attempt."""

    job_id: JobId
    status: JobStatus
    response_status: int | None
    error_code: str | None
    retry_after: int | None
    response_excerpt: str | None  # the endpoint's words
    failure_detail: str | None  # ours
    lease_token: int
    lease_resets: int  # when the lease was taken: a lease that was lost has made them more


class ExpiredLease(msgspec.Struct, frozen=True):
    """A lease that the cleaner has ended."""

    job_id: JobId
    saga_id: SagaId
    event_id: EventId
    status: JobStatus
    lease_resets: int
    worker_id: str | None
    lease_expiration: datetime | None
    error_code: str | None


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead letter that was just written down."""

    dead_letter_id: DeadLetterId
    saga_id: SagaId
    event_id: EventId
    subscription_id: SubscriptionId
    final_error_code: str | None
    job_id: JobId | None  # its last attempt
    worker_id: str | None
    lease_expiration: datetime | None


class Requeued(msgspec.Struct, frozen=True):
    """The answer to a requeue: the new saga, or why there is none."""

    dead_letter_id: DeadLetterId
    event_id: EventId
    saga_id: SagaId | None
    created: bool  # False: it had been requeued before, or cannot be
    deliverable: bool  # the subscription is active and verified


class Challenge(msgspec.Struct, frozen=True):
    """A challenge that was taken to be sent now."""

    id: int
    subscription_id: SubscriptionId
    callback_url: str
    secret_id: int
    challenge: str
    code: str


class TrialTarget(msgspec.Struct, frozen=True):
    """Where a test event goes, with everything that is still sealed."""

    callback_url: str
    event_type: str
    request_timeout_seconds: float | None
    custom_headers: str | None
    now: datetime
    secrets: tuple[str, ...]


class Myself(msgspec.Struct, frozen=True):
    """A process, as the registry shows it."""

    process_id: str
    host: str
    pid: int
    version: str
    address: str | None
    """Where it serves /healthz, /readyz and /metrics."""


class Heartbeat(msgspec.Struct, frozen=True):
    """One component of a process at work."""

    component: str
    step_age: float
    """Seconds since its last step began."""
    trouble: str | None


class RunningComponent(msgspec.Struct, frozen=True):
    """A component as the registry knows it; times are the database's."""

    process_id: str
    component: str
    host: str
    pid: int
    version: str
    address: str | None
    since: datetime
    heartbeat_at: datetime
    step_at: datetime
    trouble: str | None
    silent_seconds: float


class SystemFigures(msgspec.Struct, frozen=True):
    """What is counted for the whole system, by one process for all of them."""

    backlog: list[tuple[str, str, int, float]]
    """Stage, state, how many wait, age of the oldest in seconds."""
    running: dict[str, int]
    """How many processes run each component."""
    database_bytes: int | None = None
    """None: counted by an older program."""


class KeptFigures(msgspec.Struct, frozen=True):
    """The figures as they were last counted; None = the first count has not ended."""

    figures: SystemFigures | None
    age_seconds: float
