"""What is generated says what its source says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surehook.model import roles, states
from tools import generate

MOVES: tuple[states.Move[Any], ...] = (*states.SAGA_MOVES, *states.JOB_MOVES)
ENDS: tuple[str, ...] = (*states.SAGA_TERMINAL, *states.JOB_TERMINAL)


def test_every_generated_file_is_fresh() -> None:
    assert generate.main(["--check"]) == 0


def test_a_stale_file_is_named_and_only_a_run_without_check_repairs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "docs" / "page.md"
    monkeypatch.setattr(generate, "generated", lambda: {page: "new"})
    assert generate.main(["--check"]) == 1 and not page.exists()
    assert "stale: page.md; run `make generate`" in capsys.readouterr().err
    assert generate.main([]) == 0 and page.read_text() == "new"
    assert generate.main(["--check"]) == 0


def test_the_guard_names_every_permitted_move() -> None:
    guard = generate.postgres_guard()
    for move in MOVES:
        assert f"OLD.status = '{move.source}' AND NEW.status = '{move.target}'" in guard


def test_the_grants_name_no_verb_that_is_in_no_role() -> None:
    grants = generate.postgres_grants()
    assert "TRUNCATE" not in grants
    assert grants.count("DELETE") == sum(len(role.may_delete) for role in roles.ROLES)
    assert grants.count("GRANT SELECT") == sum(
        bool(role.columns(roles.Verb.SELECT, table))
        for role in roles.ROLES
        for table in roles.TABLES
    )


def test_the_diagram_shows_every_move_and_every_end() -> None:
    page = generate.states_page()
    for move in MOVES:
        assert f"    {move.source} --> {move.target}: {move.name}\n" in page
    for status in ENDS:
        assert f"    {status} --> [*]\n" in page


def test_the_page_of_roles_has_a_row_per_role() -> None:
    page = generate.roles_page()
    for role in roles.ROLES:
        assert f"| {role.login} | `{role.name}` |" in page


def test_a_grant_on_a_column_that_does_not_exist_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="events has no column colour"):
        roles.Grant(roles.Verb.SELECT, "events", ("id", "colour"))


def test_no_role_reads_a_secret_but_those_who_must() -> None:
    readers = {
        (role.login, table)
        for role in roles.ROLES
        for table, columns in roles.SECRET_COLUMNS.items()
        if role.columns(roles.Verb.SELECT, table) & set(columns)
    }
    assert readers == {
        ("verifier", "subscriptions"),
        ("verifier", "subscription_secrets"),
        ("verifier", "subscription_verifications"),
        ("worker", "subscriptions"),
        ("worker", "subscription_secrets"),
        ("key_checks", "api_keys"),
    }
