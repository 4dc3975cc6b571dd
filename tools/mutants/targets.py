"""Of what mutants are made, and which tests should notice: the fastest first. Imports nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tools.mutants import python, sql
from tools.mutants.mutant import Mutant, numbered

Engine = Literal["postgres", "mysql"]
STORE = "src/surehook/store"


@dataclass(frozen=True, slots=True)
class Target:
    path: str
    tests: tuple[str, ...]
    engine: Engine | None = None  # None = no database
    names: tuple[str, ...] = ()  # statements or functions; of Python none = all
    until: str = ""  # of a script: where what is not meant begins

    def mutants(self, repository: Path) -> list[Mutant]:
        return numbered(self._made((repository / self.path).read_text(encoding="utf-8")))

    def _made(self, content: str) -> Iterator[Mutant]:
        if self.path.endswith(".py"):
            return python.of_file(self.path, content, self.names)
        if self.until:
            return sql.of_script(self.path, content, self.until)
        return sql.of_statements(self.path, content, self.names)


# ── Which tests ───────────────────────────────────────────────────────────────────────────────

GUARD = ("tests/store/test_guard.py",)
ROWS = ("tests/pipeline/test_exact_rows.py", "tests/pipeline/test_buckets.py")
ROUTER = (ROWS[1], "tests/pipeline/test_eligibility.py", "tests/pipeline/test_router.py")
ORCHESTRATOR = (*ROWS, "tests/pipeline/test_orchestrator.py")
WORKER = (*ROWS, "tests/pipeline/test_worker.py")
CLEANER = (*ROWS, "tests/pipeline/test_cleaner.py")
DEAD_LETTERS = (*ROWS, "tests/pipeline/test_deadletters.py")

# ── Of what ───────────────────────────────────────────────────────────────────────────────────

MODEL = (
    Target(
        "src/surehook/model/states.py",
        ("tests/model/test_states.py", "tests/protocol/test_protocol.py"),
    ),
    Target(
        "src/surehook/model/retry.py", ("tests/model/test_retry.py", "tests/model/test_states.py")
    ),
)
POSTGRES = (
    Target(
        f"{STORE}/postgres/generated/guard.sql",
        GUARD,
        "postgres",
        until="CREATE OR REPLACE FUNCTION surehook_refuse_payload",
    ),
    Target(f"{STORE}/postgres/cleaner.sql", CLEANER, "postgres", ("reset_expired_leases",)),
    Target(
        f"{STORE}/postgres/worker.sql",
        WORKER,
        "postgres",
        ("lease_jobs", "lease_known_jobs", "finish_jobs", "give_back_jobs"),
    ),
    Target(
        f"{STORE}/postgres/orchestrator.sql",
        ORCHESTRATOR,
        "postgres",
        ("start_sagas", "apply_results", "create_jobs", "spend_rate", "set_paces"),
    ),
    Target(
        f"{STORE}/postgres/deadletters.sql",
        DEAD_LETTERS,
        "postgres",
        ("write_dead_letters", "requeue", "save_cursor"),
    ),
    Target(
        f"{STORE}/postgres/router.sql",
        ROUTER,
        "postgres",
        ("route", "hold", "let_go", "save_cursor", "begin_rescan", "save_rescan"),
    ),
    Target(
        f"{STORE}/postgres/router.py",
        ROUTER,
        "postgres",
        (
            "advance",
            "PostgresRouterStore.route_page",
            "PostgresRouterStore._rescan",
            "PostgresRouterStore._read_on",
            "PostgresRouterStore._hold",
        ),
    ),
    Target(f"{STORE}/router.py", ROUTER, "postgres", ("CatchingUp.step", "CatchingUp.committed")),
)
MYSQL = (
    Target(
        f"{STORE}/mysql/generated/guard.sql",
        GUARD,
        "mysql",
        until="CREATE OR REPLACE TRIGGER guard_payload",
    ),
    Target(
        f"{STORE}/mysql/cleaner.sql",
        CLEANER,
        "mysql",
        ("expired_leases", "reset_expired_leases", "fail_expired_leases"),
    ),
    Target(
        f"{STORE}/mysql/cleaner.py",
        CLEANER,
        "mysql",
        ("MysqlCleanerStore.reset_expired_leases", "_ended"),
    ),
    Target(
        f"{STORE}/mysql/worker.sql",
        WORKER,
        "mysql",
        (
            "pick_jobs",
            "pick_known_jobs",
            "lease_jobs",
            "finish_jobs",
            "finished_jobs",
            "held_jobs",
            "give_back_jobs",
        ),
    ),
    Target(
        f"{STORE}/mysql/worker.py",
        WORKER,
        "mysql",
        (
            "MysqlWorkerStore._lease",
            "MysqlWorkerStore.finish_jobs",
            "MysqlWorkerStore.give_back_jobs",
            "_fitting",
        ),
    ),
    Target(
        f"{STORE}/mysql/orchestrator.sql",
        ORCHESTRATOR,
        "mysql",
        (
            "start_sagas",
            "lock_in_progress",
            "job_results",
            "complete_sagas",
            "fail_sagas",
            "open_jobs",
            "due_sagas",
            "jobs_there",
            "set_paces",
            "spend_rate",
        ),
    ),
    Target(
        f"{STORE}/mysql/orchestrator.py",
        ORCHESTRATOR,
        "mysql",
        (
            "MysqlOrchestratorStore.create_jobs",
            "MysqlOrchestratorStore.apply_results",
            "_rooms",
            "_refilled",
            "_due_sagas",
            "_spend",
            "_applied",
            "_next_attempt_at",
            "_write_results",
        ),
    ),
    Target(
        f"{STORE}/mysql/deadletters.sql",
        DEAD_LETTERS,
        "mysql",
        ("unwritten", "write_dead_letters", "requeueable"),
    ),
    Target(
        f"{STORE}/mysql/deadletters.py",
        DEAD_LETTERS,
        "mysql",
        ("MysqlDeadLetterStore.write_dead_letters", "MysqlDeadLetterStore.requeue"),
    ),
    Target(
        f"{STORE}/mysql/router.sql",
        ROUTER,
        "mysql",
        (
            "matches",
            "covering",
            "changed_since",
            "routed",
            "noted",
            "settled",
            "let_go",
            "late_events",
            "new_events",
            "drop_gaps",
            "save_cursor",
        ),
    ),
    Target(
        f"{STORE}/mysql/router.py",
        ROUTER,
        "mysql",
        (
            "holes",
            "without",
            "MysqlRouterStore.route_page",
            "MysqlRouterStore._late",
            "MysqlRouterStore._remember",
            "MysqlRouterStore._insert",
            "MysqlRouterStore.hold",
            "MysqlRouterStore._bury",
            "_is_empty",
        ),
    ),
)
TARGETS: Sequence[Target] = (*MODEL, *POSTGRES, *MYSQL)
