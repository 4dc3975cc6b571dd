"""Dead letters: dead sagas are written down; actions/requeue.py lets them begin anew.

Role    dead_letter_operator
Reads   webhook_delivery_sagas, webhook_delivery_jobs, events, subscriptions, dead_letters
Writes  INSERT dead_letters, INSERT webhook_delivery_sagas (actions/requeue.py), dead_letter_cursor
Never   changes or deletes a saga, an event or a subscription

The sweep reads deaths in order of time from where it stopped, with an overlap for transactions
that commit late. Once a day, and whenever the clock was set back, it looks at all of them again,
in pages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from surehook import observe
from surehook.model.records import SagaId, correlation_id
from surehook.model.states import SagaStatus
from surehook.observe import crashpoints
from surehook.pipeline.service import Loop
from surehook.store.deadletters import BEGINNING, DeadLetterStore, DeathKey
from surehook.store.hints import Channel, Hints

PAGE = 500
SWEEP_SECONDS = 1.0
# No statement of ours runs longer than its timeout (30 s): a death commits at most so much late.
OVERLAP = timedelta(seconds=60)
REWALK_SECONDS = 24 * 3600.0
SAVE_SECONDS = 5.0


@dataclass(slots=True)
class _Sweep:
    """Where the sweep of one bucket stands."""

    bucket: int
    after: DeathKey | None = None  # None = a new round: read the cursor first
    began: datetime = BEGINNING[0]  # when the round did: older deaths are seen in it
    rewalking: bool = False
    save_due: float = 0.0
    hinted: set[int] = field(default_factory=set)


class DeadLetters(Loop):
    name = "deadletters"
    wakes_on = (Channel.DEATHS,)

    def __init__(
        self,
        store: DeadLetterStore,
        hints: Hints,
        buckets: Sequence[int],
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        super().__init__()
        self._store = store
        self._hints = hints
        self._sweeps = {bucket: _Sweep(bucket) for bucket in buckets}
        self._sweep_seconds = sweep_seconds

    def heard(self, channel: Channel, bucket: int, ids: list[int]) -> None:
        if bucket in self._sweeps:
            self._sweeps[bucket].hinted.update(ids)
        self.wake()

    async def step(self) -> float:
        return min([await self._sweep(sweep) for sweep in self._sweeps.values()])

    async def _sweep(self, sweep: _Sweep) -> float:
        if sweep.hinted:
            hinted = sorted(sweep.hinted)[:PAGE]
            await self._write(sweep.bucket, [SagaId(saga_id) for saga_id in hinted])
            sweep.hinted.difference_update(hinted)
        if sweep.after is None:
            await self._begin(sweep)
        assert sweep.after is not None
        missing, last, full = await self._store.dead_sagas(sweep.bucket, sweep.after, PAGE)
        if missing:
            await self._write(sweep.bucket, missing)
        if last is not None:
            sweep.after = last
        if full:
            return 0
        await self._round_ended(sweep)
        return 0 if sweep.hinted else self._sweep_seconds

    async def _begin(self, sweep: _Sweep) -> None:
        """A new round, from a little before the end of the last one that was saved."""
        swept_until, sweep.rewalking, sweep.began = await self._store.read_cursor(
            sweep.bucket, REWALK_SECONDS
        )
        start = max(swept_until - OVERLAP, BEGINNING[0])
        sweep.after = BEGINNING if sweep.rewalking else (start, 0)

    async def _round_ended(self, sweep: _Sweep) -> None:
        if time.monotonic() >= sweep.save_due or sweep.rewalking:
            await self._store.save_cursor(sweep.bucket, sweep.began, sweep.rewalking)
            sweep.save_due = time.monotonic() + SAVE_SECONDS
        sweep.after = None

    async def _write(self, bucket: int, saga_ids: list[SagaId]) -> None:
        await crashpoints.here("deadletters.before_write")
        written = await self._store.write_dead_letters(bucket, saga_ids)
        await crashpoints.here("deadletters.after_write")
        for letter in written:
            observe.emit(
                "dead_letter.written",
                correlation_id=correlation_id(letter.event_id),
                saga_id=letter.saga_id,
                job_id=letter.job_id,
                delivery_status=SagaStatus.DEAD_LETTERED,
                dead_letter_id=letter.dead_letter_id,
                subscription_id=letter.subscription_id,
                error_code=letter.final_error_code,
                lease_expiration=letter.lease_expiration,
                worker_id=letter.worker_id,
            )
