"""MySQL and MariaDB without a server: versions, scripts, URLs, passwords, values, generated SQL."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme

from surehook.errors import Bug, ConfigError, Declined
from surehook.model import roles, states
from surehook.store.logins import Login
from surehook.store.migrations import generated_sql, migrations
from surehook.store.mysql import migrate, passwords
from surehook.store.mysql.script import replaceable, statements
from surehook.store.mysql.server import Server
from surehook.store.mysql.urls import target
from surehook.store.mysql.values import CONVERSIONS, Ranges, Rows, Table, literal
from tools import generate

# ── Which server it is ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "shown", "collation"),
    [
        ("8.0.46-0ubuntu0.22.04.5", "MySQL 8.0.46", "utf8mb4_0900_bin"),
        ("8.0.22", "MySQL 8.0.22", "utf8mb4_0900_bin"),
        ("9.7.0-commercial", "MySQL 9.7.0", "utf8mb4_0900_bin"),
        ("5.5.5-10.11.19-MariaDB-0+deb12u1", "MariaDB 10.11.19", "utf8mb4_nopad_bin"),
        ("10.6.22-MariaDB-0ubuntu0.22.04.1", "MariaDB 10.6.22", "utf8mb4_nopad_bin"),
        ("11.8.2-MariaDB-ubu2404-log", "MariaDB 11.8.2", "utf8mb4_nopad_bin"),
    ],
)
def test_a_server_that_is_new_enough_is_known_by_its_words(
    words: str, shown: str, collation: str
) -> None:
    server = Server(words)
    server.refuse_if_unfit()
    assert str(server) == shown and server.collation == collation


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("5.7.44-log", "MySQL 5.7.44 is too old; surehook needs 8.0.22 or newer"),
        ("8.0.21", "MySQL 8.0.21 is too old"),
        ("5.5.5-10.5.26-MariaDB", "MariaDB 10.5.26 is too old; surehook needs 10.6.0 or newer"),
        ("8.0.11-TiDB-v8.5.1", "The server says it is TiDB, not MySQL or MariaDB"),
        ("5.7.25-TiDB-v7.1.0", "The server says it is TiDB"),
        ("8.0.30-Vitess", "The server says it is Vitess"),
        ("nonsense", "is too old"),
    ],
)
def test_a_server_that_is_too_old_or_another_product_is_refused(words: str, says: str) -> None:
    assert not Server(words).is_fit
    with pytest.raises(Declined, match=says):
        Server(words).refuse_if_unfit()


# ── Scripts ───────────────────────────────────────────────────────────────────────────────────


def test_a_script_is_split_at_its_delimiter_and_only_there() -> None:
    script = """
-- a comment; with a semicolon
CREATE TABLE a (
    b INT, -- trailing; comment
    c VARCHAR(9) DEFAULT 'x;y' -- last
);
DELIMITER //
CREATE TRIGGER t BEFORE UPDATE ON a FOR EACH ROW
BEGIN
    SET NEW.b = 1;
    -- inside;
    SET NEW.c = '--';
