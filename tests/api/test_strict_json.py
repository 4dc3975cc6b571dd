"""What JSON the event path takes: exactly RFC 8259, not too deep, no key twice in the envelope."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from surehook.api.auth import ALL_SCOPES, Key
from surehook.api.events import read_batch, read_event
from surehook.api.problems import Problem
from surehook.api.wire import as_problem
from surehook.errors import FieldRefused
from surehook.model.records import NewEvent

KEY = Key(1, "test", ALL_SCOPES, None)
PAYLOAD_MAX = 1_000_000

# Each is a payload that no strict reader takes.
WRONG_PAYLOADS = {
    "not a number": b"NaN",
    "infinity": b"Infinity",
    "negative infinity": b"-Infinity",
    "lone high surrogate": rb'"\ud800"',
    "lone low surrogate": rb'"\udc00"',
    "high surrogate and a letter": rb'"\ud800A"',
    "high surrogate and another escape": rb'"\ud800\u0041"',
    "two high surrogates": rb'"\ud800\ud800"',
    "lone surrogate in a key": rb'{"\udbff":1}',
    "surrogate as bytes": b'"\xed\xa0\x80"',
    "truncated UTF-8": b'"\xe2\x82"',
    "overlong UTF-8": b'"\xc0\x80"',
    "beyond Unicode": b'"\xf4\x90\x80\x80"',
    "NUL in a string": b'"a\x00b"',
    "NUL after": b"1\x00",
    "raw tab": b'"a\tb"',
    "raw newline": b'"a\nb"',
    "byte order mark": b"\xef\xbb\xbf1",
    "two values": b"1 2",
    "leading zero": b"01",
    "plus": b"+1",
    "bare fraction": b".5",
    "open fraction": b"1.",
    "open exponent": b"1e",
    "hexadecimal": b"0x10",
    "single quotes": b"'a'",
    "comment": b"1/**/",
    "trailing comma": b"[1,]",
    "trailing comma in an object": b'{"a":1,}',
    "no value": b'{"a"}',
    "key without quotes": b"{a:1}",
    "unknown escape": rb'"\x41"',
    "short escape": rb'"\u12"',
    "word": b"nul",
    "capital word": b"True",
    "form feed": b"\x0c1",
    "open list": b"[1",
    "open string": b'"a',
    "nothing": b"",
    "31 deep": b"[" * 31 + b"]" * 31,
    "31 deep in objects": b'{"a":' * 31 + b"1" + b"}" * 31,
    "100,000 deep": b"[" * 100_000 + b"]" * 100_000,
}

# Each is unusual and yet JSON: it is taken as it is.
ODD_PAYLOADS = {
    "huge number": b"1e400",
    "tiny number": b"-1E-400",
    "5,000 digits": b"1" * 5000,
    "long fraction": b"0." + b"1" * 5000,
    "minus zero": b"-0",
    "escaped NUL": rb'"\u0000"',
    "surrogate pair": rb'"\ud83d\ude00"',
    "backslash before a u": rb'"\\ud800"',
    "key twice": b'{"a":1,"a":2}',
    "spaces kept": b'{ "a" :\t1 ,\r\n"b":[ ] }',
    "30 deep": b"[" * 30 + b"]" * 30,
    "40 brackets in a string": b'"' + b"[" * 40 + b'"',
    "wide, not deep": b"[" + b"[]," * 100 + b"{}]",
    "quotes in strings": rb'{"a\"":"\"event_type\":\"x\""}',
    "looks like an envelope": b'{"event_type":"y","payload":1,"payload":2}',
    "null": b"null",
    "four bytes": "\U0001f600".encode().join([b'"', b'"']),
    "no character at all": b'"\xef\xbf\xbf"',
}


def envelope(payload: bytes) -> bytes:
    return b'{"event_type":"order.paid","payload":' + payload + b"}"


def read(body: bytes, payload_max: int = PAYLOAD_MAX) -> NewEvent:
    """The event, or the problem that a client is answered with."""
    try:
        return read_event(body, KEY, None, payload_max)
    except FieldRefused as refused:
        raise as_problem(refused, "") from None


@pytest.mark.parametrize("payload", WRONG_PAYLOADS.values(), ids=WRONG_PAYLOADS.keys())
def test_what_is_not_json_is_refused(payload: bytes) -> None:
    with pytest.raises(Problem) as refused:
        read(envelope(payload))
    assert refused.value.kind.status == 422
    assert refused.value.field in ("body", "payload")


@pytest.mark.parametrize("payload", ODD_PAYLOADS.values(), ids=ODD_PAYLOADS.keys())
def test_odd_but_valid_json_is_taken_byte_for_byte(payload: bytes) -> None:
    assert read(envelope(payload)).payload.encode() == payload


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"event_type":"a","event_type":"a","payload":1}', "event_type"),
        (b'{"event_type":"a","payload":1,"payload":1}', "payload"),
        (b'{"payload":{"x":1},"event_type":"a","payload":{"y":2}}', "payload"),
        (rb'{"event_type":"a","payload":1,"\u0070ayload":2}', "payload"),
        (b'{"event_type":"a","payload":1,"tenant":null,"tenant":null}', "tenant"),
        (b'{"event_type":"a","payload":1,"tenant":"x","tenant":null}', "tenant"),
        (b'{"event_type":"a","payload":1,"external_id":"x","external_id":"y"}', "external_id"),
        (b'{"payload":"\\"","event_type":"a","payload":1}', "payload"),
        (b'{"payload":"\\\\","event_type":"a","payload":"\\\\"}', "payload"),
    ],
)
def test_a_key_twice_in_the_envelope_is_refused(body: bytes, field: str) -> None:
    with pytest.raises(Problem) as refused:
        read(body)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", "body"),
        (b"1", "body"),
        (b"{}", "event_type"),
        (b'{"event_type":"a"}', "payload"),
        (b'{"event_type":1,"payload":1}', "event_type"),
        (b'{"event_type":"","payload":1}', "event_type"),
        (b'{"event_type":"a b","payload":1}', "event_type"),
        (b'{"event_type":"a\\n","payload":1}', "event_type"),
        (b'{"event_type":"%s","payload":1}' % (b"a" * 101), "event_type"),
        (b'{"event_type":"a","payload":1,"more":1}', "more"),
        (b'{"event_type":"a","payload":1,"tenant":5}', "tenant"),
        (b'{"event_type":"a","payload":1,"tenant":"%s"}' % (b"t" * 101), "tenant"),
        (b'{"event_type":"a","payload":1,"tenant":"a\\u0000"}', "tenant"),
        (b'{"event_type":"a","payload":1,"external_id":""}', "external_id"),
        (b'{"event_type":"a","payload":1,"external_id":"a\\n"}', "external_id"),
        (b'{"event_type":"a","payload":1,"external_id":"%s"}' % (b"e" * 256), "external_id"),
        (b'{"event_type":"a","payload":1,"external_id":["e"]}', "external_id"),
    ],
)
def test_a_wrong_field_is_named(body: bytes, field: str) -> None:
    with pytest.raises(Problem) as refused:
        read(body)
    assert (refused.value.kind.status, refused.value.field) == (422, field)


def test_a_wrong_field_of_a_batch_is_named_with_its_place() -> None:
    good = envelope(b"1")
    for wrong, field in (
        (envelope(b'"\xff"'), "events/2/payload"),
        (b'{"event_type":"a","payload":1,"payload":1}', "events/2/payload"),
        (b'{"event_type":"a"}', "events/2/payload"),
        (b'{"event_type":1,"payload":1}', "events/2/event_type"),
        (b"7", "events/2"),
    ):
        body = b'{"events":[' + b",".join([good, good, wrong]) + b"]}"
        with pytest.raises(Problem) as refused:
            read_batch(body, KEY, PAYLOAD_MAX)
        assert refused.value.field == field


# ── Against another reader ────────────────────────────────────────────────────────────────────


def _refuse(word: str) -> Any:
    raise ValueError(word)


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)")


def _has_lone_surrogate(text: str) -> bool:
    """By hand: each escape of a high one is directly followed by that of a low one."""
    expected_at = -1
    for match in _ESCAPE.finditer(text):
        code = int(match[1], 16) if match[1] else 0
        if expected_at >= 0:
            if match.start() != expected_at or not 0xDC00 <= code <= 0xDFFF:
                return True
            expected_at = -1
        elif 0xDC00 <= code <= 0xDFFF:
            return True
        elif 0xD800 <= code <= 0xDBFF:
            expected_at = match.end()
    return expected_at >= 0


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def expected(payload: bytes) -> bool:
    """Whether Python's own reader, made strict, takes it."""
    try:
        text = payload.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return not _has_lone_surrogate(text) and _depth(value) <= 30


