"""What components report, and where a test can stop them: two closed lists. Pure.

A log can be searched and a page can document it because no other fact exists. The crash points are
the list of what the protocol must survive: tests/scenarios/test_crash_points.py runs the pipeline
once per point.
"""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


FACTS: dict[str, Level] = {
    # one line per stage of one delivery
    "event.accepted": Level.INFO,
    "event.repeated": Level.INFO,
    "saga.created": Level.INFO,
    "job.created": Level.INFO,
    "delivery.attempted": Level.INFO,
    "job.given_back": Level.INFO,
    "result.refused": Level.WARNING,  # a result that was no longer ours to write
    "saga.completed": Level.INFO,
    "saga.retrying": Level.INFO,
    "saga.dead_lettered": Level.WARNING,
    "lease.expired": Level.WARNING,
    "dead_letter.written": Level.WARNING,
    "dead_letter.requeued": Level.INFO,
    # the HTTP API
    "request.failed": Level.ERROR,  # our bug: the client got 500
    # the life of a process
    "process.started": Level.INFO,
    "process.ready": Level.INFO,  # every process of a group has begun
    "process.ended": Level.ERROR,  # one of a group, which nobody told to; it is started again
    "process.restarted": Level.INFO,
    "component.started": Level.INFO,
    "component.draining": Level.INFO,
    "component.stopped": Level.INFO,
    "component.failed": Level.ERROR,
    "database.lost": Level.ERROR,
    "database.back": Level.INFO,
    "observe.listening": Level.INFO,  # where this process serves health and figures
    "registry.lost": Level.WARNING,  # `surehook status` does not see this process; its work goes on
    "registry.back": Level.INFO,
    "hint.lost": Level.DEBUG,
    "library.warned": Level.WARNING,  # what a library had to say, without its traceback
}

POINTS = (
    "ingest.before_insert",
    "ingest.after_insert",
    "router.before_insert",
    "router.after_insert",
    "router.after_commit",
    "orchestrator.before_create",
    "orchestrator.after_create",
    "orchestrator.after_start",
    "orchestrator.before_apply",
    "orchestrator.after_apply",
    "worker.after_lease",
    "worker.before_send",
    "worker.after_send",
    "worker.after_finish",
    "cleaner.before_reset",
    "cleaner.after_reset",
    "deadletters.before_write",
    "deadletters.after_write",
    "deadletters.before_requeue",
    "deadletters.after_requeue",
)
