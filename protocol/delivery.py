"""What becomes of a delivery: sagas, jobs, dead letters, and every process that writes them.

A process remembers a tuple: () while it has nothing under way, else what it has read and does next.
To die is to forget it. Time has no length: a lease may expire and a retry be due at any moment,
which covers slow processes and wrong clocks. An attempt's next_attempt_at is a number that grows.

A new kind of process (retention of sagas, replay, …) is one more method of Delivery, named in the
scenarios that it takes part in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from protocol.explore import Step
from surehook.model.retry import Policy
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

# ── What is promised ──────────────────────────────────────────────────────────────────────────

PERMITTED = "a status changes only by a move of states.py, made by who may make it"
ONE_JOB = "an attempt has one job"
ONE_ACTIVE = "a saga has at most one active job"
HAS_JOB = "a saga in progress has the job of its attempt"
AT_REST = "a finished saga has no active job"
COUNTED_ONCE = "a result counts once"
ANSWERED = "a completed job was answered with 2xx"
HOLDER_HEARD = "a 2xx that the holder of a lease reports is not lost"
LEASE_KEPT = "nobody loses a lease that has not expired"
LETTER = "a dead saga has one dead letter, and no other saga has any"
REQUEUED_ONCE = "a dead letter is requeued once"
ENDS = "every saga ends, and a dead one has its dead letter"
CAP = "a subscription has no more open jobs than its cap"


@dataclass(frozen=True, slots=True)
class Rules:
    """What keeps the promises. All of it holds in the product; each broken variant lacks one."""

    attempt_is_key: bool = True  # uniq_job_saga_attempt
    one_active_job: bool = True  # idx_job_open
    new_job_guarded: bool = True  # trigger guard_new
    job_before_start: bool = True  # create_jobs commits before start_sagas
    start_compares_attempt: bool = True  # start_sagas: next_attempt_at is still that one
    start_compares_status: bool = True  # start_sagas: it still waits
    apply_compares_attempt: bool = True  # apply_results: next_attempt_at is the job's attempt_at
    apply_compares_status: bool = True  # apply_results: it is still InProgress
    attempt_grows: bool = True  # apply_results: GREATEST(…, next_attempt_at + 1 µs)
    cap_is_locked: bool = True  # lock_subscriptions, before the open jobs are counted
    send_before_report: bool = True  # the worker writes Completed after the 2xx
    finish_compares_token: bool = True  # finish_jobs: the lease is still the reporter's
    finish_compares_status: bool = True  # finish_jobs: the job is not finished
    lease_has_new_token: bool = True  # lease_jobs: each lease its own
    give_back_compares_token: bool = True  # give_back_jobs
    reset_compares_lease: bool = True  # reset_expired_leases: found and changed in one statement
    expiries_are_limited: bool = True  # LEASE_EXPIRIES_MAX
    letter_after_death: bool = True  # write_dead_letters: the saga is DeadLettered
    letter_is_unique: bool = True  # idx_dead_saga
    requeue_is_new_saga: bool = True  # requeue: a row beside the dead one
    requeue_is_key: bool = True  # uniq_saga_event_subscription has requeued_from


# ── States ────────────────────────────────────────────────────────────────────────────────────


class Saga(NamedTuple):
    status: SagaStatus = SagaStatus.PENDING
    attempt: int = 0  # next_attempt_at
    attempts: int = 0  # attempt_count
    requeued_from: int | None = None  # a dead letter


class Job(NamedTuple):
    saga: int
    attempt: int
    status: JobStatus = JobStatus.PENDING
    token: int | None = None
    expired: bool = False  # its lease has
    expiries: int = 0
    answered: bool = False  # what only the endpoint knows: it said 2xx
    applied: int = 0  # what nobody knows: how often its result was counted


Memory = tuple[Any, ...]
IDLE: Memory = ()


class State(NamedTuple):
    sagas: tuple[Saga, ...]
    jobs: tuple[Job | None, ...]  # None = retention has deleted it
    letters: tuple[int, ...]  # each dead letter's saga
    limit: int  # max_attempts, today
    hands: int  # how often someone with psql may still do what the guard permits
    memories: tuple[tuple[Memory, ...], ...]  # of the processes of each kind


class Act(NamedTuple):
    """What one process may do: the tables afterwards, and what it then remembers."""

    label: str
    state: State
    memory: Memory = IDLE
    breaks: str | None = None
    fault: bool = False


Acts = Callable[[State, Memory], Iterator[Act]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Who takes part."""

    orchestrators: int = 1
    workers: int = 1
    cleaners: int = 1
    sweeps: int = 1
    operators: int = 0
    retentions: int = 0
    sagas: int = 1
    sagas_max: int = 1  # with those that are requeued
    limit: int = 2
    limit_changes: bool = False
    expiries_max: int = 1  # 6 in the product
    cap: int | None = None  # all sagas are of one subscription
    hands: int = 0
    gives_back: bool = False
    deadly: bool = False  # the request kills whoever sends it