END//
DELIMITER ;
DROP TABLE a; -- gone
"""
    first, second, third = statements(script)
    assert first.startswith("CREATE TABLE a (") and first.endswith(")")
    assert second.endswith("SET NEW.c = '--';\nEND") and "inside" not in second
    assert third == "DROP TABLE a"


def test_what_cannot_be_replaced_is_dropped_first() -> None:
    assert replaceable("CREATE OR REPLACE TRIGGER a BEFORE UPDATE ON b") == [
        "DROP TRIGGER IF EXISTS a",
        "CREATE TRIGGER a BEFORE UPDATE ON b",
    ]
    assert replaceable("CREATE TABLE a (b INT)") == ["CREATE TABLE a (b INT)"]


def test_every_statement_of_a_migration_may_be_run_again() -> None:
    """ALTER TABLE is atomic: a column that is there already is error 1060, which means that the
    whole statement was done before; a key that is dropped and made again is so each time."""
    repeatable = re.compile(
        r"CREATE TABLE IF NOT EXISTS|CREATE OR REPLACE (TRIGGER|FUNCTION)"
        r"|ALTER TABLE \w+\s+ADD COLUMN"
        r"|ALTER TABLE \w+\s+DROP KEY (?P<key>\w+),\s+ADD (UNIQUE )?KEY (?P=key) [^,]*(, \w+)*\)$"
        r"|INSERT INTO (?P<table>\w+) .*\nSELECT .*\nWHERE NOT EXISTS \(SELECT 1 FROM (?P=table) "
    )
    assert 1060 in migrate._DONE_BEFORE
    scripts = [*(one.text for one in migrations("mysql")), generated_sql("mysql", "guard")]
    for script in scripts:
        for statement in statements(script):
            assert repeatable.match(statement), statement[:60]


# ── Generated ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("statuses", [states.SagaStatus, states.JobStatus])
def test_the_enum_columns_have_the_order_that_the_guard_counts_on(
    statuses: type[states.SagaStatus] | type[states.JobStatus],
) -> None:
    tables = migrations("mysql")[0].text
    values = ", ".join(f"'{status}'" for status in statuses)
    assert f"ENUM ({values})" in tables


@pytest.mark.parametrize(
    ("table", "statuses", "moves"),
    [
        ("webhook_delivery_sagas", list(states.SagaStatus), states.SAGA_MOVES),
        ("webhook_delivery_jobs", list(states.JobStatus), states.JOB_MOVES),
    ],
)
def test_the_number_of_the_guard_has_a_bit_for_each_permitted_move_and_no_other(
    table: str, statuses: list[str], moves: tuple[states.Move[states.SagaStatus], ...]
) -> None:
    trigger = generate.mysql_guard().partition(f"ON {table} FOR EACH ROW")[2].partition("//")[0]
    (bits,) = {int(number) for number in re.findall(r"IF \(\((\d+) >> ", trigger)}
    words = ["", *statuses]  # the first is what a wrong one becomes without strict mode
    width = len(words)
    permitted = {(move.source, move.target) for move in moves}
    for old in range(1, width):
        for new in range(width):
            allowed = bool(bits >> (old - 1) * width + new & 1)
            assert allowed == ((words[old], words[new]) in permitted)
    assert bits < 1 << len(statuses) * width


def test_only_notes_may_be_deleted_and_only_by_whose_they_are() -> None:
    for engine, gaps in (("mysql", ("router_gaps", "router_held")), ("postgres", ("router_held",))):
        forgetful = {
            role.name: role.may_delete for role in roles.ROLES_ON[engine] if role.may_delete
        }
        assert forgetful == {"router_worker": gaps, "process_registrar": ("processes",)}
    assert generate.mysql_grants().count("DELETE") == 3


def test_both_engines_have_the_same_roles_and_most_of_the_same_columns() -> None:
    here, there = roles.ROLES_ON["postgres"], roles.ROLES_ON["mysql"]
    assert [(r.name, r.login, r.never) for r in here] == [(r.name, r.login, r.never) for r in there]
    only_here = set(roles.TABLES_ON["postgres"]["events"]) - set(roles.TABLES_ON["mysql"]["events"])
    assert only_here == {"xid"}


# ── URLs ──────────────────────────────────────────────────────────────────────────────────────


def test_a_url_is_taken_apart_and_decoded() -> None:
    found = target(Login("x", "mysql://us%40er:p%2Fa%3As%25s@db.example:3307/da%20ta"))
    assert (found.user, found.password, found.host) == ("us@er", "p/a:s%s", "db.example")
    assert (found.port, found.database, found.unix_socket) == (3307, "da ta", None)
    assert "p/a" not in repr(found)


def test_the_login_of_a_component_goes_before_that_of_the_url() -> None:
    login = Login("router", "mariadb://root:secret@localhost/d", "router_worker", "other")
    found = target(login)
    assert (found.user, found.password, found.port) == ("router_worker", "other", 3306)


def test_a_socket_is_named_by_a_parameter() -> None:
    found = target(Login("x", "mysql://a@localhost/d?unix_socket=/run/my%20sql.sock"))
    assert found.unix_socket == "/run/my sql.sock" and found.encryption == (None,)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://host/d", "must name a user and a database"),
        ("mysql://u:hunter2@host/", "must name a user and a database"),
        ("mysql://u:hunter2@host:port/d", "it is not a URL"),
        ("mysql://u:hunter2@host/d?sslmode=require", "it has a parameter sslmode"),
        ("mysql://u:hunter2@host/d?ssl-mode=SURE", "ssl-mode is one of DISABLED, PREFERRED"),
        ("mysql://u:hunter2@host/d?ssl-ca=/no/such.pem", "a certificate cannot be read"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_one_line_without_its_password(
    url: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        target(Login("x", url))
    assert "hunter2" not in str(refused.value)


def test_encryption_is_as_strict_as_the_mode_says(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(ca)

    def contexts(query: str, host: str = "db.example") -> list[object]:
        found = target(Login("x", f"mysql://u@{host}/d?{query}")).encryption
        return [one and (one.verify_mode, one.check_hostname) for one in found]

    anyone, signed = (ssl.CERT_NONE, False), (ssl.CERT_REQUIRED, False)
    identified = (ssl.CERT_REQUIRED, True)
    assert contexts("") == [anyone, None]  # where the server can
    assert contexts("", host="localhost") == contexts("ssl-mode=disabled") == [None]
    assert contexts("ssl-mode=REQUIRED") == [anyone]
    assert contexts(f"ssl-mode=VERIFY_CA&ssl-ca={ca}") == [signed]
    assert contexts(f"ssl-ca={ca}") == contexts("ssl-mode=VERIFY_IDENTITY") == [identified]


# ── Passwords ─────────────────────────────────────────────────────────────────────────────────


def test_the_hashes_are_those_that_the_servers_make() -> None:
    """MariaDB: SELECT PASSWORD('password'). MySQL's is `openssl passwd -5` with a longer salt."""
    assert passwords.native("password") == "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"
    expected = "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"
    assert passwords._sha256_crypt(b"Hello world!", b"saltstring") == expected


