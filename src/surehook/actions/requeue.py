"""Requeue: dead letters begin anew, each as another saga.

Role    dead_letter_operator
Reads   dead_letters, webhook_delivery_sagas, events, subscriptions
Writes  INSERT webhook_delivery_sagas
Never   changes or deletes a saga, an event or a subscription
"""

from __future__ import annotations

from collections.abc import Sequence

from surehook import observe
from surehook.model.records import Requeued, correlation_id
from surehook.model.resources.dead_letter import DeadLetterFilter
from surehook.model.states import SagaStatus
from surehook.observe import crashpoints
from surehook.store.deadletters import DeadLetterStore
from surehook.store.hints import Channel, Hints

PAGE = 500


class Requeue:
    """Requeues dead letters, one or many; repeating it answers the same."""

    def __init__(self, store: DeadLetterStore, hints: Hints, buckets: Sequence[int]) -> None:
        self._store = store
        self._hints = hints
        self._buckets = buckets

    async def by_id(self, ids: Sequence[int]) -> list[Requeued]:
        """Each dead letter's new saga; an unknown id is missing from the answer."""
        answers: list[Requeued] = []
        for bucket in self._buckets:
            answers += await self._in_bucket(bucket, ids)
        return sorted(answers, key=lambda answer: answer.dead_letter_id)

    async def matching(
        self, wanted: DeadLetterFilter, limit: int, dry_run: bool = False
    ) -> list[Requeued] | list[int]:
        """Those that fit and were not requeued yet, oldest first; their ids only for a dry run."""
        found: list[int] = []
        answers: list[Requeued] = []
        for bucket in self._buckets:
            after_id: int | None = 0
            while after_id is not None and len(found) < limit:
                page, after_id = await self._store.find(bucket, wanted, after_id, PAGE)
                page = page[: limit - len(found)]
                found += page
                if page and not dry_run:
                    answers += await self._in_bucket(bucket, page)
        return found if dry_run else answers

    async def _in_bucket(self, bucket: int, ids: Sequence[int]) -> list[Requeued]:
        await crashpoints.here("deadletters.before_requeue")
        answers = await self._store.requeue(bucket, ids)
        await crashpoints.here("deadletters.after_requeue")
        for answer in answers:
            if answer.created:
                observe.emit(
                    "dead_letter.requeued",
                    correlation_id=correlation_id(answer.event_id),
                    saga_id=answer.saga_id,
                    delivery_status=SagaStatus.PENDING,
                    dead_letter_id=answer.dead_letter_id,
                )
        if any(answer.created for answer in answers):
            self._hints.hint(Channel.SAGAS, bucket)
        return answers
