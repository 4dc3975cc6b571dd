"""`surehook publish` and `surehook event`: what goes in comes out, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.commands import Command, run_command
from support.rows import a_saga, a_subscription, an_event
from surehook.store.logins import DatabaseAccess

ODD = '{"b":  1, "a": 1.50,\t"ü": "\\u00fc", "a": 2}'


@pytest.fixture
def payload_file(tmp_path: Path) -> Path:
    file = tmp_path / "payload.json"
    file.write_bytes(ODD.encode() + b"\n")
    return file


@pytest.mark.parametrize("way", ["argument", "file", "standard input", "file dash"])
async def test_a_payload_is_kept_byte_for_byte_however_it_is_given(
    command: Command, owner: Any, payload_file: Path, way: str
) -> None:
    given = {
        "argument": [ODD],
        "file": ["-f", str(payload_file)],
        "standard input": ["-"],
        "file dash": ["--file", "-"],
    }[way]
    await a_subscription(owner)
    done = await command("publish", "order.paid", *given, stdin=ODD.encode())
    assert (done.code, done.err) == (0, ""), done.err
    row = await owner.fetchrow("SELECT id, payload, tenant FROM events")
    assert (row["payload"], row["tenant"]) == (ODD, "")
    assert done.out == f"event {row['id']} published\n"


async def test_json_has_the_words_of_the_api_and_a_repetition_is_a_duplicate(
    command: Command,
) -> None:
    arguments = ("publish", "order.paid", "{}", "--tenant", "acme", "--external-id", "x1")
    first = (await command(*arguments, "--json")).json()
    assert set(first) == {"id", "created_at", "duplicate", "external_id"}
    assert first["duplicate"] is False and first["external_id"] == "x1"
    again = await command(*arguments)
    assert again.code == 0 and f"event {first['id']} was published before" in again.out
    other = await command("publish", "order.paid", "[]", "--tenant", "acme", "--external-id", "x1")
    assert other.code == 1 and other.err.startswith("surehook: 409 ")


async def test_publishing_what_nobody_is_subscribed_to_says_so(
    command: Command, owner: Any
) -> None:
    await a_subscription(owner, tenant="acme")
    await a_subscription(owner, event_type="order.lost", active=False)
    await a_subscription(owner, event_type="order.lost", verified=False)
    lost = "No active, verified subscription matches order.lost; the event will not be delivered.\n"
    for arguments, said in (
        (["order.paid", "{}", "--tenant", "acme"], ""),
        (["order.lost", "{}"], lost),
        (["order.lost", "{}", "--json"], ""),
    ):
        done = await command("publish", *arguments)
        assert (done.code, done.err) == (0, said), arguments


async def test_publishing_under_the_wrong_tenant_says_where_the_type_is_wanted(
    command: Command, owner: Any, access: DatabaseAccess
) -> None:
    for tenant in ("acme", "beta", "corp", "duff"):
        await a_subscription(owner, tenant=tenant)
    without = await command("publish", "order.paid", "{}")
    assert without.err == (
        "No active, verified subscription without a tenant matches order.paid; the event will not "
        "be delivered.\nSubscriptions to it exist under tenant acme, tenant beta, tenant corp and "
        "1 more: publish with --tenant.\n"
    )
    await a_subscription(owner, event_type="order.lost")
    other = await command("publish", "order.lost", "{}", "--tenant", "acme")
    assert "subscription of tenant acme matches order.lost" in other.err
    assert "exist under no tenant: publish without --tenant.\n" in other.err
    await a_subscription(owner, event_type="order.lost", tenant="beta")
    either = await command("publish", "order.lost", "{}", "--tenant", "acme")
    assert "no tenant, tenant beta: publish with --tenant, or without it.\n" in either.err
    # A key that is bound to a tenant is told nothing of others.
    create = ("key", "create", "--name", "zeta", "--scope", "admin", "--tenant", "zeta", "--json")
    database = {
        "SUREHOOK_DATABASE_URL": access.url,
        "SUREHOOK_ROLE_SECRET": access.role_secret or "",
    }
    made = await command(*create, env=database)
    env = {"SUREHOOK_API_KEY": made.json()["key"]}
    bound = await command("publish", "order.paid", "{}", env=env)
    assert bound.err == (
        "No active, verified subscription matches order.paid; the event will not be delivered.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["order.paid", "{"], "not JSON"),
        (["order.paid", "NaN"], "not JSON"),
        (["order paid", "{}"], "surehook: event_type must be"),
        (["order.paid"], "needs a type and a payload"),
        ([], "needs a type and a payload"),
        (["order.paid", "{}", "-f", "-"], "two payloads"),
        (["order.paid", "-f", "/nowhere"], "/nowhere cannot be read"),
        (["order.paid", "{}", "--skip", "1"], "--skip is for --ndjson"),
        (["order.paid", "{}", "--ndjson"], "--ndjson reads the lines"),
        (["--ndjson"], "--ndjson reads the lines"),
        (["--ndjson", "-", "--external-id", "x"], "one event's"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2_before_anything_is_sent(
    arguments: list[str], said: str
) -> None:
    nobody = {"SUREHOOK_URL": "http://127.0.0.1:1", "SUREHOOK_API_KEY": "shk_x"}
    done = run_command(("publish", *arguments), nobody)
    assert (done.code, done.out) == (2, "") and said in done.err, done.err
    assert done.err.count("\n") == 1


# ── Lines ─────────────────────────────────────────────────────────────────────────────────────


def lines(*events: object) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


async def test_lines_of_payloads_become_events_of_one_type(command: Command, owner: Any) -> None:
    given = b'{"n":  1}\n\n  [2]  \r\n"three"'
    done = await command("publish", "count", "-", "--ndjson", "--tenant", "acme", stdin=given)
    assert (done.code, done.out) == (0, "3 events published\n"), done.err
    rows = await owner.fetch("SELECT event_type, tenant, payload FROM events")
    assert {row["payload"] for row in rows} == {'{"n":  1}', "[2]", '"three"'}
    assert {(row["event_type"], row["tenant"]) for row in rows} == {("count", "acme")}


async def test_lines_that_say_all_are_sent_in_batches(
    command: Command, owner: Any, tmp_path: Path
) -> None:
    file = tmp_path / "many.ndjson"
    file.write_bytes(
        lines(
            *(
                {"event_type": f"t{n % 2}", "payload": n, "tenant": "acme", "external_id": f"x{n}"}
                for n in range(2300)
            )
        )
    )
    done = await command("publish", "--ndjson", "-f", str(file))
    assert (done.code, done.out) == (0, "2300 events published\n"), done.err
    again = await command("publish", "--ndjson", "-f", str(file), "--skip", "2298", "--json")
    results = again.lines()
    assert [(one["line"], one["status"]) for one in results] == [(2299, 200), (2300, 200)]
    assert all(one["duplicate"] for one in results)
    assert await owner.fetchval("SELECT count(*) FROM events") == 2300


async def test_a_wrong_line_is_named_with_how_to_go_on(command: Command, owner: Any) -> None:
    good = [{"event_type": "t", "payload": n} for n in range(1100)]
    done = await command("publish", "--ndjson", "-", stdin=lines(*good, {"event_type": "t"}))
    assert done.code == 2 and "Line 1101: Object missing required field `payload`" in done.err
    assert "All lines up to 1000 are stored: go on with --skip 1000." in done.err
    assert await owner.fetchval("SELECT count(*) FROM events") == 1000
    done = await command("publish", "--ndjson", "-", stdin=b"nonsense\n")
    assert done.code == 2 and "Line 1: " in done.err and "Nothing is stored." in done.err


async def test_a_line_that_only_the_api_refuses_is_named_too(command: Command) -> None:
    given = lines("fits", "x" * (2**20 + 1))
    done = await command("publish", "big", "-", "--ndjson", stdin=given)
    assert done.code == 2 and "Line 2: " in done.err and "Nothing is stored." in done.err


async def test_a_key_that_stands_for_another_event_fails_only_its_own_line(
    command: Command, owner: Any
) -> None:
    await an_event(owner, payload="1", event_type="t", external_id="taken")
    given = lines(
        {"event_type": "t", "payload": 2, "external_id": "taken"},
        {"event_type": "t", "payload": 2, "external_id": "free"},
    )
    done = await command("publish", "--ndjson", "-", stdin=given)
    assert (done.code, done.out) == (1, "1 event published\n")
    assert "line 1: " in done.err and "1 line was not stored" in done.err


# ── event ─────────────────────────────────────────────────────────────────────────────────────


async def test_an_event_is_shown_with_its_payload_and_deliveries(
    command: Command, owner: Any
) -> None:
    event = await an_event(owner, payload=ODD.replace("\t", " "), external_id="x1")
    saga = await a_saga(owner, event_id=event)
    done = await command("event", "show", str(event))
    assert done.code == 0 and ODD.replace("\t", " ") in done.out.splitlines()
    facts = done.facts()
    assert (facts["event_type"], facts["external_id"]) == ("order.paid", "x1")
    assert facts[str(saga)].startswith("Pending")
    shown = (await command("event", "show", str(event), "--json")).json()
    assert shown["deliveries"][0]["id"] == saga and shown["payload"]["a"] == 2


async def test_events_are_listed_newest_first_by_filter(command: Command, owner: Any) -> None:
    ids = [await an_event(owner, event_type=f"t{n % 2}") for n in range(4)]
    listed = (await command("event", "list", "--json")).lines()
    assert [one["id"] for one in listed] == ids[::-1]
    rows = (await command("event", "list", "--event-type", "t1", "--created-from", "1h")).rows()
    assert [row[0] for row in rows] == [str(ids[3]), str(ids[1])]
    none = await command("event", "list", "--created-until", "2020-01-01")
    assert (none.code, none.out) == (0, "") and "No event fits" in none.err


async def test_a_list_says_that_there_are_more_than_it_shows(command: Command, owner: Any) -> None:
    for _ in range(3):
        await an_event(owner)
    done = await command("event", "list", "--limit", "2", "--json")
    assert len(done.lines()) == 2 and "There are more than 2" in done.err
    done = await command("event", "list", "--limit", "3")
    assert len(done.rows()) == 3 and done.err == ""


async def test_a_time_that_is_none_is_wrong_use(command: Command) -> None:
    done = await command("event", "list", "--created-from", "yesterday")
    assert done.code == 2 and "'yesterday' is not a valid time" in done.err


async def test_what_is_not_there_is_the_answer_no(command: Command) -> None:
    for arguments in (["event", "show", "9"], ["delivery", "show", "9"]):
        done = await command(*arguments)
        assert (done.code, done.out) == (1, "") and "404" in done.err
    assert (await command("event", "show", "nine")).code == 2
    assert (await command("event", "show", "0")).code == 2


async def test_a_line_whose_key_an_open_transaction_holds_is_named(
    command: Command, owner: Any
) -> None:
    transaction = owner.transaction()
    await transaction.start()
    await an_event(owner, event_type="t", external_id="held")
    given = lines({"event_type": "t", "payload": 1, "external_id": "held"})
    done = await command("publish", "--ndjson", "-", stdin=given)
    await transaction.rollback()
    assert (done.code, done.out) == (1, "0 events published\n")
    assert "line 1: The external_id is being written by a transaction" in done.err
