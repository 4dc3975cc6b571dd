"""Router: one saga per new event and matching subscription.

Role    router_worker
Reads   events without payload, subscriptions, subscription_eligibility
Writes  INSERT webhook_delivery_sagas, router_cursor, INSERT router_held
Never   changes a saga, creates a job, looks inside a payload

Which events are new, and which subscriptions match, is the store's business (router.sql): the
first by snapshot difference, the second by one join that can grow without touching anything else.
"""

from __future__ import annotations

from collections.abc import Sequence

from surehook import observe
from surehook.model.records import correlation_id
from surehook.model.states import SagaStatus
from surehook.pipeline.service import Loop
from surehook.store.hints import Channel, Hints
from surehook.store.router import RouterStore

# An idle router polls this often: events that an application inserts directly bring no hint.
POLL_SECONDS = 0.05
IDLE_POLL_SECONDS = 0.25
# After this many empty polls it is idle.
IDLE_AFTER = 40


class Router(Loop):
    name = "router"
    urgent = True
    wakes_on = (Channel.EVENTS,)

    def __init__(
        self, store: RouterStore, hints: Hints, buckets: Sequence[int], batch: int = 500
    ) -> None:
        super().__init__()
        self._store = store
        self._hints = hints
        self._buckets = buckets
        self._batch = batch
        self._empty_polls = 0

    async def step(self) -> float:
        more = [await self._route(bucket) for bucket in self._buckets]
        if any(more):
            self._empty_polls = 0
            return 0
        self._empty_polls += 1
        return POLL_SECONDS if self._empty_polls < IDLE_AFTER else IDLE_POLL_SECONDS

    async def _route(self, bucket: int) -> bool:
        """One page; whether to look again at once."""
        result = await self._store.route_page(bucket, self._batch)
        if result is None:
            return False  # another router has this bucket
        sagas, more = result
        for saga in sagas if observe.wanted("saga.created") else ():
            observe.emit(
                "saga.created",
                correlation_id=correlation_id(saga.event_id),
                saga_id=saga.saga_id,
                delivery_status=SagaStatus.PENDING,
                subscription_id=saga.subscription_id,
            )
        if sagas:
            self._hints.hint(Channel.SAGAS, bucket)
            self._empty_polls = 0
        return more