# ── Moves ─────────────────────────────────────────────────────────────────────────────────────

_MOVES: dict[tuple[SagaStatus | JobStatus, SagaStatus | JobStatus], Move[Any]] = {
    **{(move.source, move.target): move for move in SAGA_MOVES},
    **{(move.source, move.target): move for move in JOB_MOVES},
}


@cache
def _decision(count: int, result: JobStatus, limit: int) -> tuple[SagaStatus, int]:
    saga = Attempt(SagaStatus.IN_PROGRESS, count)
    change = decide(saga, JobResult(result), Policy(max_attempts=limit))
    assert change is not None
    return change.target, change.attempt_count


@dataclass(slots=True)
class Delivery:
    """A model: see explore.Model."""

    scenario: Scenario = field(default_factory=Scenario)
    rules: Rules = field(default_factory=Rules)
    goal: str = ENDS
    made: set[tuple[str, str]] = field(default_factory=set)  # moves, and who has made them
    kinds: dict[str, tuple[int, Acts]] = field(init=False)  # how many, and what they may do

    def __post_init__(self) -> None:
        given = self.scenario
        self.kinds = {
            "orchestrator": (given.orchestrators, self._orchestrator),
            "worker": (given.workers, self._worker),
            "cleaner": (given.cleaners, self._cleaner),
            "sweep": (given.sweeps, self._sweep),
            "operator": (given.operators, self._operator),
            "retention": (given.retentions, self._retention),
        }

    def start(self) -> State:
        given = self.scenario
        memories = tuple((IDLE,) * count for count, _ in self.kinds.values())
        return State((Saga(),) * given.sagas, (), (), given.limit, given.hands, memories)

    def steps(self, state: State) -> Iterator[Step[State]]:
        yield from self._surroundings(state)
        for group, (kind, (_, acts)) in enumerate(self.kinds.items()):
            processes = state.memories[group]
            for mine in dict.fromkeys(processes):  # those that remember the same do the same
                others = list(processes)
                others.remove(mine)
                if mine != IDLE:
                    after = self._remembered(state, group, others, IDLE)
                    yield Step(f"{kind} dies, about to {mine[0]}", after, fault=True)
                for act in acts(state, mine):
                    after = self._remembered(act.state, group, others, act.memory)
                    yield Step(f"{kind} {act.label}", after, act.breaks, act.fault)

    @staticmethod
    def _remembered(state: State, group: int, others: list[Memory], mine: Memory) -> State:
        memories = list(state.memories)
        memories[group] = tuple(sorted((*others, mine)))
        return state._replace(memories=tuple(memories))

    # ── Promises ──────────────────────────────────────────────────────────────────────────────

    def broken(self, state: State) -> str | None:
        jobs = [job for job in state.jobs if job is not None]
        if len({(job.saga, job.attempt) for job in jobs}) < len(jobs):
            return ONE_JOB
        active = [job.saga for job in jobs if job.status in JOB_ACTIVE]
        if len(set(active)) < len(active):
            return ONE_ACTIVE
        if self.scenario.cap is not None and len(active) > self.scenario.cap:
            return CAP
        if any(job.status is JobStatus.COMPLETED and not job.answered for job in jobs):
            return ANSWERED
        for number, saga in enumerate(state.sagas):
            if (broken := _broken_saga(state, number, saga)) is not None:
                return broken
        return _broken_letters(state)

    def settled(self, state: State) -> bool:
        return all(
            saga.status in SAGA_TERMINAL
            and (saga.status is SagaStatus.COMPLETED or number in state.letters)
            for number, saga in enumerate(state.sagas)
        )

    def _refusal(
        self, by: str, source: SagaStatus | JobStatus, target: SagaStatus | JobStatus
    ) -> str | None:
        """The promise that this change of a status would break; and a note of who makes it."""
        move = _MOVES.get((source, target))
        if move is None or by not in move.by:
            return PERMITTED
        self.made.add((move.name, by))
        return None

    # ── Surroundings ──────────────────────────────────────────────────────────────────────────

    def _surroundings(self, state: State) -> Iterator[Step[State]]:
        for number, job in enumerate(state.jobs):
            if job and job.status is JobStatus.LEASED and not job.expired:
                after = _with_job(state, number, job._replace(expired=True))
                yield Step(f"the lease of job {number} expires", after)
        if self.scenario.limit_changes and state.limit == self.scenario.limit:
            yield Step(
                "the limit is raised by 1", state._replace(limit=state.limit + 1), None, True
            )
        for number, saga in enumerate(state.sagas):
            if state.hands and saga.status is SagaStatus.IN_PROGRESS:
                again = saga._replace(status=SagaStatus.PENDING_RETRY, attempt=saga.attempt + 1)
                after = _with_saga(state, number, again)._replace(hands=state.hands - 1)
                yield Step(f"a hand moves saga {number} to PendingRetry", after, None, True)

    # ── Orchestrator ──────────────────────────────────────────────────────────────────────────

    def _orchestrator(self, state: State, mine: Memory) -> Iterator[Act]:
        match mine:
            case ():
                yield from self._due(state)
                yield from self._results(state)
            case ("create", number, attempt):
                yield self._create(state, number, attempt)
            case ("start", number, attempt):
                yield self._start(state, number, attempt)
            case ("apply", number):
                yield self._apply(state, number)

    def _due(self, state: State) -> Iterator[Act]:
        if self.scenario.cap is not None:
            if self.rules.cap_is_locked and _holds(state, "create"):
                return  # lock_subscriptions skips what is locked
            if sum(job is not None and job.status in JOB_ACTIVE for job in state.jobs) >= (
                self.scenario.cap
            ):
                return
        first = "create" if self.rules.job_before_start else "start"
        for number, saga in enumerate(state.sagas):
            if saga.status in SAGA_WAITING:
                memory = (first, number, saga.attempt)
                yield Act(f"reads saga {number}, {saga.status} for {saga.attempt}", state, memory)

    def _create(self, state: State, number: int, attempt: int) -> Act:
        """INSERT … ON CONFLICT DO NOTHING, and the trigger behind it."""
        rules, saga = self.rules, state.sagas[number]
        own = [job for job in state.jobs if job is not None and job.saga == number]
        there = any(job.attempt == attempt for job in own)
        then = ("start", number, attempt) if rules.job_before_start else IDLE
        if there and rules.attempt_is_key:
            return Act(f"finds the job of saga {number} for {attempt} there", state, then)
        if rules.one_active_job and any(job.status in JOB_ACTIVE for job in own):
            return Act(f"finds another job of saga {number} active", state, then if there else IDLE)
        open_attempt = saga.status not in SAGA_TERMINAL and saga.attempt == attempt
        if rules.new_job_guarded and not open_attempt:
            return Act(f"is refused a job of saga {number} for {attempt}", state)
        after = state._replace(jobs=(*state.jobs, Job(number, attempt)))
        return Act(f"creates job {len(state.jobs)} of saga {number} for {attempt}", after, then)

    def _start(self, state: State, number: int, attempt: int) -> Act:
        saga, rules = state.sagas[number], self.rules
        then = IDLE if rules.job_before_start else ("create", number, attempt)
        waits = saga.status in SAGA_WAITING or not rules.start_compares_status
        same = saga.attempt == attempt or not rules.start_compares_attempt
        if not (waits and same):
            return Act(f"does not start saga {number}, which has moved on", state)
        target = SagaStatus.IN_PROGRESS
        refused = self._refusal("orchestrator", saga.status, target)
        after = _with_saga(state, number, saga._replace(status=target))
        return Act(f"starts saga {number} for {attempt}", after, then, refused)

    def _results(self, state: State) -> Iterator[Act]:
        for number, job in enumerate(state.jobs):
            if job is None or job.status not in JOB_TERMINAL:
                continue
            if self._may_apply(state.sagas[job.saga], job):
                yield Act(f"reads job {number}, {job.status}", state, ("apply", number))

    def _may_apply(self, saga: Saga, job: Job) -> bool:
        runs = saga.status is SagaStatus.IN_PROGRESS or not self.rules.apply_compares_status
        return runs and (saga.attempt == job.attempt or not self.rules.apply_compares_attempt)

    def _apply(self, state: State, number: int) -> Act:
        job = state.jobs[number]
        if job is None or not self._may_apply(state.sagas[job.saga], job):
            return Act(f"does not apply job {number}: its saga has moved on", state)
        saga = state.sagas[job.saga]
        target, attempts = _decision(saga.attempts, job.status, state.limit)
        refused = self._refusal("orchestrator", saga.status, target)
        again = target is SagaStatus.PENDING_RETRY and self.rules.attempt_grows
        moved = saga._replace(status=target, attempt=saga.attempt + again, attempts=attempts)
        after = _with_saga(state, job.saga, moved)
        after = _with_job(after, number, job._replace(applied=job.applied + 1))
        return Act(f"applies job {number}: saga {job.saga} is {target}", after, IDLE, refused)

    # ── Worker ────────────────────────────────────────────────────────────────────────────────

    def _worker(self, state: State, mine: Memory) -> Iterator[Act]:
        match mine:
            case ():
                yield from self._lease(state)
            case ("send", number, token):
                yield from self._send(state, number, token)
                if self.scenario.gives_back:
                    yield self._give_back(state, number, token)
            case ("report", number, token, answered):
                yield self._report(state, number, token, answered)

    def _lease(self, state: State) -> Iterator[Act]:
        for number, job in enumerate(state.jobs):
            if job is None or job.status is not JobStatus.PENDING:
                continue
            token = self._new_token(state, number) if self.rules.lease_has_new_token else 0
            refused = self._refusal("worker", job.status, JobStatus.LEASED)
            leased = job._replace(status=JobStatus.LEASED, token=token, expired=False)
            then = ("send", number, token)
            yield Act(f"leases job {number}", _with_job(state, number, leased), then, refused)

    def _new_token(self, state: State, number: int) -> int:
        """The least that no one who still lives has had for this job: which number it is does not
        matter, so the fewest possible make the fewest states."""
        workers = state.memories[list(self.kinds).index("worker")]
        known = {memory[2] for memory in workers if memory[1:2] == (number,)}
        return next(token for token in range(len(known) + 1) if token not in known)

    def _send(self, state: State, number: int, token: int) -> Iterator[Act]:
        job = state.jobs[number]
        answered = job and _with_job(state, number, job._replace(answered=True))
        if self.scenario.deadly:
            yield Act(f"sends job {number} and dies of it", state)
        elif self.rules.send_before_report:
            yield Act(
                f"sends job {number}: 2xx", answered or state, ("report", number, token, True)
            )
            yield Act(f"sends job {number}: it fails", state, ("report", number, token, False))
        else:
            yield Act(f"expects a 2xx for job {number}", state, ("report", number, token, True))

    def _report(self, state: State, number: int, token: int, answered: bool) -> Act:
        """A failure only by the lease's holder; a success also after the lease was lost."""
        job, rules = state.jobs[number], self.rules
        target = JobStatus.COMPLETED if answered else JobStatus.FAILED
        if job is None:
            return Act(f"finds job {number} deleted", state)
        leased = job.status is JobStatus.LEASED or not rules.finish_compares_status
        mine = leased and (job.token == token or not rules.finish_compares_token)
        late = answered and (job.status in JOB_ACTIVE or not rules.finish_compares_status)
        if not (mine or late):
            lost = answered and job.token == token and job.status is JobStatus.FAILED
            breaks = HOLDER_HEARD if lost else None
            return Act(f"reports job {number} {target}, too late", state, IDLE, breaks)
        refused = self._refusal("worker", job.status, target)
        after = _with_job(state, number, job._replace(status=target))
        return Act(f"reports job {number} {target}", after, IDLE, refused)

    def _give_back(self, state: State, number: int, token: int) -> Act:
        job = state.jobs[number]
        held = job is not None and job.status is JobStatus.LEASED
        if job is None or not held or (self.rules.give_back_compares_token and job.token != token):
            return Act(f"cannot give back job {number}", state, fault=True)
        others = job.token != token and not job.expired
        refused = self._refusal("worker", job.status, JobStatus.PENDING)
        back = job._replace(status=JobStatus.PENDING, token=None, expired=False)
        breaks = refused or (LEASE_KEPT if others else None)
        after = _with_job(state, number, back)
        return Act(f"gives back job {number} unsent", after, IDLE, breaks, fault=True)

    # ── Cleaner ───────────────────────────────────────────────────────────────────────────────

    def _cleaner(self, state: State, mine: Memory) -> Iterator[Act]:
        if mine:
            yield self._reset(state, mine[1])
            return
        for number, job in enumerate(state.jobs):
            if job and job.status is JobStatus.LEASED and job.expired:
                if self.rules.reset_compares_lease:
                    yield self._reset(state, number)
                else:
                    yield Act(f"reads job {number}, expired", state, ("reset", number))

    def _reset(self, state: State, number: int) -> Act:
        job = state.jobs[number]
        if job is None or job.status is not JobStatus.LEASED:
            return Act(f"finds job {number} changed", state)
        expiries = job.expiries + self.rules.expiries_are_limited
        last = expiries > self.scenario.expiries_max
        target = JobStatus.FAILED if last else JobStatus.PENDING
        breaks = self._refusal("cleaner", job.status, target)
        if not job.expired:
            breaks = LEASE_KEPT
        reset = job._replace(status=target, token=None, expired=False, expiries=expiries)
        label = f"resets job {number}: {target}"
        return Act(label, _with_job(state, number, reset), IDLE, breaks)

    # ── Dead letters ──────────────────────────────────────────────────────────────────────────

    def _sweep(self, state: State, mine: Memory) -> Iterator[Act]:
        if mine:
            number = mine[1]
            if number in state.letters and self.rules.letter_is_unique:
                yield Act(f"finds the dead letter of saga {number} there", state)
            else:
                after = state._replace(letters=(*state.letters, number))
                yield Act(f"writes the dead letter of saga {number}", after)
            return
        for number, saga in enumerate(state.sagas):
            dead = saga.status is SagaStatus.DEAD_LETTERED
            if not self.rules.letter_after_death:
                dead = _is_dying(state, number)
            if dead and number not in state.letters:
                yield Act(f"reads saga {number}, {saga.status}", state, ("write", number))

    def _operator(self, state: State, mine: Memory) -> Iterator[Act]:
        if mine:
            yield self._requeue(state, mine[1])
        elif len(state.sagas) < self.scenario.sagas_max:
            for letter in range(len(state.letters)):
                memory = ("requeue", letter)
                yield Act(f"reads dead letter {letter}", state, memory, fault=True)

    def _requeue(self, state: State, letter: int) -> Act:
        if self.rules.requeue_is_key and any(s.requeued_from == letter for s in state.sagas):
            return Act(f"finds dead letter {letter} requeued", state, fault=True)
        if self.rules.requeue_is_new_saga:
            after = state._replace(sagas=(*state.sagas, Saga(requeued_from=letter)))
            label = f"requeues dead letter {letter} as saga {len(state.sagas)}"
            return Act(label, after, fault=True)
        number = state.letters[letter]
        saga = state.sagas[number]
        refused = self._refusal("deadletters", saga.status, SagaStatus.PENDING)
        after = _with_saga(state, number, Saga(attempt=saga.attempt + 1))
        return Act(f"makes saga {number} Pending again", after, IDLE, refused, fault=True)

    # ── Retention ─────────────────────────────────────────────────────────────────────────────

    def _retention(self, state: State, _: Memory) -> Iterator[Act]:
        """Deletes finished history, however young it is."""
        for number, job in enumerate(state.jobs):
            if job and job.status in JOB_TERMINAL and state.sagas[job.saga].status in SAGA_TERMINAL:
                jobs = (*state.jobs[:number], None, *state.jobs[number + 1 :])
                yield Act(f"deletes job {number}", state._replace(jobs=jobs), fault=True)


