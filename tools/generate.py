"""Writes what must agree with the program: states, roles, settings, error codes, commands, routes.

Reads   those modules
Writes  store/*/generated/*.sql, config.default.toml, docs/states.md, docs/roles.md,
        docs/reference/*.md, client/generated/*.py, deploy/grafana/boards/surehook.json
        (`--check` writes nothing and fails if one is stale)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from surehook.cli.config import default_file
from surehook.model import roles, states
from surehook.model.rules import DEPTH_MAX
from tools import mysql_sql
from tools.board import board
from tools.client import client_files
from tools.pages import NOTE, api_page, components_page, errors_page, metrics_page, page_note
from tools.reference import cli_page

PACKAGE = Path(__file__).parents[1] / "src" / "surehook"

# Columns that say which thing a row is: no move touches them.
SAGA_IDENTITY = ("id", "event_id", "subscription_id", "created_at", "requeued_from", "bucket")
JOB_IDENTITY = (
    "id",
    "saga_id",
    "event_id",
    "subscription_id",
    "attempt_at",
    "created_at",
    "bucket",
)


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def mysql_statements() -> Iterator[tuple[str, str]]:
    """What is not written by hand for MySQL, login by login."""
    for login in roles.BY_LOGIN:
        if text := mysql_sql.generated(login):
            yield login, f"-- {NOTE.format(source=f'store/postgres/{login}.sql')}\n\n{text}"


# ── PostgreSQL ────────────────────────────────────────────────────────────────────────────────


def postgres_enums() -> str:
    """The enum types; a value that an older schema lacks is added."""
    parts = [f"-- {NOTE.format(source='states.py')}"]
    enums: tuple[tuple[str, type[StrEnum]], ...] = (
        ("saga_status", states.SagaStatus),
        ("job_status", states.JobStatus),
    )
    for name, values in enums:
        parts.append(
            f"DO $$ BEGIN\n    CREATE TYPE {name} AS ENUM ({_quoted(values)});\n"
            "EXCEPTION WHEN duplicate_object THEN NULL;\nEND $$;"
        )
        parts.extend(f"ALTER TYPE {name} ADD VALUE IF NOT EXISTS '{value}';" for value in values)
    return "\n\n".join(parts) + "\n"


def _postgres_guard(table: str, moves: Iterable[states.Move[states.S]], fixed: str) -> str:
    permitted = "\n        OR ".join(
        f"OLD.status = '{move.source}' AND NEW.status = '{move.target}'" for move in moves
    )
    return (
        f"CREATE OR REPLACE TRIGGER guard_moves BEFORE UPDATE ON {table}\n"
        f"    FOR EACH ROW WHEN (NOT (\n        {permitted}\n    )\n    OR {fixed})\n"
        # The name is given: in a partition the trigger sees only the partition's.
        f"    EXECUTE FUNCTION surehook_refuse_move('{table}');"
    )


def _postgres_identity(columns: Iterable[str]) -> str:
    new = ", ".join(f"NEW.{column}" for column in columns)
    return f"({new})\n        IS DISTINCT FROM ({new.replace('NEW.', 'OLD.')})"


def _postgres_new_jobs() -> str:
    active = _quoted(states.JOB_ACTIVE)
    living = _quoted(status for status in states.SagaStatus if status not in states.SAGA_TERMINAL)
    return f"""\
-- A job is for the attempt that its saga has open, and for no other. One look at all the rows of a
-- statement: a trigger per row costs several times as much. Which saga it is, is asked by its key
-- alone; the rest cannot become a condition of another index behind an outer join.
CREATE OR REPLACE FUNCTION surehook_refuse_job() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
    wrong bigint;
BEGIN
    SELECT j.saga_id INTO wrong
    FROM new_jobs j
    LEFT JOIN webhook_delivery_sagas s ON s.id = j.saga_id AND s.bucket = j.bucket
    WHERE j.status IN ({active})
      AND (s.status IN ({living})
           AND s.next_attempt_at = j.attempt_at AND s.event_id = j.event_id
           AND s.subscription_id = j.subscription_id) IS NOT TRUE
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SH003',
            MESSAGE = format('a job for saga %s is refused: it is not for an open attempt of it',
                             wrong),
            HINT = 'it has the attempt, event and subscription of a saga that is not finished';
    END IF;
    RETURN NULL;
