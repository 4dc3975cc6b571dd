"""Whatever is nested, however deep: each border says so, and nothing reaches Python's own limit."""

from __future__ import annotations

import json
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehook.api.app import ROUTES, read_body
from surehook.api.auth import Key
from surehook.api.events import read_batch, read_event
from surehook.api.pages import before_id, before_time
from surehook.api.problems import Problem
from surehook.cli.ndjson import Lines
from surehook.config import load
from surehook.delivery.challenge import answer_proves, new_challenge
from surehook.errors import ConfigError, FieldRefused, UsageError
from surehook.model import rules
from surehook.receiver.listen import _looks_like_challenge

KEY = Key(1, "anyone's", frozenset(), None)
LIMIT = sys.getrecursionlimit()
# Around the limit of Python and of what builds on it, from whatever depth of the stack.
DEPTHS = [31, 32, 100, 200, *range(LIMIT - 120, LIMIT + 20), 100_000]
ESCAPED = rb'"event_type":"\u0061"'


def arrays(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def objects(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def of_event(nested: bytes) -> str | None:
    return _field(lambda: read_event(b'{%s,"payload":%s}' % (ESCAPED, nested), KEY, None, 2**20))


def of_batch(nested: bytes) -> str | None:
    first = b'{"event_type":"a","payload":1}'
    body = b'{"\\u0065vents":[%s,{%s,"payload":%s}]}' % (first, ESCAPED, nested)
    return _field(lambda: read_batch(body, KEY, 2**20))


def of_test(nested: bytes) -> str | None:
    (route,) = [route for route in ROUTES if route.path.endswith("/test")]
    return _field(lambda: read_body(route, b'{"\\u0070ayload":%s}' % nested))


def of_subscription(nested: bytes) -> str | None:
    (route,) = [r for r in ROUTES if (r.method, r.path) == ("POST", "/v1/subscriptions")]
    return _field(lambda: read_body(route, b'{%s,"callback_url":%s}' % (ESCAPED, nested)))


def _field(act: Callable[[], object]) -> str | None:
    try:
        act()
    except (FieldRefused, Problem) as refused:
        assert "nested deeper than 30 levels" in str(refused)
        return refused.field
    return None


@pytest.mark.parametrize("nested", [arrays, objects])
def test_a_nested_body_is_refused_at_every_depth(nested: Callable[[int], bytes]) -> None:
    assert of_event(nested(30)) is None and of_batch(nested(30)) is None
    assert of_test(nested(30)) is None
    for depth in DEPTHS:
        assert of_event(nested(depth)) == "payload", depth
        # Far beyond, the batch as a whole is at fault.
        assert of_batch(nested(depth)) == ("events/1/payload" if depth <= 100 else "events"), depth
        assert of_test(nested(depth)) == "payload", depth
        assert of_subscription(nested(depth)) == "body", depth


def test_what_does_not_end_is_not_json_and_not_too_deep() -> None:
    for body in (b'{"event_type":"a","payload":[' + b"[]," * 40, b'{"payload":"' + b"[" * 40):
        with pytest.raises(Problem, match="not JSON") as refused:
            read_event(body, KEY, None, 2**20)
        assert refused.value.field == "body"


def test_a_nested_cursor_is_no_cursor() -> None:
    for depth in DEPTHS:
        for text in (arrays(depth), b"[1," + arrays(depth) + b"]", b'["x",' + objects(depth)):
            cursor = urlsafe_b64encode(text).decode().rstrip("=")
            for read in (before_id, before_time):
                with pytest.raises(Problem, match="not a cursor"):
                    read(cursor)


def test_a_nested_line_is_named(tmp_path: Path) -> None:
    for depth in DEPTHS[::10]:
        file = tmp_path / "lines"
        file.write_bytes(b'{%s,"payload":%s}\n' % (ESCAPED, arrays(depth)))
        with file.open("rb") as stream, pytest.raises(UsageError, match=r"Line 1: .*nested deeper"):
            list(Lines(file, None, None, 0).batches(stream))


def test_a_nested_configuration_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "surehook.toml"
    file.write_text("[api]\nlisten = " + "[" * 20_000 + "]" * 20_000)
    with pytest.raises(ConfigError, match="nested too deep"):
        load(file, {}, {})


def test_a_nested_answer_to_a_challenge_proves_nothing() -> None:
    for depth in DEPTHS:
        answer = b'{"x":%s,"response":"%s"}' % (arrays(depth), b"0" * 64)
        assert not answer_proves(answer, new_challenge(), ["whsec_" + "A" * 32])


def test_a_nested_message_is_no_challenge() -> None:
    for depth in DEPTHS[::10]:
        assert not _looks_like_challenge(b'{"type":%s}' % arrays(depth))


def levels(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(levels, value.values()), default=0)
    return 1 + max(map(levels, value), default=0) if isinstance(value, list) else 0


TEXTS = st.text(st.sampled_from('[]{}"\\/ab,:\n\u00e9'), max_size=8)


@given(
    st.recursive(
        st.none() | st.integers() | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=20,
    ),
    st.integers(0, 6),
)
def test_depth_is_that_of_the_value_whatever_its_texts_hold(value: Any, most: int) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        assert rules.deeper_than(text.encode(), most) == (levels(value) > most)