def _with_saga(state: State, number: int, saga: Saga) -> State:
    return state._replace(sagas=(*state.sagas[:number], saga, *state.sagas[number + 1 :]))


def _with_job(state: State, number: int, job: Job) -> State:
    return state._replace(jobs=(*state.jobs[:number], job, *state.jobs[number + 1 :]))


def _holds(state: State, what: str) -> bool:
    return any(memory[:1] == (what,) for group in state.memories for memory in group)


def _is_dying(state: State, number: int) -> bool:
    """Its last attempt has failed, and that is not applied yet."""
    saga = state.sagas[number]
    return any(
        job is not None
        and (job.saga, job.attempt, job.status) == (number, saga.attempt, JobStatus.FAILED)
        and _decision(saga.attempts, job.status, state.limit)[0] is SagaStatus.DEAD_LETTERED
        for job in state.jobs
    )


def _broken_saga(state: State, number: int, saga: Saga) -> str | None:
    own = [job for job in state.jobs if job is not None and job.saga == number]
    if saga.status in SAGA_TERMINAL and any(job.status in JOB_ACTIVE for job in own):
        return AT_REST
    if saga.status is SagaStatus.IN_PROGRESS and all(job.attempt != saga.attempt for job in own):
        return HAS_JOB
    if any(job.applied > 1 for job in own):
        return COUNTED_ONCE
    if None not in state.jobs and saga.attempts != sum(job.applied for job in own):
        return COUNTED_ONCE
    return None


def _broken_letters(state: State) -> str | None:
    if len(set(state.letters)) < len(state.letters):
        return LETTER
    if any(state.sagas[number].status is not SagaStatus.DEAD_LETTERED for number in state.letters):
        return LETTER
    requeued = [saga.requeued_from for saga in state.sagas if saga.requeued_from is not None]
    return REQUEUED_ONCE if len(set(requeued)) < len(requeued) else None
