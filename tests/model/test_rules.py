"""The rules about events: every border accepts the same events, and refuses the same ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from surehook.api.auth import Key
from surehook.api.events import read_event
from surehook.api.problems import Problem
from surehook.api.wire import Head
from surehook.client import calls
from surehook.errors import FieldRefused
from surehook.model import rules
from surehook.outbox.statement import values_of

KEY = Key(1, "anyone's", frozenset(), None)

NASTY = st.sampled_from(
    ["\t", "\n", "\0", "\x7f", "\x85", " ", "\u2028", "\u202e", "\ufeff", "\ud800"]
)
LETTERS = st.characters(codec="utf-8") | NASTY | st.sampled_from("aZ9._-é漢\u00a0\u200d😀")
TEXTS = st.text(LETTERS, max_size=12) | st.integers(95, 105).map("t".__mul__)
KEYS = TEXTS | st.integers(250, 260).map("é".__mul__)
TYPES = st.sampled_from(["order.paid", "a" * 100]) | TEXTS
DEPTHS = st.integers(0, 4) | st.integers(29, 33) | st.sampled_from([500, 1100])


def nested(depth: int) -> bytes:
    return (
        b'{"a":[' * (depth // 2)
        + b"[" * (depth % 2)
        + b"1"
        + b"]" * (depth % 2)
        + b"]}" * (depth // 2)
    )


def by_the_api(event_type: str, payload: bytes, tenant: str, external_id: str | None) -> None:
    names = {"event_type": event_type, "tenant": tenant, "external_id": external_id}
    body = json.dumps(names).encode()[:-1] + b',"payload":' + payload + b"}"
    read_event(body, KEY, None, rules.PAYLOAD_BYTES_MAX)


def by_the_client(event_type: str, payload: bytes, tenant: str, external_id: str | None) -> None:
    calls.publish(calls.NewEvent(event_type, payload, tenant, external_id))


def accepts(border: Any, *event: Any) -> bool:
    try:
        border(*event)
    except (Problem, ValueError):
        return False
    return True


@given(TYPES, DEPTHS, TEXTS, st.none() | KEYS)
@example("order.paid", 1, "ac\tme", None)
@example("order.paid", 1, "acme", "k\u2029")
@example("order.paid\n", 1, "", None)
@example("order.paid", 1, "acme", "")
@example("order.paid", 30, "acme", "k")
@example("order.paid", 31, "acme", "k")
def test_api_client_and_outbox_accept_the_same_events(
    event_type: str, depth: int, tenant: str, external_id: str | None
) -> None:
    event = (event_type, nested(depth), tenant, external_id)
    answers = {border: accepts(border, *event) for border in (by_the_api, by_the_client, values_of)}
    assert len(set(answers.values())) == 1, answers


def test_api_and_outbox_have_the_same_limit_of_bytes() -> None:
    """The client sends what it is given: the limit of a server is that server's setting."""
    largest = b'"%s"' % (b"x" * (rules.PAYLOAD_BYTES_MAX - 2))
    for border in (by_the_api, values_of):
        border("order.paid", largest, "", None)
        with pytest.raises(rules.TooLarge):
            border("order.paid", largest[:-1] + b'x"', "", None)


@given(KEYS)
@example("k\u2029")
def test_the_header_idempotency_key_follows_the_rule_of_external_ids(key: str) -> None:
    try:
        header = key.encode()
    except UnicodeEncodeError:
        return
    head = Head({"headers": [(b"idempotency-key", header)]})
    try:
        rules.check_external_id(key)
        allowed = True
    except rules.Broken:
        allowed = False
    try:
        assert head.idempotency_key() == key
        accepted = True
    except rules.Broken:
        accepted = False
    assert accepted == allowed


def test_a_broken_rule_names_the_field_and_what_is_wrong() -> None:
    for field, event in {
        "event_type": ("order paid", b"1", "", None),
        "tenant": ("order.paid", b"1", "ac\tme", None),
        "external_id": ("order.paid", b"1", "", "x" * 256),
        "payload": ("order.paid", nested(31), "", None),
    }.items():
        for border in (by_the_api, by_the_client, values_of):
            with pytest.raises(FieldRefused, match=field) as refused:
                border(*event)
            assert refused.value.field == field


def test_brackets_inside_of_texts_are_no_levels() -> None:
    text = json.dumps(["[[[{" * 20, '"\\"[[[['] * 20).encode()
    assert not rules.deeper_than(text, 1)
    assert rules.deeper_than(text, 0)


@given(st.binary(max_size=40).map(lambda noise: b"[" * 40 + noise))
def test_what_no_parser_may_descend_into_is_found_before_it_is_parsed(noise: bytes) -> None:
    assert rules.deeper_than(noise, 30)