END
$$;
"""


def postgres_guard() -> str:
    """Triggers that refuse, for everyone, what the state machines do not permit.

    The test stands in the WHEN clause: there it costs nothing measurable.
    """
    runs = states.SagaStatus.IN_PROGRESS
    saga_fixed = (
        f"{_postgres_identity(SAGA_IDENTITY)}\n"
        "    -- next_attempt_at names the attempt: it never goes back, and starting keeps it\n"
        "    OR NEW.next_attempt_at < OLD.next_attempt_at\n"
        f"    OR NEW.status = '{runs}' AND NEW.next_attempt_at <> OLD.next_attempt_at"
    )
    return f"""-- {NOTE.format(source="states.py")}

CREATE OR REPLACE FUNCTION surehook_refuse_move() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'SH001',
        MESSAGE = format('%s %s: %s to %s is not a permitted move', TG_ARGV[0], OLD.id,
                         OLD.status, NEW.status),
        HINT = 'docs/states.md lists the permitted moves; none changes which row or attempt it is';
END
$$;

CREATE OR REPLACE FUNCTION surehook_refuse_change() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'SH002',
        MESSAGE = format('%s is append-only: %s is refused', TG_TABLE_NAME, TG_OP);
END
$$;

{_postgres_guard("webhook_delivery_sagas", states.SAGA_MOVES, saga_fixed)}

{_postgres_guard("webhook_delivery_jobs", states.JOB_MOVES, _postgres_identity(JOB_IDENTITY))}

{_postgres_new_jobs()}
-- Statement triggers see TRUNCATE too, but each partition needs its own.
DO $$
DECLARE
    jobs regclass;
    append_only regclass;
BEGIN
    FOR jobs IN
        SELECT 'webhook_delivery_jobs'::regclass
        UNION ALL
        SELECT inhrelid FROM pg_inherits WHERE inhparent = 'webhook_delivery_jobs'::regclass
    LOOP
        EXECUTE format('CREATE OR REPLACE TRIGGER guard_new AFTER INSERT ON %s '
            'REFERENCING NEW TABLE AS new_jobs '
            'FOR EACH STATEMENT EXECUTE FUNCTION surehook_refuse_job()', jobs);
    END LOOP;
    FOR append_only IN
        SELECT oid FROM pg_class
        WHERE oid IN ('events'::regclass, 'dead_letters'::regclass,
            'subscription_eligibility'::regclass)
        UNION ALL
        SELECT inhrelid FROM pg_inherits
        WHERE inhparent IN ('events'::regclass, 'dead_letters'::regclass)
    LOOP
        EXECUTE format('CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE '
            'ON %s FOR EACH STATEMENT EXECUTE FUNCTION surehook_refuse_change()', append_only);
    END LOOP;
END
$$;
{_payload_guard(_POSTGRES_PAYLOADS)}"""


# A payload is JSON by its type; here it must pass what every border checks, however it is inserted.
# What comes through the API has been looked at. Nearly every payload is done with by counting.
_POSTGRES_PAYLOADS = r"""
CREATE OR REPLACE FUNCTION surehook_refuse_payload() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given text := NEW.payload;
    why text;
