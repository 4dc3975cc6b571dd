"""What is claimed: where every promise holds, and which one each broken variant breaks.

A variant is the product without one of the things that keep its promises. That it breaks shows two
things: this part is needed, and the model would notice if it were missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol import delivery, eligibility, reading
from protocol.delivery import Delivery, Scenario
from protocol.eligibility import Eligibility
from protocol.explore import Model
from protocol.reading import ByGaps, BySnapshot, GapRules, SnapshotRules


@dataclass(frozen=True, slots=True)
class Claim:
    name: str
    model: Model[Any]
    breaks: str | None = None  # None = every promise holds
    long: bool = False  # more than a few seconds


# ── Every promise holds ───────────────────────────────────────────────────────────────────────

TWO_OF_EACH = Scenario(orchestrators=2, workers=2, sweeps=2)
REQUEUE = Scenario(orchestrators=1, sweeps=2, operators=2, sagas_max=3, limit=1, expiries_max=0)
ONE_CAP = Scenario(orchestrators=2, sagas=2, sagas_max=2, limit=1, cap=1, expiries_max=0)
RETENTION = Scenario(orchestrators=2, retentions=1, limit=1, expiries_max=0)
GIVEN_BACK = Scenario(workers=2, cleaners=2, limit=1, gives_back=True)
DEADLY = Scenario(workers=2, deadly=True)
BY_HAND = Scenario(orchestrators=2, hands=1, limit=1, expiries_max=0)
LIMIT_RAISED = Scenario(orchestrators=2, limit=1, limit_changes=True, expiries_max=0)

HOLDS = (
    Claim("two orchestrators, workers whose leases expire", Delivery(LIMIT_RAISED)),
    Claim("jobs that are given back, two cleaners", Delivery(GIVEN_BACK)),
    Claim("a request that kills every worker", Delivery(DEADLY)),
    Claim("two sagas of one subscription, whose cap is one job", Delivery(ONE_CAP)),
    Claim("dead letters, written and requeued by two at once", Delivery(REQUEUE)),
    Claim("finished jobs that are deleted at any moment", Delivery(RETENTION)),
    Claim("a saga that is moved on by hand", Delivery(BY_HAND)),
    Claim("two of each, two attempts, two leases each", Delivery(TWO_OF_EACH), long=True),
    Claim(
        "two of each, a limit that is raised, jobs that are given back",
        Delivery(Scenario(2, 2, limit=1, limit_changes=True, gives_back=True)),
        long=True,
    ),
    Claim(
        "two sagas, two orchestrators, two workers",
        Delivery(Scenario(2, 2, sagas=2, sagas_max=2, limit=1, expiries_max=0)),
        long=True,
    ),
    *(
        Claim(f"PostgreSQL's router, pages of {page}", BySnapshot((2, 1, 1), page))
        for page in (1, 2)
    ),
    *(Claim(f"MySQL's router, pages of {page}", ByGaps((2, 1, 1), page)) for page in (1, 2)),
    *(
        Claim(f"PostgreSQL's router after a restore, pages of {page}", BySnapshot((2, 1), page, 1))
        for page in (1, 2)
    ),
    Claim("a subscription that is switched on, off and on", Eligibility(events=2, changes=3)),
    Claim("… and off and on once more", Eligibility(events=2, changes=5), long=True),
)


# ── One thing is missing, and a promise is broken ─────────────────────────────────────────────


def _job(name: str, rule: str, breaks: str, scenario: Scenario = TWO_OF_EACH) -> Claim:
    return Claim(name, Delivery(scenario, delivery.Rules(**{rule: False})), breaks)


def _snapshot(name: str, rule: str, restores: int = 0) -> Claim:
    model = BySnapshot((2, 1), 1, restores, SnapshotRules(**{rule: False}))
    return Claim(name, model, reading.FOUND)


def _gaps(name: str, rule: str) -> Claim:
    return Claim(name, ByGaps((2, 1), 1, GapRules(**{rule: False})), reading.FOUND)


def _eligible(name: str, rule: str, breaks: str = eligibility.GETS_ALL) -> Claim:
    model = Eligibility(1, 3, eligibility.Rules(**{rule: False}))
    return Claim(name, model, breaks)


BREAKS = (
    _job("an attempt may have two jobs", "attempt_is_key", delivery.ONE_JOB),
    _job(
        "an attempt may begin while another is active",
        "one_active_job",
        delivery.ONE_ACTIVE,
        BY_HAND,
    ),
    _job("a job may be for a finished saga", "new_job_guarded", delivery.AT_REST, RETENTION),
    _job("a saga is started before its job is created", "job_before_start", delivery.HAS_JOB),
    _job("a saga is started whichever attempt it has", "start_compares_attempt", delivery.HAS_JOB),
    _job("a saga is started whatever its status", "start_compares_status", delivery.PERMITTED),
    _job("a result is applied to a later attempt", "apply_compares_attempt", delivery.AT_REST),
    _job(
        "a result is applied whatever the saga's status",
        "apply_compares_status",
        delivery.PERMITTED,
    ),
    _job("a retry keeps its next_attempt_at", "attempt_grows", delivery.COUNTED_ONCE),
    _job("open jobs are counted without a lock", "cap_is_locked", delivery.CAP, ONE_CAP),
    _job("a job is completed before it is sent", "send_before_report", delivery.ANSWERED),
    _job("a result is written without a token", "finish_compares_token", delivery.HOLDER_HEARD),
    _job("a result is written over another", "finish_compares_status", delivery.PERMITTED),
    _job("the next lease has the same token", "lease_has_new_token", delivery.HOLDER_HEARD),
    _job(
        "a job is given back without a token",
        "give_back_compares_token",
        delivery.LEASE_KEPT,
        GIVEN_BACK,
    ),
    _job(
        "expired leases are read first and reset later",
        "reset_compares_lease",
        delivery.LEASE_KEPT,
        GIVEN_BACK,
    ),
    _job("a lease may expire for ever", "expiries_are_limited", delivery.ENDS, DEADLY),
    _job("a dead letter is written before its saga is dead", "letter_after_death", delivery.LETTER),
    _job("a saga may have two dead letters", "letter_is_unique", delivery.LETTER, REQUEUE),
    _job("a requeue revives the dead saga", "requeue_is_new_saga", delivery.PERMITTED, REQUEUE),
    _job("a dead letter may be requeued twice", "requeue_is_key", delivery.REQUEUED_ONCE, REQUEUE),
    _snapshot("the cursor is the highest id", "cursor_is_snapshot"),
    _snapshot("the cursor forgets which transactions were under way", "in_flight_is_kept"),
    _snapshot("the cursor passes by the rest of a full page", "full_page_goes_on"),
    _snapshot("the cursor is saved before the sagas are committed", "saved_with_the_sagas"),
    _snapshot("a rescan saves its snapshot when it ends", "rescan_saves_snapshot_first", 1),
    _gaps("ids that are missing are not noted", "gaps_are_kept"),
    _gaps("gaps are saved before the sagas are committed", "gaps_are_saved_with_the_sagas"),
    _gaps("a gap is given up while its row is locked", "open_rows_keep_a_gap"),
    _gaps("a gap is given up while its row is being written", "statements_keep_a_gap"),
    _gaps("a gap in which one event appears is closed", "narrowed_to_what_is_missing"),
    _eligible(
        "an event goes to who is eligible when it is read", "matched_by_time", eligibility.OWED
    ),
    _eligible("only the current interval counts", "earlier_intervals_count"),
    _eligible("events read while a subscription is off are not held", "held_while_off"),
    _eligible("whether an interval ended is asked too early", "end_is_asked_after_routing"),
    _eligible("a change that commits late is not caught up", "intervals_are_caught_up"),
    _eligible("… nor one that has ended since", "ended_intervals_are_caught_up"),
    _eligible("what is held is let go when it was looked at", "kept_until_it_has_its_saga"),
)
