"""Leases: a job that this worker holds, until its result is written. Part of the worker. Pure."""

from __future__ import annotations

import time

from surehook.model.records import LeasedJob, correlation_id
from surehook.model.states import SagaStatus


class Lease:
    __slots__ = ("_seconds", "aged", "bucket", "ended", "job", "started", "token")

    def __init__(self, job: LeasedJob, bucket: int, token: int, seconds: float) -> None:
        self.job = job
        self.bucket = bucket
        self.token = token
        self.started = time.monotonic()
        self._seconds = seconds
        self.ended = False
        self.aged = False  # its request has lasted for long

    def age_seconds(self) -> float:
        return time.monotonic() - self.started

    def outlasts(self, seconds: float) -> bool:
        """Whether so much of it is left."""
        return self._seconds - self.age_seconds() >= seconds

    def log_fields(self, worker_id: str) -> dict[str, object]:
        """What every log line about this job carries."""
        return {
            "correlation_id": correlation_id(self.job.event_id),
            "saga_id": self.job.saga_id,
            "job_id": self.job.job_id,
            "delivery_status": SagaStatus.IN_PROGRESS,
            "lease_expiration": self.job.lease_until,
            "worker_id": worker_id,
        }
