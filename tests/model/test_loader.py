"""The loader of named SQL statements."""

from __future__ import annotations

import pytest

from surehook.errors import Bug
from surehook.model import statements
from surehook.model.roles import BY_LOGIN
from surehook.model.statements import parse

TWO = """\
-- A file begins with a sentence.

-- name: first :many
-- Why it is shaped so; :not_a_parameter here.
SELECT a::text, b FROM t WHERE a = :wanted AND b > :least AND c = :wanted;

-- name: second :none
SELECT pg_notify(:channel, '12:30');
"""


def test_statements_are_found_by_name_with_their_parameters_in_order() -> None:
    found = parse(TWO, "two.sql")
    assert list(found) == ["first", "second"]
    assert found["first"].parameters == ("wanted", "least")
    assert found["first"].returns == "many" and found["second"].returns == "none"


def test_a_parameter_used_twice_gets_one_number_and_a_cast_none() -> None:
    assert parse(TWO, "two.sql")["first"].numbered() == (
        "SELECT a::text, b FROM t WHERE a = $1 AND b > $2 AND c = $1"
    )


def test_a_time_inside_a_literal_is_no_parameter() -> None:
    assert parse(TWO, "two.sql")["second"].numbered() == "SELECT pg_notify($1, '12:30')"


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(Bug, match="defines first twice"):
        parse(TWO + TWO, "two.sql")


def test_sql_without_a_name_is_refused() -> None:
    with pytest.raises(Bug, match="before its first"):
        parse("SELECT 1;\n" + TWO, "two.sql")


@pytest.mark.parametrize(
    "header", ["-- name: first", "-- name: first :some", "-- name first :many", "--name: x :one"]
)
def test_a_misspelt_header_is_refused(header: str) -> None:
    with pytest.raises(Bug, match="is not `-- name"):
        parse(TWO + f"\n{header}\nSELECT 1;\n", "two.sql")


def test_a_statement_without_text_is_refused() -> None:
    with pytest.raises(Bug, match="nothing is empty"):
        parse("-- name: nothing :none\n-- only a comment\n", "two.sql")


def test_two_statements_under_one_name_are_refused() -> None:
    with pytest.raises(Bug, match="both holds more than one statement"):
        parse("-- name: both :none\nSELECT 1;\nSELECT 2;\n", "two.sql")


def test_a_login_gets_only_its_own_statements() -> None:
    assert "lease_jobs" in statements.load("postgres", "worker")
    assert "lease_jobs" not in statements.load("postgres", "router")


def test_every_sql_file_is_named_after_a_login() -> None:
    from importlib.resources import files

    names = {
        file.name.removesuffix(".sql")
        for file in files("surehook.store").joinpath("postgres").iterdir()
        if file.name.endswith(".sql")
    }
    assert names and names <= set(BY_LOGIN)


def test_braces_stand_for_what_follows_from_a_declaration() -> None:
    text = (
        "-- name: list_subscriptions :many Subscription\n"
        "SELECT {Subscription s}, {Verification v AS verification} FROM subscriptions s, v;\n"
        "-- name: change :none\nUPDATE subscriptions SET {Subscription:changes} WHERE id = :id;\n"
    )
    found = parse(text, "one.sql")
    listed, change = found["list_subscriptions"], found["change"]
    assert listed.text.startswith("SELECT s.id, s.tenant, s.event_type, ")
    assert "v.id AS verification_id" in listed.text
    assert listed.columns[0] == "id" and listed.columns[-1] == "verification_verified_at"
    assert "tenant" not in change.parameters and "custom_headers" not in change.parameters
    assert (
        "active = CASE WHEN 'active' = ANY (string_to_array(:changed, ',')) THEN :active"
        in change.text
    )
    changed = parse(text, "one.sql", "mysql")["change"].text
    assert "active = CASE WHEN FIND_IN_SET('active', :changed) THEN :active" in changed


def test_a_declaration_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Bug, match="no declaration Subscripton"):
        parse("-- name: one :one Subscripton\nSELECT 1;\n", "one.sql")
