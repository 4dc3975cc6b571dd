"""`surehook key …`: on the database itself, before any API runs."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from support.commands import Command, Done, run_command
from support.servers import private_directory
from surehook.actions.keys import hash_of
from surehook.embedded.server import EmbeddedServer
from surehook.store.logins import DatabaseAccess


class OnDatabase:
    """key("list"): on the test's own database."""

    def __init__(self, access: DatabaseAccess) -> None:
        self.env = {
            "SUREHOOK_DATABASE_URL": access.url,
            "SUREHOOK_ROLE_SECRET": access.role_secret or "",
        }

    async def __call__(self, *arguments: str) -> Done:
        return await asyncio.to_thread(run_command, ("key", *arguments), self.env)


@pytest.fixture
def key(access: DatabaseAccess) -> OnDatabase:
    return OnDatabase(access)


async def test_a_key_is_created_listed_and_revoked(key: OnDatabase, owner: Any) -> None:
    made = await key(
        "create", "--name", "shop", "--scope", "read", "--scope", "ingest", "--tenant", "acme"
    )
    facts = made.facts()
    assert made.code == 0 and facts["scopes"] == "ingest, read" and facts["tenant"] == "acme"
    assert "not shown again" in made.err
    stored = await owner.fetchval("SELECT key_hash FROM api_keys")
    assert stored == hash_of(facts["key"])

    second = (await key("create", "--name", "all", "--scope", "admin", "--json")).json()
    assert second["key"].startswith("shk_") and second["tenant"] is None
    listed = await key("list", "--json")
    assert [(one["id"], one["name"]) for one in listed.lines()] == [(2, "all"), (1, "shop")]
    shown = await key("list")
    assert "shk_" not in listed.out + shown.out
    assert shown.rows()[0][:4] == ["2", "all", "admin", "all"]
    assert [one["id"] for one in (await key("list", "--tenant", "acme", "--json")).lines()] == [1]

    revoked = await key("revoke", "1")
    assert (revoked.code, revoked.out) == (0, "key 1 (shop) is revoked\n")
    assert (await key("revoke", "1", "--json")).json()["revoked_at"] is not None
    unknown = await key("revoke", "9")
    assert (unknown.code, unknown.err) == (1, "surehook: There is no key 9.\n")


async def test_wrong_use_of_key_is_exit_2(key: OnDatabase, owner: Any) -> None:
    for arguments in (
        ["create", "--name", "shop"],
        ["create", "--scope", "ingest"],
        ["create", "--name", "shop", "--scope", "everything"],
        ["create", "--name", "", "--scope", "ingest"],
        ["create", "--name", "shop", "--scope", "ingest", "--tenant", "x" * 101],
        ["revoke", "first"],
    ):
        done = await key(*arguments)
        assert (done.code, done.out) == (2, ""), arguments
    assert await owner.fetchval("SELECT count(*) FROM api_keys") == 0


async def test_a_new_key_opens_the_api_to_its_scope_only(command: Command, key: OnDatabase) -> None:
    secret = (await key("create", "--name", "shop", "--scope", "ingest", "--json")).json()["key"]
    env = {"SUREHOOK_API_KEY": secret}
    published = await command("publish", "order.paid", "{}", env=env)
    assert (published.code, published.err) == (0, "")  # whether anybody wants it is not its to see
    refused = await command("event", "list", env=env)
    assert refused.code == 1 and "surehook: 403 " in refused.err
    assert "The key is from SUREHOOK_API_KEY." in refused.err and secret not in refused.err


def test_a_first_key_is_made_on_an_embedded_database_that_does_not_run() -> None:
    with private_directory() as directory:
        env = {"SUREHOOK_DATA_DIR": str(directory / "data"), "HOME": os.environ.get("HOME", "/")}
        create = ("key", "create", "--name", "first", "--scope", "admin", "--json")
        assert run_command(create, env).code == 3 and not (directory / "data").exists()
        assert run_command(("migrate",), env).code == 0
        assert run_command(create, env).json()["id"] == 1
        assert EmbeddedServer(directory / "data").holder is None
