"""Hints: at once in the process, coalesced to others, and never needed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support import Configure, OpenStore
from support.pipeline import UNFINISHED, running
from support.rows import a_subscription, an_event
from support.waiting import until, until_row
from surehook.errors import DatabaseUnreachable
from surehook.store.hints import Channel, Hints
from surehook.store.logins import DatabaseAccess


class Outward:
    """Takes messages as NOTIFY would."""

    def __init__(self, failures: int = 0) -> None:
        self.sent: list[tuple[str, str]] = []
        self.failures = failures

    async def __call__(self, channel: str, message: str) -> None:
        if self.failures:
            self.failures -= 1
            raise DatabaseUnreachable("gone")
        assert len(message.encode()) < 8000
        self.sent.append((channel, message))


async def test_who_hears_in_the_same_process_is_told_at_once_and_alone() -> None:
    hints, outward = Hints(), Outward()
    hints.send_outward(outward)
    heard: list[tuple[int, list[int]]] = []
    hints.on(Channel.RESULTS, lambda bucket, ids: heard.append((bucket, ids)))
    hints.hint(Channel.RESULTS, 3, (n for n in (5, 6)))
    assert heard == [(3, [5, 6])]
    hints.hint(Channel.JOBS, 3)
    await until(lambda: outward.sent)
    assert outward.sent == [("surehook_jobs", "3:")]
    await hints.close()


async def test_a_burst_becomes_one_message_per_channel_and_bucket() -> None:
    hints, outward = Hints(), Outward()
    hints.send_outward(outward)
    for number in range(300):
        hints.hint(Channel.RESULTS, number % 2, [number])
        hints.hint(Channel.JOBS, 0)
    await until(lambda: len(outward.sent) >= 3)
    await hints.close()
    assert sorted(channel for channel, _ in outward.sent) == [
        "surehook_jobs",
        "surehook_results",
        "surehook_results",
    ]


async def test_more_ids_than_one_message_holds_are_told_in_several() -> None:
    hints, outward = Hints(), Outward()
    hints.send_outward(outward)
    largest = 2**63 - 1
    wanted = set(range(largest - 2000, largest))
    hints.hint(Channel.RESULTS, 0, wanted)
    told: set[int] = set()
    other = Hints()
    other.on(Channel.RESULTS, lambda _, ids: told.update(ids))

    def all_told() -> bool:
        for channel, message in outward.sent:
            other.hear(Channel(channel), message)
        return told == wanted

    await until(all_told)
    await hints.close()


async def test_what_is_not_ours_is_ignored() -> None:
    hints = Hints()
    heard: list[int] = []
    hints.on(Channel.RESULTS, lambda bucket, ids: heard.extend([bucket, *ids]))
    for message in ("", "x", "0:a", "1:2,,3x", ":", "é:1"):
        hints.hear(Channel.RESULTS, message)
    assert heard == []
    hints.hear(Channel.RESULTS, "1:2,3")
    assert heard == [1, 2, 3]


async def test_a_database_that_is_gone_costs_only_those_hints() -> None:
    hints, outward = Hints(), Outward(failures=1)
    hints.send_outward(outward)
    hints.hint(Channel.RESULTS, 0, [1])
    await until(lambda: outward.failures == 0)
    await asyncio.sleep(0)

    def told_again() -> bool:
        hints.hint(Channel.RESULTS, 0, [2])
        return bool(outward.sent)

    await until(told_again)
    assert outward.sent[-1] == ("surehook_results", "0:2")
    await hints.close()


@pytest.mark.only_on("postgres", reason="MySQL wakes nobody; see the last test")
async def test_a_hint_crosses_processes_after_the_commit(open_store: OpenStore) -> None:
    teller, hearer = await open_store("worker"), await open_store("orchestrator")
    hints = Hints()
    hints.send_outward(teller.notify)
    heard: list[str] = []
    async with hearer.listening(Channel.RESULTS, heard.append):
        hints.hint(Channel.RESULTS, 2, [7, 8])
        await until(lambda: heard)
    assert heard == ["2:7,8"]
    await hints.close()


async def test_components_apart_deliver_without_any_hint(
    owner: Any, configure: Configure, access: DatabaseAccess
) -> None:
    await a_subscription(owner)
    config = configure()
    async with (
        running(config, access, ["router"]) as one,
        running(config, access, ["orchestrator"]) as two,
        running(config, access, ["worker"]) as three,
    ):
        for process in (one, two, three):
            process.hints.send_outward(None)
        for _ in range(20):
            await an_event(owner)
        await until_row(owner, "SELECT count(*) FROM webhook_delivery_sagas", wanted=20)
        await until_row(owner, UNFINISHED, wanted=0)
