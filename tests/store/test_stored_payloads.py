"""Which payloads the database takes from those who reach it without our program: on every server
the same ones, and only what is JSON. What it takes, it keeps byte for byte."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from support import dialects
from support.dialects import as_role
from support.servers import Server
from surehook.model.rules import DEPTH_MAX

# Ours; PostgreSQL's own for a text that is not JSON; MySQL's own for one that is nested too deeply.
REFUSED = {"SH004", "22P02", "22032"}

NOT_JSON = [
    *("not json", "", " ", "{", "}", "[1,]", "[,1]", "[1 2]", '{"a":1,}', '{"a"}', '{"a" 1}'),
    *(
        "{1:1}",
        "{a:1}",
        "{'a':1}",
        "''",
        '"abc',
        'abc"',
        '"a"b',
        "[1]]",
        "[[1]",
        '{"a":[}',
        "{} {}",
    ),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "[NaN]",
        "tRue",
        "nul",
        "nulll",
        "undefined",
        "0x10",
        "123abc",
    ),
    *(
        "01",
        "-01",
        "+1",
        ".5",
        "1.",
        "1.e5",
        "[1.]",
        '{"a":1.}',
        "-",
        "[-]",
        "--1",
        "1-1",
        "1e",
        "1e+",
    ),
    *(
        '"\\x41"',
        '"\\a"',
        '"\\u12"',
        '"\\u12G4"',
        '"\\',
        '["\\\\", "\\q"]',
        '"\\\\\\y"',
        '{"\\0":1}',
    ),
    *('"\x01"', '"\t"', '"\n"', '"\x1f"', "\x0c1", "\xa01", "\ufeff{}", "//c\n1", "/*c*/1"),
    *('"\\ud800"', '"\\udc00"', '"\\ud800\\ud800"', '"\\uD83D"', '"\\uDE00\\uD83D"', '"\\uD83Dx"'),
    *("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), "[" * 200 + "]" * 200),
    '{"a":' * (DEPTH_MAX + 1) + "1" + "}" * (DEPTH_MAX + 1),
    '["]",' + "[" * DEPTH_MAX + '"[]"' + "]" * DEPTH_MAX + "]",
]
JSON = [
    *("{}", "[]", '""', "0", "-0", "1e5", "1E+05", "-1.5e-10", "true", "null", " \n\t\r{} \n"),
    *(
        '{"a":1,"a":2}',
        '{"":1}',
        '"\\u0000"',
        '"\\/"',
        '"\\b\\f\\n\\r\\t\\"\\\\"',
        '"\x7f"',
        '"\u2028"',
    ),
    *(
        '"\\uD83D\\uDE00"',
        '"😀"',
        '"\\\\ud800"',
        '"\\\\q"',
        '"\\\\\\\\u12"',
        '["1.", "-", "a-b. c"]',
    ),
    *("[" * DEPTH_MAX + "]" * DEPTH_MAX, '{"a":' * DEPTH_MAX + "1" + "}" * DEPTH_MAX),
    json.dumps(["[" * 50, "{" * 50, '"' * 50, "\\" * 51, {"a": "]" * 50}]),
    json.dumps([[] for _ in range(100)]),
    "1e400",
    '{"a": [-1.5E+999, "\\u1e55 1e999", "\\uD83D\\uDE00"], "b": ' + "9" * 400 + "}",
    json.dumps([{"text": "1. x-" * 16, "number": number} for number in range(7000)]),
    '{"a": "' + "x" * 100_000 + '"}',
]


async def refused(login: Any, payload: str) -> bool:
    transaction = login.transaction()
    await transaction.start()
    try:
        await login.execute("INSERT INTO events (event_type, payload) VALUES ('x', $1)", payload)
    except dialects.Error as error:
        assert error.sqlstate in REFUSED, (payload[:80], error)
        return True
    finally:
        await transaction.rollback()
    return False


@pytest.mark.parametrize("login_of", ["outbox_writer", None])
async def test_what_is_not_json_is_refused_to_whoever_inserts_it(
    owner: Any, server: Server, database_url: str, login_of: str | None
) -> None:
    if login_of is None:
        assert [text for text in NOT_JSON if not await refused(owner, text)] == []
        assert [text for text in JSON if await refused(owner, text)] == []
        return
    async with as_role(server, database_url, login_of) as login:
        assert [text for text in NOT_JSON if not await refused(login, text)] == []
        assert [text for text in JSON if await refused(login, text)] == []


async def test_text_that_is_nearly_json_is_taken_only_if_it_is(owner: Any) -> None:
    """Valid documents with one character changed, as a strict parser judges them."""
    chance = random.Random(7)
    alphabet = '{}[]",:\\-+.0123eEtrufalsn u'
    seeds = ['{"a":[1,-2.5e3,"x\\n\\u00e9"],"b":null}', '[true,false,{"c":"\\\\"},0.1]', "-12.5E-7"]
    for _ in range(400):
        text = chance.choice(seeds)
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(alphabet) + text[at + chance.randrange(2) :]
        assert await refused(owner, text) != _is_json(text), text


def _is_json(text: str) -> bool:
    def no_constant(_: str) -> None:
        raise ValueError

    try:
        json.loads(text, parse_constant=no_constant)
    except ValueError:
        return False
    return True


async def test_what_is_taken_is_kept_byte_for_byte(owner: Any) -> None:
    for payload in JSON:
        event_id = await owner.fetchval(
            "INSERT INTO events (event_type, payload) VALUES ('x', $1) RETURNING id", payload
        )
        assert await owner.fetchval("SELECT payload FROM events WHERE id = $1", event_id) == payload


@pytest.mark.parametrize("buckets", [4])
async def test_a_partition_takes_no_other_payload_than_its_table(owner: Any, buckets: int) -> None:
    insert = dialects.of_partition(
        owner,
        "INSERT INTO",
        "events",
        1,
        "(id, event_type, payload, bucket) VALUES (7, 'x', '{p}', 1)",
    )
    with pytest.raises(dialects.Error) as error:
        await owner.execute(insert.replace("{p}", "[" * 31 + "]" * 31))
    assert error.value.sqlstate == "SH004"
    await owner.execute(insert.replace("{p}", "[]"))


async def test_the_login_of_the_api_can_store_no_text_that_is_no_json(
    server: Server, database_url: str
) -> None:
    async with as_role(server, database_url, "event_ingest_writer") as login:
        for text in ("not json", "", "[1,]", "{'a':1}", '"\x01"'):
            assert await refused(login, text), text
