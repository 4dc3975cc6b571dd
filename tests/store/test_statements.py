"""Every statement of every component, parsed and compared with roles.py. Needs no database."""

from __future__ import annotations

from importlib.resources import files

import pytest

from support.sql_rights import HOT, Need, Unclear, analyse
from surehook.roles import BY_COMPONENT, Verb
from surehook.store import statements
from surehook.store.statements import Statement

# Statements that look at a hot table in all buckets, and why.
ACROSS_BUCKETS = {
    ("orchestrator", "create_jobs"): {"webhook_delivery_jobs"},  # a cap counts all of them
}
# Answers to people's questions look wherever the answer is.
NOT_HOT = ("observer", "subscriptions", "verifier", "keys", "key_checks")
OTHER_CLOCKS = {"now", "clock_timestamp", "statement_timestamp", "currenttimestamp", "currentdate"}


def all_statements() -> list[tuple[str, Statement]]:
    names = sorted(file.name for file in files("surehook.store").joinpath("postgres").iterdir())
    components = [name.removesuffix(".sql") for name in names if name.endswith(".sql")]
    return [
        (component, statement)
        for component in components
        for statement in statements.load("postgres", component).values()
    ]


every_statement = pytest.mark.parametrize(
    ("component", "statement"),
    all_statements(),
    ids=[f"{component}-{statement.name}" for component, statement in all_statements()],
)


@every_statement
def test_a_statement_needs_no_more_than_its_role_has(component: str, statement: Statement) -> None:
    missing = analyse(statement.numbered()).missing(BY_COMPONENT[component])
    assert not missing, f"{BY_COMPONENT[component].name} lacks {', '.join(map(str, missing))}"


@every_statement
def test_a_statement_writes_one_table_at_most(component: str, statement: Statement) -> None:
    assert len(analyse(statement.numbered()).written) <= 1


@every_statement
def test_a_hot_statement_stays_in_one_bucket(component: str, statement: Statement) -> None:
    if component in NOT_HOT:
        return
    across = ACROSS_BUCKETS.get((component, statement.name), set())
    assert analyse(statement.numbered()).unbucketed == across


@every_statement
def test_a_statement_knows_one_clock_only(component: str, statement: Statement) -> None:
    """Only surehook_now() can be shifted by a test and used as an index condition."""
    assert not analyse(statement.numbered()).functions & OTHER_CLOCKS


@every_statement
def test_a_statement_that_returns_nothing_has_nothing_to_return(
    component: str, statement: Statement
) -> None:
    if statement.returns == "none":
        assert "RETURNING" not in statement.text


# ── The check itself ──────────────────────────────────────────────────────────────────────────

JOBS, SAGAS = "webhook_delivery_jobs", "webhook_delivery_sagas"


