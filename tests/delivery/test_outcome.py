"""Outcomes: the closed list, Retry-After, and text that is safe to show."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehook.delivery.outcome import (
    EXCERPT_CHARACTERS,
    MAX_RETRY_AFTER_SECONDS,
    Outcome,
    error_of_status,
    parse_retry_after,
    safe_excerpt,
)
from surehook.model.error_codes import ErrorCode

ROOT = Path(__file__).parents[2]
NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def test_every_code_has_a_cause_and_advice_and_fits_the_column() -> None:
    for code in ErrorCode:
        assert code == code.name and len(code) <= 100
        assert code.cause.endswith(".") and code.advice.endswith(".")
        assert "|" not in code.cause + code.advice


def test_only_what_cannot_get_better_is_permanent() -> None:
    permanent = {code for code in ErrorCode if code.permanent}
    assert permanent == {
        ErrorCode.GONE,
        ErrorCode.SUBSCRIPTION_INACTIVE,
        ErrorCode.BLOCKED_ADDRESS,
        ErrorCode.INVALID_REQUEST,
    }


@pytest.mark.parametrize("status", range(100, 700))
def test_success_is_2xx_and_nothing_else(status: int) -> None:
    code = error_of_status(status)
    assert (code is None) == (200 <= status < 300)
    if status == 410:
        assert code is ErrorCode.GONE
    elif 300 <= status < 600:
        assert code == f"HTTP_{status // 100}XX"
    elif code is not None:
        assert code is ErrorCode.PROTOCOL_ERROR
    assert Outcome(status, code).delivered == (code is None)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("1", 1),
        (" 120 ", 120),
        ("86400", 86_400),
        ("2591999", 2_591_999),
        ("2592001", MAX_RETRY_AFTER_SECONDS),
        ("9999999999", MAX_RETRY_AFTER_SECONDS),
        ("10000000000", MAX_RETRY_AFTER_SECONDS),
        ("99999999999999999999", MAX_RETRY_AFTER_SECONDS),
        ("9" * 30_000, MAX_RETRY_AFTER_SECONDS),
        ("0" * 30_000 + "17", 17),
        ("0" * 12, 0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60),
        ("Tuesday, 14-Nov-23 22:14:20 GMT", 60),
        ("Tue Nov 14 22:14:20 2023", 60),
        ("Tue, 14 Nov 2023 22:13:20 GMT", 0),
        ("Tue, 14 Nov 2023 21:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_SECONDS),
        ("-1", None),
        ("+1", None),
        ("1.5", None),
        ("1e3", None),
        ("0x10", None),
        ("12, 13", None),
        ("１２", None),
        ("soon", None),
        ("", None),
        ("Tue, 14 Nov 2023 22:14:20", None),
        ("Tue, 14 Nov 2023 22:14:20 CET", None),
        ("Tue, 32 Nov 2023 22:14:20 GMT", None),
        ("Tue, 14 Foo 2023 22:14:20 GMT", None),
        ("Tue, 14 Nov 2023 25:14:20 GMT", None),
        ("2023-11-14T22:14:20Z", None),
        ("Fri, 31 Dec 0000 23:59:59 GMT", None),
    ],
)
def test_retry_after_is_read_strictly_and_capped(value: str, seconds: int | None) -> None:
    assert parse_retry_after(value, None, NOW) == seconds


def test_a_retry_after_date_is_measured_by_the_endpoints_own_clock() -> None:
    an_hour_slow = "Tue, 14 Nov 2023 21:13:20 GMT"
    ninety_seconds_later = "Tue, 14 Nov 2023 21:14:50 GMT"
    assert parse_retry_after(ninety_seconds_later, an_hour_slow, NOW) == 90
    assert parse_retry_after(ninety_seconds_later, "nonsense", NOW) == 0


def test_the_wait_for_a_retry_after_date_does_not_end_before_it() -> None:
    in_the_middle_of_a_second = NOW + 0.4
    assert parse_retry_after("Tue, 14 Nov 2023 22:13:22 GMT", None, in_the_middle_of_a_second) == 2


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("Tue, 14 Nov 2023 22:14:20 GMT", None, None),
        ("Tue, 14 Nov 2023 22:14:20 GMT", "nonsense", None),
        ("Tuesday, 14-Nov-23 22:14:20 GMT", "Tue, 14 Nov 2023 22:13:20 GMT", None),
        ("Tue, 14 Nov 2023 22:14:20 GMT", "Tue, 14 Nov 2023 22:13:20 GMT", 60),
        ("60", None, 60),
    ],
)
def test_without_a_clock_that_is_known_a_date_says_nothing(
    value: str, date: str | None, seconds: int | None
) -> None:
    assert parse_retry_after(value, date, None) == seconds


@given(st.text(max_size=40))
def test_no_retry_after_value_breaks_the_parser(value: str) -> None:
    seconds = parse_retry_after(value, value, NOW)
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER_SECONDS


def test_the_words_of_the_endpoint_and_ours_are_kept_apart() -> None:
    both = Outcome(
        200, ErrorCode.RESPONSE_TOO_LARGE, response_excerpt="so much", failure_detail="too\nmuch"
    )
    assert (both.response_excerpt, both.kept_detail) == ("so much", "too much")
    assert Outcome(200, None).kept_detail is None


def test_an_unforeseen_error_keeps_its_kind_alone() -> None:
    failed = Outcome(None, ErrorCode.INTERNAL_ERROR, failure_detail="ValueError: header whsec_abc")
    assert failed.kept_detail == "ValueError"


@pytest.mark.parametrize(
    ("body", "excerpt"),
    [
        (b"", None),
        (b" \r\n\t ", None),
        (b"not found", "not found"),
        (b"two\r\nlines\n\nof  text", "two lines of text"),
        (b"\x1b[31mred\x1b[0m", "·[31mred·[0m"),
        (b"a\x00b\x07c\x7fd", "a·b·c·d"),
        ("evil\u202egnp.exe".encode(), "evil·gnp.exe"),
        ("zero\u200bwidth".encode(), "zero·width"),
        (b"\xff\xfe latin", "\ufffd\ufffd latin"),
        ("größe €".encode(), "größe €"),
        (b"\x1f\x8b\x08\x00", "·\ufffd··"),
    ],
)
def test_an_excerpt_is_one_harmless_line(body: bytes, excerpt: str | None) -> None:
    assert safe_excerpt(body) == excerpt


@given(st.binary(max_size=2000))
def test_any_body_gives_an_excerpt_that_is_short_and_printable(body: bytes) -> None:
    excerpt = safe_excerpt(body)
    if excerpt is not None:
        assert 0 < len(excerpt) <= EXCERPT_CHARACTERS
        assert "\x00" not in excerpt and "\n" not in excerpt and excerpt.encode("utf-8")
        assert all(char.isprintable() for char in excerpt)


def test_a_character_cut_at_the_end_of_the_excerpt_does_not_look_like_damage() -> None:
    excerpt = safe_excerpt("€".encode() * 600)
    assert excerpt is not None and "\ufffd" not in excerpt
