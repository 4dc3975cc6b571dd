"""Every statement of every login, parsed and compared with roles.py. Needs no database."""

from __future__ import annotations

import re
from functools import cache

import pytest

from support.sql_rights import HOT, Found, Need, Unclear, analyse, outputs, parsable
from surehook.model import statements
from surehook.model.roles import BY_LOGIN, ENGINES, ROLES_ON, TABLES_ON, Verb
from surehook.model.statements import Statement

# Statements that look at a hot table in all buckets, and why.
ACROSS_BUCKETS = {
    # A cap counts all of them.
    ("postgres", "orchestrator", "create_jobs"): {"webhook_delivery_jobs"},
    ("mysql", "orchestrator", "open_jobs"): {"webhook_delivery_jobs"},
    # An id is missing only if no bucket has it.
    ("mysql", "router", "late_events"): {"events"},
    ("mysql", "router", "events_elsewhere"): {"events"},
    ("mysql", "router", "probe_mysql"): {"events"},
    ("mysql", "router", "probe_mariadb"): {"events"},
}
# What may be read although no statement of a login's file does, and why.
SCHEMA = {"schema_migrations", "schema_settings"}  # asked by the program itself when it starts
READ_WITHOUT_NEED: dict[str, set[str]] = {
    login: SCHEMA for login in BY_LOGIN if login != "outbox"
} | {
    # For questions that are yet to be asked: everything but secrets.
    "observer": {*TABLES_ON["postgres"], *TABLES_ON["mysql"]} - {"subscription_secrets"},
}
# Answers to people's questions look wherever the answer is.
NOT_HOT = ("observer", "subscriptions", "verifier", "keys", "key_checks", "registry")
OTHER_CLOCKS = {
    *("now", "clock_timestamp", "statement_timestamp", "currenttimestamp", "currentdate"),
    *("currenttime", "sysdate", "localtime", "localtimestamp", "curdate", "curtime", "utc_date"),
}


def all_statements() -> list[tuple[str, str, Statement]]:
    found = []
    for engine in ENGINES:
        for login in sorted(BY_LOGIN):
            for statement in statements.load(engine, login).values():
                found.append((engine, login, statement))
    return found


every_statement = pytest.mark.parametrize(
    ("engine", "login", "statement"),
    all_statements(),
    ids=[f"{engine}-{login}-{one.name}" for engine, login, one in all_statements()],
)


@cache
def found_in(engine: str, statement: Statement) -> Found:
    return analyse(parsable(engine, statement), engine)


@every_statement
def test_a_statement_needs_no_more_than_its_role_has(
    engine: str, login: str, statement: Statement
) -> None:
    role = next(role for role in ROLES_ON[engine] if role.login == login)
    missing = found_in(engine, statement).missing(role)
    assert not missing, f"{role.name} lacks {', '.join(missing)}"


def needs_of(login: str) -> set[tuple[str, str, str]]:
    """(verb, table, column) of everything that a login's statements need, on either engine: a
    grant is declared once for both."""
    return {
        (need.verb, need.table, need.column)
        for engine, name, statement in all_statements()
        if name == login
        for need in found_in(engine, statement).needs
    }


@pytest.mark.parametrize("login", list(BY_LOGIN))
def test_every_right_of_a_role_is_needed_by_a_statement(login: str) -> None:
    needed = needs_of(login)
    for engine in ENGINES:
        role = next(role for role in ROLES_ON[engine] if role.login == login)
        granted = {
            (grant.verb, grant.table, column) for grant in role.grants for column in grant.columns
        }
        spare = {
            right
            for right in granted - needed
            if right[0] is not Verb.SELECT or right[1] not in READ_WITHOUT_NEED.get(login, ())
        }
        assert not spare, f"no statement of {role.name} needs {sorted(spare)}"
        forgotten = {
            table
            for where, name, statement in all_statements()
            if (where, name) == (engine, login)
            for table in found_in(engine, statement).forgotten
        }
        assert set(role.may_delete) == forgotten


@every_statement
def test_no_statement_keeps_other_inserts_out_of_a_table(
    engine: str, login: str, statement: Statement
) -> None:
    """MySQL locks a table with numbered rows for an INSERT … SELECT, whose rows it cannot count
    beforehand, under innodb_autoinc_lock_mode = 1 (MariaDB's default)."""
    if engine == "mysql" and re.search(r"\b(INSERT|REPLACE|LOAD)\b", statement.text):
        form = re.match(r"INSERT INTO (\w+)\s+\([^)]*\)\s+(\w+)", statement.text)
        assert form is not None, "an insert of another form"
        assert form[2] == "VALUES" or "id" not in TABLES_ON["mysql"][form[1]]


@every_statement
def test_a_statement_writes_one_table_at_most(
    engine: str, login: str, statement: Statement
) -> None:
    assert len(found_in(engine, statement).written) <= 1


@every_statement
def test_a_hot_statement_stays_in_one_bucket(engine: str, login: str, statement: Statement) -> None:
    if login in NOT_HOT:
        return
    across = ACROSS_BUCKETS.get((engine, login, statement.name), set())
    assert found_in(engine, statement).unbucketed == across


@every_statement
def test_a_statement_knows_one_clock_only(engine: str, login: str, statement: Statement) -> None:
    """Only surehook_now(), on MySQL UTC_TIMESTAMP(6), can be shifted by a test, used as an index
    condition, and is the same moment whatever the session's time zone."""
    assert not found_in(engine, statement).functions & OTHER_CLOCKS
    assert "UTC_TIMESTAMP()" not in statement.text  # without its microseconds


@every_statement
def test_a_statement_that_returns_nothing_has_nothing_to_return(
    engine: str, login: str, statement: Statement
) -> None:
    if statement.returns == "none":
        assert "RETURNING" not in statement.text


@every_statement
def test_a_row_has_the_columns_of_the_record_that_the_statement_names(
    engine: str, login: str, statement: Statement
) -> None:
    """In order and by name: a record is never filled by a place that was counted."""
    if statement.record is not None:
        assert outputs(parsable(engine, statement), engine) == list(statement.columns)


# ── The check itself ──────────────────────────────────────────────────────────────────────────

JOBS, SAGAS = "webhook_delivery_jobs", "webhook_delivery_sagas"


@pytest.mark.parametrize(
    ("login", "text", "lacks"),
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
    login: str, text: str, lacks: tuple[Verb, str, str]
) -> None:
    assert str(Need(*lacks)) in analyse(text).missing(BY_LOGIN[login])


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("DELETE FROM events WHERE bucket = ?", "DELETE events"),
        ("SELECT payload FROM events FORCE INDEX (PRIMARY)", "SELECT events(payload)"),
        ("SELECT id FROM events LIMIT 1 FOR UPDATE", "UPDATE events((any))"),
        (
            f"UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS given "
            f"STRAIGHT_JOIN {SAGAS} s ON s.id = given.id SET s.status = 'Completed'",
            f"UPDATE {SAGAS}(status)",
        ),
    ],
)
def test_a_statement_of_mysql_that_needs_more_is_caught(text: str, lacks: str) -> None:
    router = next(role for role in ROLES_ON["mysql"] if role.login == "router")
    assert lacks in analyse(text, "mysql").missing(router)


def test_only_its_own_notes_the_router_may_delete() -> None:
    text = "DELETE FROM router_gaps WHERE bucket = ?"
    for role in ROLES_ON["mysql"]:
        assert ("DELETE router_gaps" in analyse(text, "mysql").missing(role)) == (
            role.login != "router"
        )


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