@pytest.mark.parametrize(
    ("component", "text", "lacks"),
    [
        (
            "router",
            "SELECT payload FROM events WHERE bucket = $1",
            (Verb.SELECT, "events", "payload"),
        ),
        (
            "router",
            "SELECT e.id FROM events e WHERE e.payload IS NOT NULL",
            (Verb.SELECT, "events", "payload"),
        ),
        (
            "router",
            "SELECT 1 FROM events ORDER BY external_id",
            (Verb.SELECT, "events", "external_id"),
        ),
        (
            "router",
            f"UPDATE {SAGAS} SET status = 'Completed'",
            (Verb.UPDATE, SAGAS, "status"),
        ),
        (
            "router",
            f"INSERT INTO {SAGAS} (event_id, status) VALUES ($1, $2)",
            (Verb.INSERT, SAGAS, "status"),
        ),
        (
            "router",
            f"INSERT INTO {SAGAS} (event_id) VALUES ($1) RETURNING status",
            (Verb.SELECT, SAGAS, "status"),
        ),
        (
            "router",
            f"WITH new AS (INSERT INTO {JOBS} (saga_id) VALUES ($1) RETURNING saga_id) "
            "SELECT saga_id FROM new",
            (Verb.INSERT, JOBS, "saga_id"),
        ),
        ("router", "SELECT id FROM events FOR UPDATE", (Verb.UPDATE, "events", "(any)")),
        ("cleaner", f"SELECT count(*) FROM {SAGAS}", (Verb.SELECT, SAGAS, "(any)")),
        (
            "cleaner",
            f"SELECT id FROM {JOBS} j WHERE EXISTS "
            f"(SELECT 1 FROM {SAGAS} s WHERE s.id = j.saga_id)",
            (Verb.SELECT, SAGAS, "id"),
        ),
        (
            "cleaner",
            f"UPDATE {JOBS} j SET status = 'Failed' FROM {SAGAS} s WHERE s.id = j.saga_id",
            (Verb.SELECT, SAGAS, "id"),
        ),
        (
            "orchestrator",
            f"SELECT s.id FROM {SAGAS} s CROSS JOIN LATERAL "
            "(SELECT payload FROM events e WHERE e.id = s.event_id) AS x",
            (Verb.SELECT, "events", "payload"),
        ),
        (
            "orchestrator",
            f"UPDATE {SAGAS} SET updated_at = (SELECT max(created_at) FROM events)",
            (Verb.SELECT, "events", "created_at"),
        ),
        (
            "worker",
            f"UPDATE {JOBS} SET lease_resets = lease_resets + 1",
            (Verb.UPDATE, JOBS, "lease_resets"),
        ),
        (
            "subscriptions",
            "UPDATE subscriptions SET verified = true WHERE id = $1",
            (Verb.UPDATE, "subscriptions", "verified"),
        ),
        (
            "observer",
            "SELECT s.id, c.sealed FROM subscriptions s "
            "LEFT JOIN subscription_secrets c ON c.subscription_id = s.id",
            (Verb.SELECT, "subscription_secrets", "sealed"),
        ),
    ],
)
def test_a_statement_that_needs_more_is_caught(
    component: str, text: str, lacks: tuple[Verb, str, str]
) -> None:
    assert Need(*lacks) in analyse(text).missing(BY_COMPONENT[component])


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM events",
        "TRUNCATE events",
        "SELECT * FROM events",
        "SELECT e.* FROM events e",
        "SELECT colour FROM events",
        "SELECT id FROM nowhere",
        "INSERT INTO events VALUES (1)",
        "INSERT INTO events (payload) VALUES ($1) ON CONFLICT (id) DO NOTHING",
        "INSERT INTO router_cursor (bucket) VALUES ($1) ON CONFLICT (bucket) DO UPDATE "
        "SET bucket = 1",
        f"SELECT s.id FROM {SAGAS} s JOIN {JOBS} USING (bucket)",
        "SELECT 1; SELECT 2",
        "DROP TABLE events",
        "GRANT SELECT ON events TO observer",
        "MERGE INTO events USING events e ON true WHEN MATCHED THEN DELETE",
    ],
)
def test_a_statement_that_cannot_be_judged_is_refused(text: str) -> None:
    with pytest.raises(Unclear):
        analyse(text)


@pytest.mark.parametrize(
    ("text", "across"),
    [
        ("SELECT id FROM events WHERE id = $1", {"events"}),
        ("SELECT id FROM events WHERE bucket = $1", set()),
        ("SELECT id FROM events WHERE bucket = $1 OR id = 1", {"events"}),
        ("SELECT id FROM events WHERE (bucket = $1 AND id = 1) AND tenant = $2", set()),
        ("INSERT INTO events (payload) VALUES ($1)", {"events"}),
        (
            f"SELECT s.id FROM {SAGAS} s JOIN events e ON e.id = s.event_id WHERE s.bucket = $1",
            {"events"},
        ),
        (
            f"SELECT s.id FROM {SAGAS} s WHERE s.bucket = $1 AND EXISTS "
            "(SELECT 1 FROM dead_letters d WHERE d.saga_id = s.id AND s.bucket = $1)",
            {"dead_letters"},
        ),
    ],
)
def test_a_table_read_in_all_buckets_is_caught(text: str, across: set[str]) -> None:
    assert analyse(text).unbucketed == across
    assert across <= set(HOT)


def test_two_tables_written_by_one_statement_are_caught() -> None:
    text = (
        f"WITH one AS (UPDATE {SAGAS} SET status = 'InProgress' RETURNING id) "
        f"INSERT INTO {JOBS} (saga_id, bucket) SELECT id, $1 FROM one"
    )
    assert analyse(text).written == {SAGAS, JOBS}