BEGIN
    IF strpos(given, '\u') > 0 AND regexp_replace(
        replace(given, '\\', ''),
        '\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}', '', 'g'
    ) ~ '\\u[dD][89a-fA-F]' THEN
        why := 'it contains an unpaired surrogate';
    ELSIF length(given) - length(translate(given, '[{', '')) > <depth> THEN
        -- Only the brackets outside of strings; then the innermost level away, again and again.
        given := translate(regexp_replace(
            regexp_replace(given, '"([^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g'), '{}', '[]');
        FOR level IN 1 .. <depth> LOOP
            given := replace(given, '[]', '');
        END LOOP;
        IF given <> '' THEN
            why := 'it is nested deeper than <depth> levels';
        END IF;
    END IF;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'SH004', MESSAGE = 'the payload is refused: ' || why;
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER guard_payload BEFORE INSERT ON events
    FOR EACH ROW WHEN (current_user <> '<ingest>')
    EXECUTE FUNCTION surehook_refuse_payload();
"""

# The servers have their own ideas of JSON. MariaDB takes `1.`, `1e` and `-` for numbers and any
# letter after a backslash, but no more than 31 levels; MySQL is strict but takes 100. What comes
# through the API has been looked at: for that, JSON_VALID is enough. The pattern passes over right
# strings and finds the quotes of wrong ones, and signs and points that no digit follows.
_MYSQL_PAYLOADS = r"""CREATE OR REPLACE TRIGGER guard_payload BEFORE INSERT ON events FOR EACH ROW
BEGIN
    -- MySQL takes no number that a double cannot hold: without strings and numbers it must be JSON.
    IF NOT JSON_VALID(NEW.payload) AND NOT JSON_VALID(REGEXP_REPLACE(REGEXP_REPLACE(NEW.payload,
        '"(?:[^"\\\\\\x00-\\x1f]++|\\\\(?:["\\\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}'
        '|[dD](?:[0-7][0-9a-fA-F]{2}|[89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}))))*+"',
        '""'), '(?<![-+.0-9a-zA-Z])-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][-+]?[0-9]+)?'
        '(?![-+.0-9a-zA-Z])', '0'))
    THEN
        SIGNAL SQLSTATE 'SH004' SET MYSQL_ERRNO = 3140,
            MESSAGE_TEXT = 'the payload is refused: it is not JSON';
    END IF;
    IF LEFT(USER(), <length>) <> '<ingest>@' THEN
        IF VERSION() LIKE '%MariaDB%' AND NEW.payload REGEXP
            '"(?:[^"\\\\]++|\\\\["\\\\/bfnrtu])*+"(*SKIP)(*F)|"'
            '|[-+.](?![0-9])|[0-9][eE](?![-+0-9])'
        THEN
            SIGNAL SQLSTATE 'SH004' SET MYSQL_ERRNO = 3140,
                MESSAGE_TEXT = 'the payload is refused: it is not JSON';
        END IF;
        IF CHAR_LENGTH(NEW.payload) - CHAR_LENGTH(
            REPLACE(REPLACE(NEW.payload, '[', ''), '{', '')) > <depth>
            -- MySQL lets no pattern look at a large text for long, but counts levels well enough.
            AND (VERSION() LIKE '%MariaDB%' OR NOT JSON_VALID(NEW.payload)
                OR JSON_DEPTH(NEW.payload) > <depth>)
        THEN
            BEGIN
                -- Only the brackets outside of strings; then the innermost level away, repeatedly.
                DECLARE brackets LONGTEXT DEFAULT REPLACE(REPLACE(REGEXP_REPLACE(REGEXP_REPLACE(
                    NEW.payload, '"(?:[^"\\\\]++|\\\\.)*+"', ''), '[^\\]\\[{}]', ''),
                    '{', '['), '}', ']');
                DECLARE level INT DEFAULT 0;
                WHILE level < <depth> DO
                    SET brackets = REPLACE(brackets, '[]', ''), level = level + 1;
                END WHILE;
                IF brackets <> '' THEN
                    SIGNAL SQLSTATE 'SH004' SET MYSQL_ERRNO = 3140, MESSAGE_TEXT =
                        'the payload is refused: it is nested deeper than <depth> levels';
                END IF;
            END;
        END IF;
    END IF;
END//"""


def _payload_guard(text: str) -> str:
    ingest = next(role.name for role in roles.ROLES if role.login == "ingest")
    given = {"depth": DEPTH_MAX, "ingest": ingest, "length": len(ingest) + 1}
    for name, value in given.items():
        text = text.replace(f"<{name}>", str(value))
    return text


def postgres_grants() -> str:
    """Exactly the rights of roles.py: everything is taken away first, in one transaction."""
    names = ", ".join(role.name for role in roles.ROLES)
    parts = [
        f"-- {NOTE.format(source='roles.py')}",
        f"REVOKE ALL ON {', '.join(roles.TABLES)}\n    FROM PUBLIC, {names};",
        "DO $$ BEGIN\n"
        "    EXECUTE format('GRANT USAGE ON SCHEMA %I TO "
        f"{names}', current_schema());\nEND $$;",
    ]
    for role in roles.ROLES:
        lines = [f"-- {role.login}: {role.purpose}"]
        for table in roles.TABLES:
            for verb in roles.Verb:
                granted = role.columns(verb, table)
                if not granted:
                    continue
                columns = ", ".join(column for column in roles.TABLES[table] if column in granted)
                lines.append(f"GRANT {verb} ({columns})\n    ON {table} TO {role.name};")
        lines += [f"GRANT DELETE ON {table} TO {role.name};" for table in role.may_delete]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


# ── MySQL and MariaDB ─────────────────────────────────────────────────────────────────────────
#
# Scripts as their own clients read them; migrate.py splits them at the delimiters.


def _move_bits(statuses: type[StrEnum], moves: Iterable[states.Move[states.S]]) -> int:
    """One bit per pair of statuses, numbered (old - 1) * (count + 1) + new; set = permitted.

    An enum column counts from 1 in the order of its values, which is the order of the class; 0 is
    what a wrong word becomes in a session without strict mode.
    """
    place = {status: position for position, status in enumerate(statuses)}
    width = len(place) + 1
    return sum(1 << place[move.source] * width + place[move.target] + 1 for move in moves)


def _mysql_known_writers(table: str, identity: Iterable[str]) -> str:
    """A condition for logins that cannot change an identity: the grants forbid it."""
    writers = []
    for role in roles.ROLES_ON["mysql"]:
        columns = role.columns(roles.Verb.UPDATE, table)
        assert not columns & set(identity), f"{role.name} may change what {table}'s rows are"
        if columns:
            writers.append(f"LEFT(USER(), {len(role.name) + 1}) <> '{role.name}@'")
    return " AND ".join(writers)


def _mysql_guard(
    name: str,
    table: str,
    bits: str,
    identity: tuple[str, ...],
    often: str = "",
    more: Iterable[str] = (),
) -> str:
    """Every column that a trigger names costs time, for each row: what no component's own login
    could have changed is looked at only when it is another login. A comparison with NULL is NULL,
    which must not pass: without strict mode the column takes it and makes a default of it."""
    fixed = (f"(NEW.{c} = OLD.{c}) IS NOT TRUE" for c in identity)
    wrong = "\n        OR ".join([bits, *fixed, *more])
    outer = "\n    OR ".join(filter(None, [bits, often, _mysql_known_writers(table, identity)]))
    return (
        f"CREATE OR REPLACE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW\n"
        f"IF {outer}\nTHEN\n"
        f"    IF {wrong}\n    THEN\n"
        f"        SET @surehook_refused = CONCAT('{table} ', OLD.id, ': ', OLD.status,\n"
        "            ' to ', IFNULL(NEW.status, 'NULL'), ' is not a permitted move');\n"
        "        SIGNAL SQLSTATE 'SH001' SET MESSAGE_TEXT = @surehook_refused;\n"
        "    END IF;\n"
        "END IF//"
    )


def _mysql_moves(statuses: type[StrEnum], moves: Iterable[states.Move[states.S]]) -> str:
    """A condition that holds for every pair of statuses that is not a permitted move."""
    width = len(statuses) + 1
    number = f"OLD.status * {width} + NEW.status - {width}"
    return f"(({_move_bits(statuses, moves)} >> ({number})) & 1) IS NOT TRUE"


def _mysql_new_jobs() -> str:
    """A job is for the attempt that its saga has open, and for no other."""
    active = _quoted(states.JOB_ACTIVE)
    living = _quoted(status for status in states.SagaStatus if status not in states.SAGA_TERMINAL)
    return (
        "CREATE OR REPLACE TRIGGER guard_new_jobs BEFORE INSERT ON webhook_delivery_jobs "
        "FOR EACH ROW\n"
        f"IF NEW.status IN ({active}) AND NOT EXISTS (\n"
        "    SELECT 1 FROM webhook_delivery_sagas s FORCE INDEX (PRIMARY)\n"
        "    WHERE s.id = NEW.saga_id AND s.bucket = NEW.bucket\n"
        f"      AND s.status IN ({living})\n"
        "      AND s.next_attempt_at = NEW.attempt_at AND s.event_id = NEW.event_id\n"
        "      AND s.subscription_id = NEW.subscription_id)\nTHEN\n"
        "    SET @surehook_refused = CONCAT('a job for saga ', NEW.saga_id,\n"
        "        ' is refused: it is not for an open attempt of it');\n"
        "    SIGNAL SQLSTATE 'SH003' SET MESSAGE_TEXT = @surehook_refused;\n"
        "END IF//"
    )


def _mysql_append_only(table: str, verb: str) -> str:
    return (
        f"CREATE OR REPLACE TRIGGER {table}_refuse_{verb.lower()} "
        f"BEFORE {verb} ON {table} FOR EACH ROW\n"
        "SIGNAL SQLSTATE 'SH002'\n"
        f"    SET MESSAGE_TEXT = '{table} is append-only: {verb} is refused'//"
    )


# Triggers that write columns themselves; a guard looks at what the statement wrote, before them.
_MYSQL_RULES = {"subscriptions": "subscription_rules_update"}


def _mysql_upserts(table: str) -> Iterator[str]:
    """A condition per login that may both insert into a table and update it: its upsert (INSERT …
    ON DUPLICATE KEY UPDATE) has written a column that it may not update."""
    columns = roles.TABLES_ON["mysql"][table]
    for role in roles.ROLES_ON["mysql"]:
        updates = role.columns(roles.Verb.UPDATE, table)
        if updates and role.columns(roles.Verb.INSERT, table):
            kept = (f"NEW.{c} <=> OLD.{c}" for c in columns if c not in updates)
            yield (
                f"LEFT(USER(), {len(role.name) + 1}) = '{role.name}@' AND NOT (\n        "
                + "\n        AND ".join(kept)
                + "\n    )"
            )


def mysql_rights_guards() -> Iterator[str]:
    """MariaDB asks for no right on the columns that an upsert updates, only on those that it
    inserts. So a trigger refuses what the login may not update, in the server's own words. Logins
    are known by name; for any other name it helps that no column of a unique key can be both
    inserted and updated by the same role, which leaves the upsert by a forced number."""
    for table in roles.TABLES_ON["mysql"]:
        logins = list(_mysql_upserts(table))
        if not logins:
            continue
        rules = _MYSQL_RULES.get(table)
        before = f" PRECEDES {rules}" if rules else ""
        wrong = "\n    OR ".join(["@@insert_id <> 0", *logins])
        yield (
            f"CREATE OR REPLACE TRIGGER guard_rights_{table} BEFORE UPDATE ON {table} "
            f"FOR EACH ROW{before}\n"
            f"IF {wrong}\nTHEN\n"
            "    SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1143,\n"
            f"        MESSAGE_TEXT = 'UPDATE of a column of {table} denied to this login';\n"
            "END IF//"
        )


def mysql_guard() -> str:
    """Triggers that refuse, for everyone, what the state machines do not permit, and to logins
    what the server's own checks overlook.

    One integer holds all permitted pairs: a bit test costs a third of comparing words.
    """
    runs = states.SagaStatus.IN_PROGRESS
    triggers = [
        _mysql_guard(
            "guard_saga_moves",
            "webhook_delivery_sagas",
            _mysql_moves(states.SagaStatus, states.SAGA_MOVES),
            SAGA_IDENTITY,
            # It names the attempt: it never goes back, and starting keeps it.
            often="(NEW.next_attempt_at = OLD.next_attempt_at) IS NOT TRUE",
            more=[
                "(NEW.next_attempt_at >= OLD.next_attempt_at) IS NOT TRUE",
                f"NEW.next_attempt_at <> OLD.next_attempt_at AND NEW.status = '{runs}'",
            ],
        ),
        _mysql_guard(
            "guard_job_moves",
            "webhook_delivery_jobs",
            _mysql_moves(states.JobStatus, states.JOB_MOVES),
            JOB_IDENTITY,
        ),
        _mysql_new_jobs(),
        _payload_guard(_MYSQL_PAYLOADS),
        *(
            _mysql_append_only(table, verb)
            for table in ("events", "dead_letters", "subscription_eligibility")
            for verb in ("UPDATE", "DELETE")
        ),
        *mysql_rights_guards(),
    ]
    return "\n\n".join(
        [
            f"-- {NOTE.format(source='states.py and roles.py')}",
            "DELIMITER //",
            *triggers,
            "DELIMITER ;\n",
        ]
    )


def mysql_grants() -> str:
    """The rights of roles.py; migrate.py takes away whatever else a role has.

    Every role is two accounts: where an anonymous account exists for localhost, it would stand
    before one that is known for all hosts only.
    """
    parts = [f"-- {NOTE.format(source='roles.py')}"]
    for role in roles.ROLES_ON["mysql"]:
        accounts = f"'{role.name}'@'localhost', '{role.name}'@'%'"
        lines = [f"-- {role.login}: {role.purpose}"]
        for table, columns in roles.TABLES_ON["mysql"].items():
            for verb in roles.Verb:
                granted = role.columns(verb, table)
                if granted:
                    shown = ", ".join(column for column in columns if column in granted)
                    lines.append(f"GRANT {verb} ({shown})\n    ON {table} TO {accounts};")
        lines += [f"GRANT DELETE ON {table} TO {accounts};" for table in role.may_delete]
        if role.login == "outbox":
            lines.append(f"GRANT EXECUTE ON FUNCTION surehook_bucket TO {accounts};")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────


def _machine(title: str, moves: Iterable[states.Move[states.S]], terminal: Iterable[str]) -> str:
    arrows = "\n".join(f"    {m.source} --> {m.target}: {m.name}" for m in moves)
    ends = "\n".join(f"    {status} --> [*]" for status in terminal)
    rows = "\n".join(
        f"| `{m.name}` | {m.source} → {m.target} | {', '.join(m.by)} | {m.when} |" for m in moves
    )
    return (
        f"## {title}\n\n```mermaid\nstateDiagram-v2\n    [*] --> Pending\n{arrows}\n{ends}\n```\n\n"
        f"| move | from → to | made by | when |\n|---|---|---|---|\n{rows}\n"
    )


def states_page() -> str:
    return (
        f"<!-- {NOTE.format(source='states.py')} -->\n# States and moves\n\n"
        "Every other change is refused by a trigger, for the owner of the tables too. A terminal "
        "row never changes again in any column. A new job is refused unless it is for the attempt "
        "that its saga has open (`next_attempt_at`), and a unique index over active jobs keeps "
        "them to one per saga.\n\n"
        + _machine("Saga: one delivery", states.SAGA_MOVES, states.SAGA_TERMINAL)
        + "\n"
        + _machine("Job: one attempt", states.JOB_MOVES, states.JOB_TERMINAL)
    )


def _cell(role: roles.Role, verb: roles.Verb) -> str:
    lines = []
    for table, all_columns in roles.TABLES.items():
        granted = role.columns(verb, table)
        if not granted:
            continue
        hidden = [column for column in all_columns if column not in granted]
        if not hidden:
            lines.append(f"**{table}**")
        elif len(hidden) <= 2 and len(granted) > 2:
            lines.append(f"**{table}** without {', '.join(hidden)}")
        else:
            shown = ", ".join(column for column in all_columns if column in granted)
            lines.append(f"**{table}** ({shown})")
    return "<br>".join(lines) or "—"


def _roles_elsewhere() -> Iterator[str]:
    """What roles may do on MySQL and MariaDB that they may not, or not by that name, here."""
    for here, there in zip(roles.ROLES_ON["postgres"], roles.ROLES_ON["mysql"], strict=True):
        if here.login == "observer":
            continue  # reads what there is to read
        words = []
        for verb in roles.Verb:
            for table, columns in roles.TABLES_ON["mysql"].items():
                more = there.columns(verb, table) - here.columns(verb, table)
                if more:
                    shown = ", ".join(column for column in columns if column in more)
                    words.append(f"{verb} {table} ({shown})")
        words += [f"DELETE {table}" for table in there.may_delete if table not in here.may_delete]
        if words:
            yield f"- `{there.name}`: {'; '.join(words)}"


def roles_page() -> str:
    rows = "\n".join(
        f"| {role.login} | `{role.name}` | {_cell(role, roles.Verb.SELECT)} "
        f"| {_cell(role, roles.Verb.INSERT)} | {_cell(role, roles.Verb.UPDATE)} | {role.never} |"
        for role in roles.ROLES
    )
    return (
        f"<!-- {NOTE.format(source='roles.py')} -->\n# Database roles\n\n"
        "Each login is its own role and can do only this. A component uses the login of its name; "
        "the API uses several. No role may DELETE or TRUNCATE anything, except that the "
        "router deletes its own notes (`router_held`; on MySQL and MariaDB `router_gaps` too), and "
        "`process_registrar` the rows of processes that are gone. `subscription_eligibility` is "
        "written by trigger alone.\n\n"
        "| login | role | reads | inserts | updates | never |\n|---|---|---|---|---|---|\n"
        f"{rows}\n\n"
        "## On MySQL and MariaDB\n\n"
        "The same, by column too, but for what only one engine has. The router's cursor is made "
        "of other columns there, and it keeps notes on ids that no transaction has committed yet. "
        "The columns `waiting`, `died_at` and `open_for` stand in for partial indexes. "
        "`outbox_writer` may also call `surehook_bucket`, which on PostgreSQL everybody may.\n\n"
        + "\n".join(_roles_elsewhere())
        + "\n\n"
        "What these servers do not check:\n\n"
        "- MariaDB asks for no right on the columns that `ON DUPLICATE KEY UPDATE` writes. Guard "
        "triggers refuse it to a role, and an upsert by a forced id (`SET insert_id`) to every "
        "login; no role may both insert and update a column of a unique key.\n"
        "- On MariaDB `HANDLER … READ` shows whole rows to a login that may read one column of a "
        "table (MySQL refuses it), and `JOIN … USING` compares a column that it may not read. No "
        "right or trigger closes this. What a role must never see at all is therefore in a table "
        "of which it may read nothing. Of what is hidden by column, these roles can read in plain "
        "text: payloads (`router_worker`; of dead letters `dead_letter_operator`), a "
        "verification's challenge and code (`observer`), excerpts of answers and failures' details "
        "(`saga_orchestrator`, `job_worker`, `lease_cleaner`, `dead_letter_operator`), callback "
        "URLs (`router_worker`, `saga_orchestrator`, `dead_letter_operator`), and settings, names, "
        "ids and times. Secrets and custom headers "
        "are sealed, API keys hashed.\n"
    )


def generated() -> dict[Path, str]:
    """Every generated file of the repository and what it must contain."""
    repository = PACKAGE.parent.parent
    reference = repository / "docs" / "reference"
    postgres, mysql = (PACKAGE / "store" / engine / "generated" for engine in roles.ENGINES)
    return {
        postgres / "enums.sql": postgres_enums(),
        postgres / "guard.sql": postgres_guard(),
        postgres / "grants.sql": postgres_grants(),
        mysql / "guard.sql": mysql_guard(),
        mysql / "grants.sql": mysql_grants(),
        **{mysql / f"{login}.sql": text for login, text in mysql_statements()},
        repository / "docs" / "states.md": states_page(),
        repository / "docs" / "roles.md": roles_page(),
        reference / "errors.md": errors_page(),
        reference / "api.md": api_page(),
        reference / "cli.md": page_note("the commands") + cli_page(),
        reference / "components.md": components_page(),
        reference / "metrics.md": metrics_page(),
        repository / "config.default.toml": default_file(),
        repository / "deploy" / "grafana" / "boards" / "surehook.json": board(),
        **client_files(),
    }


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    stale = {
        path: text
        for path, text in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        if check:
            print(f"stale: {path.name}; run `make generate`", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
