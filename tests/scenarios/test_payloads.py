"""Payloads arrive as they were handed in, byte for byte, also out of a dead letter."""

from __future__ import annotations

from typing import Any

import pytest

from support import Configure, OpenStore
from support.pipeline import DELIVERED, UNFINISHED, FakeSender, failed, running
from support.rows import a_subscription
from support.waiting import until_row
from surehook.actions.ingest import Ingest
from surehook.actions.requeue import Requeue
from surehook.delivery import Outcome, Request
from surehook.model.error_codes import ErrorCode
from surehook.model.records import NewEvent, StoredEvent
from surehook.model.resources.dead_letter import DeadLetterFilter
from surehook.store import store_of
from surehook.store.deadletters import DeadLetterStore
from surehook.store.hints import Hints
from surehook.store.ingest import IngestStore
from surehook.store.logins import DatabaseAccess

DEPTH = 30
PAYLOADS = {
    "spacing": '{ "b" :1 ,\r\n\t"a":[1.0,  2e3 ] }  ',
    "duplicate keys": '{"a":1,"a":2,"a":{"a":3}}',
    "escapes": r'"\u0000\ud83d\ude00\/\"\\\b\f\n\r\t"',
    "characters": '"“ünïcödé” 😀 \u2028 \uffff \' ` % %s %(name)s :name $1 ? -- /* ; "',
    "numbers": "[1e400,-0,0.10,123456789012345678901234567890]",
    "depth": "[" * DEPTH + "]" * DEPTH,
    "one byte": "1",
    "one MiB": '"' + "é" * (2**19 - 1) + '"',
}


def gone_at_first(heard: set[bytes]) -> FakeSender:
    """One endpoint takes everything; the other is gone, until a payload comes a second time."""

    def answer(request: Request) -> Outcome:
        if not request.url.endswith("/gone") or request.body in heard:
            return DELIVERED
        heard.add(request.body)
        return failed(ErrorCode.GONE, 410)

    return FakeSender(answer)


@pytest.mark.parametrize("buckets", [1, 4])
@pytest.mark.parametrize("keyed", [False, True], ids=["without keys", "with keys"])
async def test_every_payload_arrives_byte_for_byte(
    owner: Any,
    configure: Configure,
    access: DatabaseAccess,
    open_store: OpenStore,
    buckets: int,
    keyed: bool,
) -> None:
    wanted = {payload.encode() for payload in PAYLOADS.values()}
    await a_subscription(owner, callback_url="https://receiver.example/good")
    await a_subscription(owner, callback_url="https://receiver.example/gone")
    ingest = Ingest(store_of(IngestStore, await open_store("ingest")), Hints(), buckets)
    events = [
        NewEvent("order.paid", payload, external_id=f"{name} ü😀" if keyed else None)
        for name, payload in PAYLOADS.items()
    ]
    sender = gone_at_first(set())
    async with running(configure(), access, sender=sender) as process:
        answers = await ingest.publish_all(events)
        assert all(isinstance(answer, StoredEvent) for answer in answers), answers
        await until_row(owner, "SELECT count(*) FROM dead_letters", wanted=len(wanted))
        letters = store_of(DeadLetterStore, process.databases["deadletters"])
        requeue = Requeue(letters, process.hints, range(buckets))
        assert len(await requeue.matching(DeadLetterFilter(), 100)) == len(wanted)
        await until_row(owner, UNFINISHED, wanted=0)
    rows = await owner.fetch("SELECT payload FROM events")
    assert {row[0].encode() for row in rows} == wanted
    rows = await owner.fetch("SELECT payload_snapshot FROM dead_letters")
    assert {row[0].encode() for row in rows} == wanted
    assert len(sender.requests) == 3 * len(wanted)
    for url in ("good", "gone"):
        bodies = {request.body for request in sender.requests if request.url.endswith(url)}
        assert bodies == wanted
    if keyed:  # and a repetition is told from another content by those bytes
        again = await ingest.publish_all(events)
        assert all(isinstance(answer, StoredEvent) and answer.duplicate for answer in again)
