"""Who is compared, and how each is run: one entry per peer. Pure.

Settings are those that the peer's own documentation recommends for throughput, with one worker
process per core of a machine of two. All of them store a task durably before it counts as enqueued.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    name: str
    needs: str  # postgresql or redis
    language: str  # python or node
    program: str  # in tasks/: takes `prepare`, `enqueue …` and, unless `worker` says it, `work`
    settings: str  # for the table's readers
    workers: int = 2
    worker: tuple[str, ...] = ()  # its own command line, of the virtual environment


PEERS = (
    Peer(
        "pgqueuer",
        "postgresql",
        "python",
        "pgqueuer_peer.py",
        "2 processes, batches of 100, 256 at once each, uvloop, aiohttp; enqueued in lists of 64",
    ),
    Peer(
        "procrastinate",
        "postgresql",
        "python",
        "procrastinate_peer.py",
        "2 processes, concurrency 64 each, uvloop, aiohttp; finished jobs deleted; stalled jobs "
        "retried by a periodic task; deferred in batches of 64",
    ),
    Peer(
        "graphile-worker",
        "postgresql",
        "node",
        "graphile.mjs",
        "2 processes, 64 at once each, local queue of 500, completions batched, undici; added 64 "
        "at a time. What a killed worker had locked is free again after 4 hours, its default",
    ),
    Peer(
        "celery",
        "redis",
        "python",
        "celery_peer.py",
        "2 processes, gevent pool of 64 each, acks late, prefetch 4, no results, requests; Redis "
        "syncs every write",
        worker=(
            *("celery", "-A", "celery_peer", "worker", "-P", "gevent", "-c", "64"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"),
        ),
    ),
    Peer(
        "dramatiq",
        "redis",
        "python",
        "dramatiq_peer.py",
        "2 processes of 16 threads, requests; Redis syncs every write",
        workers=1,  # which starts its own two
        worker=("dramatiq", "dramatiq_peer", "--processes", "2", "--threads", "16"),
    ),
)
BY_NAME = {peer.name: peer for peer in PEERS}
