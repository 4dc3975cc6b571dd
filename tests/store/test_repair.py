"""What was lost or changed since migrating: doctor finds it, migrate puts it back."""

from __future__ import annotations

from typing import Any

import pytest

from support import Configure, dialects
from support.connections import engine_connection
from support.rows import a_subscription, an_event
from support.servers import Server, connected, private_server
from surehook.errors import Declined
from surehook.model.roles import ROLES
from surehook.process.doctor import examine
from surehook.store import engine_of
from surehook.store.findings import Level
from surehook.store.logins import DatabaseAccess

UNSAFE = {"database.allow_unsafe": True}
# Each is a way to damage a database behind surehook's back, and what doctor must name.
BOTH = {
    "an index": ("DROP INDEX {idx_event_created}", "idx_event_created"),
    "a grant": ("REVOKE INSERT (payload) ON events FROM {outbox_writer}", "INSERT events.payload"),
    "a grant too many": ("GRANT DELETE ON events TO {router_worker}", "may also DELETE events"),
}
POSTGRES = {
    "a changed index": (
        "DROP INDEX idx_job_open; CREATE INDEX idx_job_open ON webhook_delivery_jobs (id)",
        "idx_job_open on webhook_delivery_jobs was changed",
    ),
    "a unique key": (
        "ALTER TABLE webhook_delivery_jobs DROP CONSTRAINT uniq_job_saga_attempt",
        "uniq_job_saga_attempt on webhook_delivery_jobs is missing",
    ),
    "a check": (
        "ALTER TABLE subscriptions DROP CONSTRAINT subscriptions_callback_url_check",
        "subscriptions_callback_url_check",
    ),
    "a disabled trigger": ("ALTER TABLE events DISABLE TRIGGER ALL", "append_only on events"),
    "a trigger's condition": (
        "CREATE OR REPLACE TRIGGER guard_moves BEFORE UPDATE ON webhook_delivery_sagas "
        "FOR EACH ROW WHEN (false) EXECUTE FUNCTION surehook_refuse_move('x')",
        "guard_moves on webhook_delivery_sagas was changed",
    ),
    "a function's body": (
        "CREATE OR REPLACE FUNCTION surehook_refuse_change() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN RETURN NEW; END'",
        "function surehook_refuse_change() was changed",
    ),
    "the way into the schema": (
        "DO $$ BEGIN EXECUTE format('REVOKE USAGE ON SCHEMA %I FROM router_worker, PUBLIC', "
        "current_schema()); END $$",
        "USAGE the schema",
    ),
    "the right to call": (
        "REVOKE EXECUTE ON FUNCTION surehook_bucket(bigint) FROM PUBLIC",
        "lacks EXECUTE surehook_bucket",
    ),
}
MYSQL = {
    "a changed key": (
        "ALTER TABLE webhook_delivery_jobs DROP KEY idx_job_open, ADD KEY idx_job_open (id)",
        "idx_job_open on webhook_delivery_jobs was changed",
    ),
    "a unique key": (
        "ALTER TABLE webhook_delivery_jobs DROP KEY uniq_job_saga_attempt",
        "uniq_job_saga_attempt on webhook_delivery_jobs is missing",
    ),
    "a foreign key": (
        "ALTER TABLE subscription_secrets DROP FOREIGN KEY fk_secret_subscription",
        "fk_secret_subscription on subscription_secrets is missing",
    ),
    "a trigger's body": (
        "DROP TRIGGER guard_saga_moves; CREATE TRIGGER guard_saga_moves BEFORE UPDATE "
        "ON webhook_delivery_sagas FOR EACH ROW SET NEW.updated_at = NEW.updated_at",
        "guard_saga_moves on webhook_delivery_sagas was changed",
    ),
    "a function's body": (
        "DROP FUNCTION surehook_bucket; CREATE FUNCTION surehook_bucket(hash BIGINT) "
        "RETURNS SMALLINT DETERMINISTIC NO SQL SQL SECURITY INVOKER RETURN 0 * hash",
        "function surehook_bucket was changed",
    ),
    "the right to call": (
        "REVOKE EXECUTE ON FUNCTION surehook_bucket FROM {outbox_writer}",
        "lacks EXECUTE surehook_bucket",
    ),
    "a converted table": ("ALTER TABLE api_keys ENGINE = MyISAM", "api_keys (MyISAM"),
    "a table in another collation": (
        "ALTER TABLE api_keys CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "api_keys (InnoDB, utf8mb4_general_ci",
    ),
}
# On the table whose checks have no name of ours; MySQL counts them, MariaDB keeps them by column.
CHECKS = {
    "postgres": {
        "changed": "ALTER TABLE subscriptions DROP CONSTRAINT subscriptions_max_attempts_check, "
        "ADD CONSTRAINT subscriptions_max_attempts_check CHECK (max_attempts >= 5)",
        "gone": "ALTER TABLE subscriptions DROP CONSTRAINT subscriptions_max_attempts_check",
    },
    "mariadb": {
        "changed": "ALTER TABLE subscriptions MODIFY max_attempts INT CHECK (max_attempts >= 5)",
        "gone": "ALTER TABLE subscriptions MODIFY max_attempts INT",
    },
    "mysql": {
        "changed": "ALTER TABLE subscriptions DROP CHECK subscriptions_chk_3, "
        "ADD CHECK (max_attempts >= 5)",
        "gone": "ALTER TABLE subscriptions DROP CHECK subscriptions_chk_3",
    },
}
# A changed type may have cost values already: it is named, and left to whoever changed it.
COLUMNS = {
    "postgres": {
        "version on subscriptions": "ALTER TABLE subscriptions ALTER version TYPE integer",
        "description on subscriptions": "ALTER TABLE subscriptions ALTER description SET NOT NULL",
    },
    "mysql": {
        "read_until_id on router_cursor": "ALTER TABLE router_cursor "
        "MODIFY read_until_id INT NOT NULL DEFAULT 0",
        "description on subscriptions": "ALTER TABLE subscriptions MODIFY description LONGTEXT "
        "NOT NULL",
        "external_id on events": "ALTER TABLE events MODIFY external_id VARCHAR(255) "
        "COLLATE utf8mb4_general_ci",
    },
}


async def damage(owner: Any, statements: str) -> None:
    """In the engine's own words, with {role} and {index} as it names them."""
    on_mysql = dialects.speaks_mysql(owner)
    names = {
        role.name: f"'{role.name}'@'localhost', '{role.name}'@'%'" if on_mysql else role.name
        for role in ROLES
    }
    index = "idx_event_created"
    names[index] = f"{index} ON events" if on_mysql else index
    text = statements.format(**names) if "{" in statements else statements
    if on_mysql:
        for statement in text.split("; "):
            await owner.native(statement)
    else:
        await owner.execute(text)


async def migrate(access: DatabaseAccess) -> list[str]:
    said: list[str] = []
    async with engine_connection(access.url) as connection:
        await engine_of(access.url).migrate(
            connection, role_secret=access.role_secret, report=said.append
        )
    return said


async def complaints(configure: Configure, access: DatabaseAccess) -> list[str]:
    found = await examine(configure(UNSAFE), access)
    return [one.says for one in found if one.level is Level.WRONG]


async def found_and_repaired(
    owner: Any, configure: Configure, access: DatabaseAccess, statements: str, named: str
) -> None:
    await damage(owner, statements)
    said = await complaints(configure, access)
    assert any(named in one for one in said), said
    assert await migrate(access) != []
    assert await complaints(configure, access) == []
    assert await migrate(access) == []


@pytest.mark.parametrize("what", BOTH)
async def test_what_is_lost_is_found_by_doctor_and_put_back_by_migrate(
    what: str, owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    await found_and_repaired(owner, configure, access, *BOTH[what])


@pytest.mark.only_on("postgres", reason="in its own words")
@pytest.mark.parametrize("what", POSTGRES)
async def test_on_postgresql_every_kind_of_damage_is_found_and_repaired(
    what: str, owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    await found_and_repaired(owner, configure, access, *POSTGRES[what])


@pytest.mark.only_on("mysql", reason="in its own words")
@pytest.mark.parametrize("what", MYSQL)
async def test_on_mysql_every_kind_of_damage_is_found_and_repaired(
    what: str, owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    await found_and_repaired(owner, configure, access, *MYSQL[what])


@pytest.mark.parametrize("how", ["changed", "gone"])
async def test_a_check_is_found_and_repaired_whatever_the_server_calls_it(
    how: str, server: Server, owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    family = server.kind if server.engine == "mysql" else "postgres"
    await found_and_repaired(owner, configure, access, CHECKS[family][how], "max_attempts")
    await a_subscription(owner, max_attempts=1)
    with pytest.raises(dialects.Error):
        await owner.execute("UPDATE subscriptions SET max_attempts = 0")


async def test_two_checks_in_the_place_of_one_become_that_one(
    owner: Any, configure: Configure, access: DatabaseAccess, on_mysql: bool
) -> None:
    if on_mysql:
        statement = (
            "ALTER TABLE subscription_eligibility ADD CHECK (eligible_from > eligible_until)"
        )
        await found_and_repaired(owner, configure, access, statement, "eligible_from")


async def test_a_changed_column_is_named_and_left_alone(
    server: Server, owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    for named, statement in COLUMNS[server.engine].items():
        await damage(owner, statement)
        said = await complaints(configure, access)
        assert any(f"column {named} was changed" in one for one in said), said
        with pytest.raises(Declined, match=f"column {named} was changed"):
            await migrate(access)


async def faults(access: DatabaseAccess) -> list[str]:
    """What doctor's line about the schema's parts is made of."""
    if access.url.startswith("mysql"):
        from surehook.store.mysql import migrate as mysql

        async with engine_connection(access.url) as connection:
            return [
                str(one)
                for one in await mysql.damage(connection, await mysql.read_state(connection))
            ]
    from surehook.store.postgres import migrate as postgres

    async with engine_connection(access.url) as connection:
        state = await postgres.read_state(connection)
        return [str(one) for one in await postgres.damage(connection, state) or []]


@pytest.mark.parametrize("buckets", [1, 4])
async def test_every_trigger_that_is_dropped_comes_back(
    buckets: int, owner: Any, access: DatabaseAccess
) -> None:
    triggers = await dialects.triggers(owner)
    assert len(triggers) >= 5
    for drop in triggers.values():
        await damage(owner, drop)
    missing = await faults(access)
    assert len(missing) == len(triggers) and all("is missing" in one for one in missing)
    await migrate(access)
    assert await faults(access) == []
    assert await dialects.triggers(owner) == triggers


async def test_a_role_that_is_shut_out_gets_in_again(server: Server, configure: Configure) -> None:
    """On a server of its own: everybody's roles are the server's."""
    with private_server(server.kind) as private:
        access = DatabaseAccess(private.url, private.role_secret)
        await migrate(access)
        assert await complaints(configure, access) == []
        async with connected(private.url) as owner:
            await damage(owner, dialects.shut_out(owner, "lease_cleaner"))
        assert any("does not let us in" in one for one in await complaints(configure, access))
        assert await migrate(access) != []
        assert await complaints(configure, access) == []
        assert await migrate(access) == []


async def test_rows_that_a_lost_key_forbids_are_named_in_one_line(
    owner: Any, access: DatabaseAccess, on_mysql: bool
) -> None:
    kind = "KEY" if on_mysql else "CONSTRAINT"
    await damage(owner, f"ALTER TABLE events DROP {kind} uniq_event_external_id")
    for _ in range(2):
        await an_event(owner, external_id="twice")
    with pytest.raises(Declined, match=r"uniq_event_external_id .*cannot be put back") as refused:
        await migrate(access)
    assert "Correct the rows" in refused.value.advice


async def test_a_table_that_is_gone_is_left_to_a_backup(owner: Any, access: DatabaseAccess) -> None:
    await owner.execute("DROP TABLE dead_letter_cursor")
    with pytest.raises(Declined, match="table dead_letter_cursor is missing") as refused:
        await migrate(access)
    assert "Restore a backup" in refused.value.advice