def taken(payload: bytes) -> bool:
    try:
        event = read(envelope(payload))
    except Problem as problem:
        assert problem.kind.status == 422
        return False
    # Only space around the value is not part of it.
    assert event.payload.encode() == payload.strip(b" \t\r\n")
    return True


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)
_PIECES = rb"""[ ] { } " : , \ \u d800 dc00 0 1 - . e E + true null NaN a "a" {"a": [[ ]]"""
_OTHERS = (b" ", b"\t", b"\xc3\xa9", b"\xff", b"\x00", b"\xed\xa0\x80")
_pieces = st.sampled_from([*_PIECES.split(), *_OTHERS])


@settings(max_examples=400, deadline=None)
@given(st.lists(_pieces, max_size=14).map(b"".join))
@example(b'"\\ud800\\')
@example(b'"\\ud800\\udc0"')
def test_bits_of_json_are_taken_exactly_if_another_strict_reader_takes_them(bits: bytes) -> None:
    assert taken(bits) == expected(bits), bits


@settings(max_examples=400, deadline=None)
@given(_values, st.booleans(), st.data())
def test_a_damaged_value_is_taken_exactly_if_another_strict_reader_takes_it(
    value: Any, ascii_only: bool, data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    place = data.draw(st.integers(0, len(text)))
    bits = data.draw(st.binary(max_size=2) | _pieces)
    for candidate in (text, text[:place] + bits + text[place:], text[:place], text[place:]):
        assert taken(candidate) == expected(candidate), candidate


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_answered_with_a_problem_at_most(body: bytes) -> None:
    try:
        read(body)
    except Problem as problem:
        assert problem.kind.status == 422


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["event_type", "payload", "tenant", "external_id"]),
            st.sampled_from(['"a"', "null", '"\\u0061"', '"payload"', '{"payload":"x"}', "1"]),
        ),
        max_size=6,
    )
)
def test_an_envelope_is_taken_only_if_no_key_repeats(pairs: list[tuple[str, str]]) -> None:
    body = "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}"
    names = [name for name, _ in pairs]
    try:
        read(body.encode())
        assert len(names) == len(set(names))
    except Problem as problem:
        if len(names) == len(set(names)):
            assert "Duplicate" not in problem.detail


def test_depth_is_counted_outside_of_strings_only() -> None:
    payload = b"[" * 29 + b'"' + b"[{" * 50 + rb"\"[" + b'"' + b"]" * 29
    assert read(envelope(payload)).payload.encode() == payload


def test_a_payload_over_its_limit_is_too_large() -> None:
    with pytest.raises(Problem) as refused:
        read(envelope(b'"' + b"a" * 2000 + b'"'), 2001)
    assert (refused.value.kind.status, refused.value.field) == (413, "payload")
    assert read_event(envelope(b'"' + b"a" * 1999 + b'"'), KEY, None, 2001)
