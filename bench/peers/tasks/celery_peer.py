"""The task on Celery with Redis."""

from __future__ import annotations

import os
import sys

from celery import Celery
from common import BODY, enqueue_threads, send

app = Celery("celery_peer", broker=os.environ["PEER_REDIS"])
app.conf.update(
    task_acks_late=True,  # else a killed worker takes its tasks with it
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
    broker_transport_options={"visibility_timeout": 10},
    broker_connection_retry_on_startup=True,
    broker_pool_limit=16,
)


@app.task(
    name="deliver", autoretry_for=(Exception,), retry_backoff=True, retry_kwargs={"max_retries": 5}
)
def deliver(message_id: str, body: str) -> None:
    send(message_id, body)


if __name__ == "__main__" and sys.argv[1] == "enqueue":
    enqueue_threads(lambda message_id: deliver.apply_async((message_id, BODY)))
