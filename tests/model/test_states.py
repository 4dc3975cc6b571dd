"""The state machines as data, and decide(): every case, then any number of cases."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehook.model.retry import PRESETS, Policy
from surehook.model.roles import BY_LOGIN
from surehook.model.states import (
    JOB_ACTIVE,
    JOB_MOVES,
    JOB_TERMINAL,
    SAGA_MOVES,
    SAGA_TERMINAL,
    SAGA_WAITING,
    Attempt,
    JobResult,
    JobStatus,
    Move,
    SagaStatus,
    decide,
)

STANDARD = PRESETS["standard"]

policies = st.builds(
    Policy,
    max_attempts=st.integers(1, 50),
    base_delay_seconds=st.floats(0.001, 1e5),
    max_delay_seconds=st.floats(0.001, 1e6),
)
failures = st.builds(
    JobResult,
    status=st.just(JobStatus.FAILED),
    error_code=st.sampled_from(["TIMEOUT", "HTTP_5XX", "GONE"]),
    permanent=st.booleans(),
    retry_after_seconds=st.none() | st.integers(0, 10**9),
)
results = failures | st.just(JobResult(JobStatus.COMPLETED))


def in_progress(attempt_count: int) -> Attempt:
    return Attempt(SagaStatus.IN_PROGRESS, attempt_count)


# ── The machines ──────────────────────────────────────────────────────────────────────────────


def test_the_saga_moves_are_those_of_the_contract() -> None:
    assert {(move.source.value, move.target.value) for move in SAGA_MOVES} == {
        ("Pending", "InProgress"),
        ("InProgress", "Completed"),
        ("InProgress", "PendingRetry"),
        ("PendingRetry", "InProgress"),
        ("InProgress", "DeadLettered"),
    }


def test_the_job_moves_are_those_of_the_contract() -> None:
    assert {(move.source.value, move.target.value) for move in JOB_MOVES} == {
        ("Pending", "Leased"),
        ("Leased", "Completed"),
        ("Leased", "Failed"),
        ("Leased", "Pending"),
        ("Pending", "Completed"),
    }


def test_nothing_leaves_a_terminal_state() -> None:
    assert SAGA_TERMINAL == (SagaStatus.COMPLETED, SagaStatus.DEAD_LETTERED)
    assert JOB_TERMINAL == (JobStatus.COMPLETED, JobStatus.FAILED)
    assert JOB_ACTIVE == (JobStatus.PENDING, JobStatus.LEASED)
    assert SAGA_WAITING == (SagaStatus.PENDING, SagaStatus.PENDING_RETRY)


@pytest.mark.parametrize("moves", [SAGA_MOVES, JOB_MOVES])
def test_a_move_has_one_name_and_is_made_by_components_that_exist(
    moves: tuple[Move[Any], ...],
) -> None:
    assert len({move.name for move in moves}) == len(moves)
    for move in moves:
        assert move.source is not move.target
        assert move.by and set(move.by) <= set(BY_LOGIN)


# ── decide(), every case with small numbers ───────────────────────────────────────────────────

EVERY_CASE = list(
    product(SagaStatus, JobStatus, range(4), range(1, 4), (False, True), (None, 0, 45, 10**6))
)


@pytest.mark.parametrize("saga", SagaStatus)
@pytest.mark.parametrize("job", JobStatus)
def test_decide_answers_every_pair_and_only_moves_that_are_permitted(
    saga: SagaStatus, job: JobStatus
) -> None:
    permitted = {(move.source, move.target) for move in SAGA_MOVES}
    cases = [case for case in EVERY_CASE if case[:2] == (saga, job)]
    assert len(cases) == 4 * 3 * 2 * 4
    for _, _, attempts, limit, permanent, retry_after in cases:
        result = JobResult(job, "TIMEOUT", permanent, retry_after)
        change = decide(Attempt(saga, attempts), result, Policy(max_attempts=limit))
        if saga is not SagaStatus.IN_PROGRESS or job in JOB_ACTIVE:
            assert change is None
            continue
        assert change is not None and (saga, change.target) in permitted
        assert change.attempt_count == attempts + 1
        expected = SagaStatus.COMPLETED
        if job is JobStatus.FAILED:
            used_up = permanent or attempts + 1 >= limit
            expected = SagaStatus.DEAD_LETTERED if used_up else SagaStatus.PENDING_RETRY
        assert change.target is expected
        waits = change.target is SagaStatus.PENDING_RETRY
        assert (change.delay_seconds > 0) == waits


def test_a_success_leaves_the_error_of_an_earlier_attempt_alone() -> None:
    change = decide(in_progress(2), JobResult(JobStatus.COMPLETED, "TIMEOUT"), STANDARD)
    assert change is not None and change.final_error_code is None


def test_a_success_at_the_last_attempt_completes() -> None:
    change = decide(in_progress(4), JobResult(JobStatus.COMPLETED), STANDARD)
    assert change is not None and change.target is SagaStatus.COMPLETED


def test_a_permanent_error_gives_up_at_once() -> None:
    change = decide(in_progress(0), JobResult(JobStatus.FAILED, "GONE", True), STANDARD)
    assert change is not None
    assert (change.target, change.attempt_count, change.final_error_code) == (
        SagaStatus.DEAD_LETTERED,
        1,
        "GONE",
    )


def test_the_standard_policy_gives_up_after_five_attempts_in_seven_and_a_half_minutes() -> None:
    delays = whole_life(STANDARD)
    assert delays == [30, 60, 120, 240]
    assert sum(delays) == 7.5 * 60


def test_the_durable_policy_gives_up_after_22_attempts_in_74_and_a_half_hours() -> None:
    delays = whole_life(PRESETS["durable"])
    assert len(delays) + 1 == 22
    assert round(sum(delays) / 3600, 1) == 74.5
    assert delays[:4] == [30, 60, 120, 240] and set(delays[10:]) == {6 * 3600}


def whole_life(policy: Policy) -> list[float]:
    """The pauses of a delivery that fails until it is given up."""
    delays: list[float] = []
    attempts = 0
    while True:
        change = decide(in_progress(attempts), JobResult(JobStatus.FAILED, "TIMEOUT"), policy)
        assert change is not None
        attempts = change.attempt_count
        if change.target is SagaStatus.DEAD_LETTERED:
            assert attempts == policy.max_attempts
            return delays
        delays.append(change.delay_seconds)


# ── decide(), any case ────────────────────────────────────────────────────────────────────────


@given(st.integers(0, 10**6), results, policies)
def test_every_result_counts_as_one_attempt(
    attempts: int, result: JobResult, policy: Policy
) -> None:
    change = decide(in_progress(attempts), result, policy)
    assert change is not None and change.attempt_count == attempts + 1


@given(st.integers(0, 10**6), failures, policies)
def test_a_pause_is_never_longer_than_the_cap_nor_shorter_than_asked_within_it(
    attempts: int, failure: JobResult, policy: Policy
) -> None:
    change = decide(in_progress(attempts), failure, policy)
    assert change is not None
    if change.target is SagaStatus.DEAD_LETTERED:
        assert failure.permanent or attempts + 1 >= policy.max_attempts
        return
    asked = min(failure.retry_after_seconds or 0, policy.max_delay_seconds)
    assert asked <= change.delay_seconds <= policy.max_delay_seconds
    assert change.delay_seconds >= min(policy.base_delay_seconds, policy.max_delay_seconds)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.data())
def test_limits_that_change_in_between_take_effect_at_the_next_result(
    limits: list[int], data: st.DataObject
) -> None:
    """Whatever the limit was before: a saga ends at the first result at or above today's."""
    for attempts, limit in enumerate(limits):
        failure = data.draw(failures)
        change = decide(in_progress(attempts), failure, Policy(max_attempts=limit))
        assert change is not None
        gives_up = failure.permanent or attempts + 1 >= limit
        assert (change.target is SagaStatus.DEAD_LETTERED) == gives_up
        if gives_up:
            return


@given(st.sampled_from(SagaStatus), st.sampled_from(JobStatus), st.integers(0, 99), policies)
def test_a_result_is_applied_only_to_a_saga_in_progress(
    saga: SagaStatus, job: JobStatus, attempts: int, policy: Policy
) -> None:
    change = decide(Attempt(saga, attempts), JobResult(job, "TIMEOUT"), policy)
    assert (change is not None) == (saga is SagaStatus.IN_PROGRESS and job in JOB_TERMINAL)
