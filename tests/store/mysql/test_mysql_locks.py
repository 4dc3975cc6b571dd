"""No statement of ours keeps others out of a table, however long it takes.

An INSERT … SELECT does so on a table with numbered rows, until it ends, where
innodb_autoinc_lock_mode is 1 (MariaDB's default): its rows cannot be counted beforehand.
test_statements.py looks at the form of every statement; here one is stopped midway.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from support import OpenStore, dialects
from support.connections import connected
from support.rows import a_saga
from support.waiting import until
from surehook.model.records import SagaId
from surehook.model.states import SagaStatus
from surehook.store import store_of
from surehook.store.deadletters import DeadLetterStore

pytestmark = pytest.mark.only_on("mysql", reason="PostgreSQL numbers rows without a lock")

DEAD_LETTER = (
    "INSERT INTO dead_letters (saga_id, event_id, subscription_id, failed_at, payload_snapshot) "
    "VALUES ({saga_id}, 1, 1, UTC_TIMESTAMP(6), '{{}}')"
)
# In the server's report: innodb_trx is a copy that is not renewed while it is read.
WAITING = re.compile(
    r"^LOCK WAIT (?:(?!---TRANSACTION).)* thread id (\d+)", re.DOTALL | re.MULTILINE
)


async def test_a_dead_letter_is_written_while_many_others_are_being_written(
    owner: Any, open_store: OpenStore, database_url: str
) -> None:
    """One of the many is held up by someone's open transaction."""
    dead = [SagaId(await a_saga(owner, status=SagaStatus.DEAD_LETTERED)) for _ in range(3)]
    store = store_of(DeadLetterStore, await open_store("deadletters"))
    async with connected(database_url) as holder, connected(database_url) as other:
        await holder.native("START TRANSACTION")
        await holder.native(DEAD_LETTER.format(saga_id=dead[1]))
        writing = asyncio.create_task(store.write_dead_letters(0, dead[:2]))
        await until(lambda: _waits(owner, "deadletters"))
        await other.native("SET SESSION innodb_lock_wait_timeout = 1")
        await other.native(DEAD_LETTER.format(saga_id=dead[2]))
        await holder.native("ROLLBACK")
        written = await writing
    assert [letter.saga_id for letter in written] == dead[:2]


async def _waits(owner: Any, login: str) -> bool:
    report = (await owner.native("SHOW ENGINE INNODB STATUS"))[0][2]
    waiting = {int(number) for number in WAITING.findall(report)}
    return bool(waiting & set(await dialects.sessions(owner, login)))
