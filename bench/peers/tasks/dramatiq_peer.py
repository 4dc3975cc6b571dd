"""The task on Dramatiq with Redis."""

from __future__ import annotations

import os
import sys

import dramatiq
from common import BODY, enqueue_threads, send
from dramatiq.brokers.redis import RedisBroker

# Messages of a worker without a heartbeat for this long are given to others.
broker = RedisBroker(url=os.environ["PEER_REDIS"], heartbeat_timeout=10_000)
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="deliver", max_retries=5, min_backoff=1000)
def deliver(message_id: str, body: str) -> None:
    send(message_id, body)


if __name__ == "__main__" and sys.argv[1] == "enqueue":
    enqueue_threads(lambda message_id: deliver.send(message_id, BODY))
