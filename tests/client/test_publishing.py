"""Publishing through whatever goes wrong: exactly one event is stored. Both clients, all faults."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from support.either import Either
from support.receiver import Answer, Receiver
from support.scripted_api import KEY, Fault, ScriptedApi
from support.waiting import PATIENCE
from surehook.client import (
    AsyncClient,
    Client,
    Conflict,
    NewEvent,
    NotUnderstood,
    RateLimited,
    Retry,
    ServiceUnavailable,
    ServiceUnreachable,
)

QUICK = Retry(pause_first=0.001, pause_max=0.01)
OFTEN = Retry(tries_max=50, pause_first=0.001, pause_max=0.01)
LATE = (Fault.SLOW_AFTER, Fault.DRIP_AFTER)
ONCE = Retry(tries_max=1)


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi() as api:
        yield api


@pytest.fixture(params=[Client, AsyncClient])
async def connect(request: pytest.FixtureRequest, api: ScriptedApi) -> AsyncIterator[Any]:
    """connect(timeout=0.2): a client of the kind that this run is about."""
    made: list[Either] = []

    def connecting(url: str = api.url, **named: Any) -> Either:
        made.append(Either(request.param(url, KEY, **{"retry": QUICK, **named})))
        return made[-1]

    yield connecting
    for client in made:
        await client.close()


async def test_an_event_is_published_in_three_lines(api: ScriptedApi, connect: Any) -> None:
    client = connect()
    published = await client("publish", "order.paid", {"order": 17}, external_id="o-17")
    assert published.id == 1
    assert published.created_at == datetime(2026, 11, 15, 20, 55, 1, 123456, UTC)
    assert (published.duplicate, published.external_id) == (False, "o-17")
    assert (await client("publish", "order.paid", {"order": 17}, external_id="o-17")).duplicate
    method, target, headers, body = api.requests[0]
    assert (method, target) == ("POST", "/v1/events")
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == {
        "event_type": "order.paid",
        "payload": {"order": 17},
        "external_id": "o-17",
    }


@pytest.mark.parametrize(
    "fault",
    [fault for fault in Fault if fault not in (Fault.STATUS_500, Fault.PAGE)],
    ids=lambda fault: fault.name,
)
async def test_whatever_fails_exactly_one_event_is_stored(
    api: ScriptedApi, connect: Any, fault: Fault
) -> None:
    client = connect(timeout=0.3 if fault in LATE else PATIENCE, retry=OFTEN)
    api.script(fault, fault)
    published = await client("publish", "order.paid", {"order": 1})
    assert len(api.events) == 1
    # On a busy machine a good answer may be too late as well.
    assert len(api.requests) >= 3 if fault in LATE else len(api.requests) == 3
    assert (published.id, published.duplicate) == (1, False)
    assert len({headers["x-request-id"] for _, _, headers, _ in api.requests}) == 1


async def test_many_threads_or_tasks_through_random_faults_store_each_event_once(
    api: ScriptedApi, connect: Any
) -> None:
    client = connect(timeout=PATIENCE, retry=OFTEN)
    faults = [Fault.RESET_AFTER, Fault.STATUS_503, Fault.CLOSED_AFTER, Fault.RESET_BEFORE]
    api.script(*(faults * 10))
    results = await asyncio.gather(*(client("publish", "a", number) for number in range(60)))
    assert sorted(event["payload"] for event in api.events.values()) == list(range(60))
    assert sorted(result.id for result in results) == list(range(1, 61))


async def test_a_batch_that_loses_its_answer_is_stored_once(api: ScriptedApi, connect: Any) -> None:
    client = connect()
    await client("publish", "a", "taken", external_id="taken")
    api.script(Fault.RESET_AFTER)
    events = [NewEvent("a", 1), {"event_type": "a", "payload": b'{"x":  2}', "external_id": "x"}]
    events.append(NewEvent("a", "other", external_id="taken"))
    first, second, third = await client("publish_batch", events)
    assert len(api.events) == 3
    assert first.stored and not first.duplicate and first.external_id
    assert second.stored and second.duplicate and second.external_id == "x"
    assert not third.stored and third.status == 409 and third.error.title == "Key taken"
    assert b'"payload":{"x":  2}' in api.requests[-1][3]


# ── When to give up ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.RESET_AFTER, ServiceUnreachable),
        (Fault.STATUS_503, ServiceUnavailable),
        (Fault.STATUS_429, RateLimited),
    ],
)
async def test_after_the_last_try_the_error_says_what_and_under_which_key(
    api: ScriptedApi, connect: Any, fault: Fault, error: type[Exception]
) -> None:
    client = connect(retry=Retry(tries_max=3, pause_first=0.001))
    api.script(*[fault] * 9)
    with pytest.raises(error) as raised:
        await client("publish", "a", 1)
    assert len(api.requests) == 3
    assert raised.value.external_id == json.loads(api.requests[0][3])["external_id"]  # type: ignore[attr-defined]
    assert raised.value.request_id  # type: ignore[attr-defined]
    assert KEY not in str(raised.value) + repr(client.client)


@pytest.mark.parametrize("fault", [Fault.STATUS_500, Fault.PAGE], ids=lambda fault: fault.name)
async def test_nothing_else_is_tried_again(api: ScriptedApi, connect: Any, fault: Fault) -> None:
    api.script(fault)
    expected = ServiceUnavailable if fault is Fault.STATUS_500 else NotUnderstood
    with pytest.raises(expected):
        await connect()("publish", "a", 1)
    assert len(api.requests) == 1


async def test_a_conflict_carries_the_problem(api: ScriptedApi, connect: Any) -> None:
    client = connect()
    await client("publish", "a", 1, external_id="x")
    with pytest.raises(Conflict) as raised:
        await client("publish", "a", 2, external_id="x")
    assert (raised.value.status, raised.value.title) == (409, "Key taken")
    assert raised.value.request_id == api.requests[-1][2]["x-request-id"]
    assert len(api.requests) == 2


async def test_retry_after_is_obeyed(api: ScriptedApi, connect: Any) -> None:
    api.retry_after = "1"
    api.script(Fault.STATUS_503)
    began = time.monotonic()
    await connect()("publish", "a", 1)
    assert time.monotonic() - began >= 1


async def test_a_retry_after_beyond_the_time_allowed_ends_at_once(
    api: ScriptedApi, connect: Any
) -> None:
    api.retry_after = "3600"
    api.script(Fault.STATUS_503)
    with pytest.raises(ServiceUnavailable) as raised:
        await connect()("publish", "a", 1)
    assert raised.value.retry_after == 3600
    assert len(api.requests) == 1


@pytest.mark.parametrize("fault", [Fault.SLOW_AFTER, Fault.DRIP_AFTER], ids=lambda f: f.name)
async def test_the_timeout_covers_the_whole_answer(
    api: ScriptedApi, connect: Any, fault: Fault
) -> None:
    api.script(fault)
    with pytest.raises(ServiceUnreachable, match="timed out"):
        await connect(timeout=0.3, retry=ONCE)("publish", "a", 1)


async def test_a_refused_connection_is_reported_after_all_tries(connect: Any) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(ServiceUnreachable, match="tried 6 times"):
            await connect(url)("publish", "a", 1)


async def test_an_untrusted_certificate_is_refused_at_once_and_gets_no_request() -> None:
    async with Receiver() as receiver:
        for client in (Client(receiver.url, KEY), AsyncClient(receiver.url, KEY)):
            with pytest.raises(ServiceUnreachable, match="not trusted"):
                await Either(client)("publish", "a", 1)
        assert receiver.count == 0
        body = b'{"id":1,"created_at":"2026-11-15T20:55:01Z","duplicate":false}'
        receiver.script("/hooks/v1/events", Answer(202, body=body))
        for kind in (Client, AsyncClient):
            trusting = Either(kind(f"{receiver.url}/hooks/", KEY, ca_file=receiver.ca_file))
            assert (await trusting("publish", "a", 1)).id == 1
            await trusting.close()


# ── Connections ───────────────────────────────────────────────────────────────────────────────


async def test_a_connection_is_kept_for_the_next_call(api: ScriptedApi, connect: Any) -> None:
    client = connect()
    for number in range(5):
        await client("publish", "a", number)
    assert api.connections == 1


async def test_a_kept_connection_that_was_closed_is_not_used_again(
    api: ScriptedApi, connect: Any
) -> None:
    client = connect(retry=ONCE)
    for number in range(5):
        await client("publish", "a", number)
        api.close_connections()
        await asyncio.sleep(0.05)  # the news must travel; nothing reports its arrival
    assert len(api.events) == api.connections == 5


@pytest.mark.filterwarnings(
    # asyncio's own complaint about connections that outlive their loop
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
def test_an_async_client_may_be_used_in_one_loop_after_the_other(api: ScriptedApi) -> None:
    async def twice(client: AsyncClient) -> None:
        await client.publish("a", 1)
        await client.publish("a", 2)

    client = AsyncClient(api.url, KEY, retry=ONCE)
    asyncio.run(twice(client))
    asyncio.run(twice(client))
    assert (len(api.events), api.connections) == (4, 2)
    del client
    gc.collect()  # the complaint belongs here, not into the next test


def test_a_forked_child_opens_connections_of_its_own(api: ScriptedApi) -> None:
    with Client(api.url, KEY, retry=ONCE) as client:
        client.publish("a", "parent")
        child = os.fork()
        if child == 0:
            try:  # whatever happens, the child must not go on as a second test run
                client.publish("a", "child")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        client.publish("a", "parent again")
    assert (len(api.events), api.connections) == (3, 2)


def test_help_shows_the_arguments_of_a_call() -> None:
    for kind in (Client, AsyncClient):
        assert list(inspect.signature(kind.publish).parameters) == [
            "self",
            "event_type",
            "payload",
            "tenant",
            "external_id",
        ]
        assert "durable" in (kind.publish.__doc__ or "")


def test_one_client_serves_many_threads(api: ScriptedApi) -> None:
    with Client(api.url, KEY) as client, ThreadPoolExecutor(16) as pool:
        barrier = threading.Barrier(16)

        def publish(number: int) -> int:
            if number < 16:
                barrier.wait()
            return client.publish("a", number).id

        assert sorted(pool.map(publish, range(200))) == list(range(1, 201))
    assert api.connections <= 16


# ── Calls that must not happen twice ──────────────────────────────────────────────────────────

ONCE_ONLY = [
    ("subscriptions.test", (1,), {}),
    ("subscriptions.confirm", (1, "7QXM-2KPA-9DTR"), {}),
    ("subscriptions.rotate_secret", (1,), {}),
    ("dead_letters.requeue_many", (), {"all": True, "limit": 10}),
    ("keys.create", ("ci", ["ingest"]), {}),
]


@pytest.mark.parametrize(("path", "arguments", "named"), ONCE_ONLY)
async def test_what_must_not_happen_twice_is_not_repeated_when_in_doubt(
    api: ScriptedApi, connect: Any, path: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    api.script(Fault.RESET_AFTER)
    with pytest.raises(ServiceUnreachable):
        await connect()(path, *arguments, **named)
    assert len(api.requests) == 1


@pytest.mark.parametrize(("path", "arguments", "named"), ONCE_ONLY)
async def test_what_surely_did_not_happen_is_repeated(
    api: ScriptedApi, connect: Any, path: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    api.on("POST", ".*", lambda _found, _body: (418, {"title": "Reached"}))
    api.script(Fault.STATUS_503)
    with pytest.raises(Exception, match="Reached"):
        await connect()(path, *arguments, **named)
    assert len(api.requests) == 2


# ── What is refused before anything is sent ───────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("bad type", 1), {}),
        (("a", float("inf")), {}),
        (("a", b'1,"tenant":"other"'), {}),
        (("a", 1), {"external_id": ""}),
    ],
)
async def test_a_wrong_event_is_a_value_error_before_anything_is_sent(
    api: ScriptedApi, connect: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    with pytest.raises(ValueError):
        await connect()("publish", *arguments, **named)
    assert not api.requests


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("ftp://x", KEY),
        ("surehook.example.com", KEY),
        ("http://user:password@host", KEY),
        ("http://host/?a=1", KEY),
        ("http://host\r\n", KEY),
        (None, KEY),
        ("http://host", "shk_\r\nx: y"),
        ("http://host", None),
    ],
)
def test_a_wrong_url_or_key_is_a_value_error(
    url: str | None, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUREHOOK_URL", raising=False)
    monkeypatch.delenv("SUREHOOK_API_KEY", raising=False)
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError):
            kind(url, key)


def test_url_and_key_may_come_from_the_environment(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUREHOOK_URL", api.url)
    monkeypatch.setenv("SUREHOOK_API_KEY", KEY)
    with Client() as client:
        assert client.publish("a", 1).id == 1