def test_a_hash_differs_every_time_and_has_a_salt_that_needs_no_quoting() -> None:
    first, second = (passwords.caching_sha2("secret") for _ in range(2))
    assert first != second
    assert re.fullmatch(r"\$A\$005\$[./0-9A-Za-z]{63}", first)


# ── Values ────────────────────────────────────────────────────────────────────────────────────


def quoted(text: str) -> str:
    return f"<{text}>"


def test_values_become_literals() -> None:
    zone = timezone(timedelta(hours=8))
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, zone)
    for value, expected in [
        (None, "NULL"),
        (True, "1"),
        (5, "5"),
        ("it's", "<it's>"),
        (states.JobStatus.LEASED, "<Leased>"),
        (b"\x00\xff", "X'00ff'"),
        (moment, "'2026-01-01 19:04:05.000006'"),
        ([1, 2], "(1,2)"),
        ([], "(NULL)"),
        (Rows([(1, "a"), (2, None)]), "(1,<a>),(2,NULL)"),
        (Table([(1, moment)]), '<[[1, "2026-01-01 19:04:05.000006"]]>'),
        (Ranges([(1, 5), (9, 9)]), "(id BETWEEN 1 AND 5 OR id BETWEEN 9 AND 9)"),
    ]:
        assert literal(value, quoted) == expected


def test_a_time_without_a_zone_never_reaches_the_database() -> None:
    with pytest.raises(Bug, match="without a zone"):
        literal(datetime(2026, 1, 1), quoted)
    with pytest.raises(Bug, match="no MySQL literal for a object"):
        literal(object(), quoted)


def test_times_come_back_aware_and_booleans_as_booleans() -> None:
    from asyncmy.constants import FIELD_TYPE

    decoded = CONVERSIONS[FIELD_TYPE.DATETIME]("2026-01-02 03:04:05.000006")
    assert decoded == datetime(2026, 1, 2, 3, 4, 5, 6, UTC) and decoded.tzinfo is UTC
    assert [CONVERSIONS[FIELD_TYPE.TINY](text) for text in ("0", "1", "2")] == [False, True, True]
    decimal = CONVERSIONS[FIELD_TYPE.NEWDECIMAL]
    assert decimal("12") == 12 and isinstance(decimal("12"), int) and decimal("1.5") == 1.5
