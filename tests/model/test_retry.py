"""How long a delivery rests after a failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehook.model.retry import EXPONENT_MAX, PRESETS, Policy, delay_seconds

STANDARD = PRESETS["standard"]


@pytest.mark.parametrize(
    ("attempt_count", "seconds"),
    [(1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (7, 1920), (8, 3600), (9, 3600), (999, 3600)],
)
def test_the_pause_doubles_up_to_the_cap(attempt_count: int, seconds: float) -> None:
    assert delay_seconds(STANDARD, attempt_count, None) == seconds


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(None, 30), (0, 30), (29, 30), (31, 31), (3600, 3600), (3601, 3600), (10**12, 3600)],
)
def test_retry_after_is_kept_within_the_cap(asked: int | None, seconds: float) -> None:
    assert delay_seconds(STANDARD, 1, asked) == seconds


def test_a_cap_below_the_base_delay_wins() -> None:
    assert delay_seconds(Policy(5, base_delay_seconds=30, max_delay_seconds=10), 1, None) == 10


@pytest.mark.parametrize("wrong", [(0, 30, 60), (-1, 30, 60), (5, 0, 60), (5, -1, 60), (5, 30, 0)])
def test_a_policy_without_sense_cannot_be_made(wrong: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|positive"):
        Policy(*wrong)


@given(st.integers(1, 10**9), st.floats(0.001, 1e6), st.floats(0.001, 1e7))
def test_a_later_pause_is_never_shorter(attempt_count: int, base: float, cap: float) -> None:
    policy = Policy(5, base, cap)
    now, later = (delay_seconds(policy, attempt_count + n, None) for n in (0, 1))
    assert 0 < now <= later <= cap


def test_no_number_of_attempts_overflows() -> None:
    policy = Policy(10**9, 1e6, 1e300)
    assert delay_seconds(policy, 10**9, None) == 1e6 * 2.0**EXPONENT_MAX
