"""What the grants of MySQL and MariaDB have of their own; the matrix is in test_grants.py."""

from __future__ import annotations

from typing import Any

import pytest

from support.mysql_connection import NotAllowed, Refusal
from support.rows import a_job, a_subscription
from support.servers import Server, connected
from surehook.model.roles import ROLES_ON, TABLES_ON, Role, Verb
from surehook.store.logins import derived_password

pytestmark = pytest.mark.only_on("mysql", reason="its rights are read and refused in its own way")
ROLES = ROLES_ON["mysql"]
every_role = pytest.mark.parametrize("role", ROLES, ids=[role.name for role in ROLES])


def logged_in(server: Server, url: str, role: Role) -> Any:
    return connected(url, user=role.name, password=derived_password(server.role_secret, role.name))


def role_of(login: str) -> Role:
    return next(role for role in ROLES if role.login == login)


async def allowed(login: Any, statement: str) -> bool:
    """Whether the database lets this login try; what comes of it is another matter."""
    await login.native("START TRANSACTION")
    try:
        await login.native(statement)
    except NotAllowed:
        return False
    except Refusal:
        return True
    finally:
        await login.native("ROLLBACK")
    return True


async def test_a_password_is_stored_as_a_hash_only(owner: Any) -> None:
    names = ", ".join(f"'{role.name}'" for role in ROLES)
    rows = await owner.native(
        f"SELECT plugin, authentication_string FROM mysql.user WHERE user IN ({names})"
    )
    assert len(rows) == 2 * len(ROLES)
    for plugin, stored in rows:
        if owner.is_mariadb:
            assert plugin == "mysql_native_password" and stored.startswith("*")
        else:
            assert plugin == "caching_sha2_password" and stored.startswith("$A$005$")


@every_role
async def test_only_who_inserts_for_applications_may_ask_for_a_bucket(
    role: Role, server: Server, database_url: str
) -> None:
    async with logged_in(server, database_url, role) as login:
        may = await allowed(login, "SELECT surehook_bucket(7)")
    assert may == (role.login == "outbox")


# ── Some of it in earnest ─────────────────────────────────────────────────────────────────────


async def test_the_worker_locks_and_leases_a_job_but_cannot_give_it_to_another_saga(
    owner: Any, server: Server, database_url: str
) -> None:
    await a_job(owner)
    async with logged_in(server, database_url, role_of("worker")) as login:
        with pytest.raises(NotAllowed):
            await login.native("UPDATE webhook_delivery_jobs SET saga_id = 1")
        lock = "SELECT id FROM webhook_delivery_jobs FOR UPDATE SKIP LOCKED"
        assert len(await login.native(lock)) == 1
        await login.native("UPDATE webhook_delivery_jobs SET status = 'Leased'")
    assert await owner.fetchval("SELECT status FROM webhook_delivery_jobs") == "Leased"


async def test_a_locked_row_of_someone_else_is_passed_by_under_column_grants(
    owner: Any, server: Server, database_url: str
) -> None:
    await a_job(owner)
    lock = "SELECT id FROM webhook_delivery_jobs FOR UPDATE SKIP LOCKED"
    worker = role_of("worker")
    async with (
        logged_in(server, database_url, worker) as one,
        logged_in(server, database_url, worker) as other,
    ):
        await one.native("START TRANSACTION")
        assert len(await one.native(lock)) == 1
        assert len(await other.native(lock)) == 0
        await one.native("ROLLBACK")


async def test_the_api_cannot_write_what_the_swap_of_the_verifier_writes(
    owner: Any, server: Server, database_url: str
) -> None:
    """verified = 2 is how the trigger knows a login that may write the column."""
    await a_subscription(owner, pending_callback_url="https://next.example/")
    async with logged_in(server, database_url, role_of("subscriptions")) as login:
        for values in ("verified = 2", "verified = TRUE"):
            with pytest.raises(NotAllowed):
                await login.native(
                    "UPDATE subscriptions SET callback_url = pending_callback_url, "
                    f"pending_callback_url = NULL, {values}"
                )
    async with logged_in(server, database_url, role_of("verifier")) as login:
        await login.native(
            "UPDATE subscriptions SET callback_url = pending_callback_url, "
            "pending_callback_url = NULL, verified = 2"
        )
    rows = await owner.native("SELECT callback_url, verified + 0 FROM subscriptions")
    assert [tuple(row) for row in rows] == [("https://next.example/", 1)]


# ── What a role can read past its columns ─────────────────────────────────────────────────────

# As docs/roles.md says it: hidden columns that MariaDB's HANDLER shows nevertheless, and to whom.
OF_JOBS = {"saga_orchestrator", "job_worker", "lease_cleaner", "dead_letter_operator"}
SHOWN = {
    "payload": {"router_worker"},
    "payload_snapshot": {"dead_letter_operator"},
    "challenge": {"observer"},
    "code": {"observer"},
    "response_excerpt": OF_JOBS,
    "failure_detail": OF_JOBS,
    "callback_url": {"router_worker", "saga_orchestrator", "dead_letter_operator"},
}


@every_role
async def test_a_handler_shows_whole_rows_of_tables_that_a_role_may_read_in_part_on_mariadb_only(
    role: Role, server: Server, database_url: str, owner: Any
) -> None:
    """No right and no trigger closes it: this says how far it goes."""
    await a_job(owner)
    shown = set()
    async with logged_in(server, database_url, role) as login:
        for table, columns in TABLES_ON["mysql"].items():
            readable = role.columns(Verb.SELECT, table)
            if not readable:
                with pytest.raises(NotAllowed):
                    await login.native(f"HANDLER {table} OPEN AS whole")
                continue
            await login.native(f"HANDLER {table} OPEN AS whole")
            if server.kind == "mysql" and {*columns} - readable:
                with pytest.raises(NotAllowed):
                    await login.native("HANDLER whole READ FIRST")
            elif server.kind != "mysql":
                rows = await login.native("HANDLER whole READ FIRST")
                assert all(len(row) == len(columns) for row in rows), table
                shown |= {*columns} - readable
            await login.native("HANDLER whole CLOSE")
    if server.kind != "mysql":
        assert {one for one, roles in SHOWN.items() if role.name in roles} == shown & {*SHOWN}
