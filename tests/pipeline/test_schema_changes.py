"""Migrations change tables while components work on them: nobody has to be restarted for that."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from support import Configure, OpenStore
from support.pipeline import FakeSender, broken_invariants, facts, running
from support.rows import a_subscription, an_event
from support.servers import connected
from support.waiting import until, until_row
from surehook.store.logins import DatabaseAccess

COMPLETED = "SELECT count(*) FROM webhook_delivery_sagas WHERE status = 'Completed'"
# What migrations do; each one makes what the server has prepared for the table void.
CHANGES = [
    f"/* native */ ALTER TABLE {table} ADD COLUMN later SMALLINT NOT NULL DEFAULT 7"
    for table in ("events", "subscriptions", "webhook_delivery_sagas", "webhook_delivery_jobs")
]
CHANGES += ["/* native */ CREATE INDEX later ON webhook_delivery_jobs (later)"]


async def test_components_go_on_while_a_migration_changes_the_tables_they_work_on(
    owner: Any, access: DatabaseAccess, configure: Configure, open_store: OpenStore
) -> None:
    await a_subscription(owner)
    published, enough = 0, False

    async def publish() -> None:
        nonlocal published
        async with connected(access.url) as application:
            while not enough:
                await an_event(application)
                published += 1

    async def more() -> None:
        goal = published + 5
        await until(lambda: published >= goal)

    sender = FakeSender()
    with facts() as reported:
        async with running(configure(), access, sender=sender):
            publishing = asyncio.create_task(publish())
            for change in CHANGES:
                await more()
                await owner.execute(change)
            await more()
            enough = True
            await publishing
            await until_row(owner, COMPLETED, wanted=published)
    wrong = [fact for fact in reported if fact[0] in ("component.failed", "database.lost")]
    assert wrong == []
    sent = Counter(dict(request.headers)["webhook-id"] for request in sender.requests)
    assert len(sent) == published and set(sent.values()) == {1}
    assert await broken_invariants(open_store) == {}
