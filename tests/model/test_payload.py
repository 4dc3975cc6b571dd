"""Payloads: what is accepted is JSON that comes back the same, and what the API accepts too."""

from __future__ import annotations

import dataclasses
import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from surehook.api import strict
from surehook.api.problems import Problem
from surehook.model import payload, rules

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)
NOISE = st.binary() | st.text(st.sampled_from(list('[]{},:"\\\n ueE+-.0123789trufalsn\ud800'))).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)


def accepted_by_the_api(body: bytes) -> bool:
    try:
        strict.check_depth(body, 0, "payload")
        raw = strict.decode(msgspec.json.Decoder(msgspec.Raw), body)
        strict.payload_text(bytes(raw))
    except (Problem, rules.Broken):
        return False
    return True


def accepted(given_bytes: bytes) -> bool:
    try:
        payload.encode(given_bytes)
    except ValueError:
        return False
    return True


@given(VALUES)
def test_what_was_encoded_reads_the_same(value: Any) -> None:
    encoded = payload.encode(value)
    assert json.loads(encoded) == value
    assert payload.encode(encoded) == encoded


@given(NOISE)
@example(b"[" * 31 + b"]" * 31)
@example(b'["\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["]')
@example(b'"\\udc00"')
@example(b"\xef\xbb\xbf1")
@example(b" 1 ")
@example(b"1e999")
def test_bytes_are_accepted_exactly_if_the_api_accepts_them(noise: bytes) -> None:
    assert accepted(noise) == accepted_by_the_api(noise)


@given(st.integers(0, 60), st.sampled_from(["[]", "{}"]))
def test_thirty_levels_are_the_limit(levels: int, kind: str) -> None:
    opening, closing = ("[", "]") if kind == "[]" else ('{"a":', "}")
    nested = (opening * levels + "1" + closing * levels).encode()
    assert accepted(nested) == (levels <= rules.DEPTH_MAX)


def test_common_values_beyond_json_are_written_as_text() -> None:
    @dataclasses.dataclass
    class Order:
        id: uuid.UUID
        at: datetime
        total: Decimal

    number = uuid.UUID(int=7)
    order = Order(number, datetime(2026, 11, 15, tzinfo=UTC), Decimal("9.90"))
    assert json.loads(payload.encode({"order": order})) == {
        "order": {"id": str(number), "at": "2026-11-15T00:00:00Z", "total": "9.90"}
    }


def test_white_space_around_encoded_bytes_is_not_part_of_the_value() -> None:
    assert payload.encode(b' {"a":  1}\n') == b'{"a":  1}'
