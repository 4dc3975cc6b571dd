"""Numbers that are mistakes: nan and inf never leave the client, nor make it wait forever."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from support.either import Either
from surehook.client import AsyncClient, Client, Retry

both = pytest.mark.parametrize("kind", [Client, AsyncClient])
NOWHERE = ("http://127.0.0.1:1", "shk_x")
ONCE = Retry(tries_max=1)


@both
@pytest.mark.parametrize("seconds", [nan, inf, -inf, 0, -1])
def test_a_timeout_is_a_finite_number_of_seconds(kind: Any, seconds: float) -> None:
    with pytest.raises(ValueError, match="timeout must be a finite number of seconds"):
        kind(*NOWHERE, timeout=seconds)


@pytest.mark.parametrize("name", ["seconds_max", "pause_first", "pause_max"])
@pytest.mark.parametrize("seconds", [nan, inf, -1])
def test_tries_end(name: str, seconds: float) -> None:
    given: dict[str, Any] = {name: seconds}
    with pytest.raises(ValueError, match=f"{name}.*finite"):
        Retry(**given)


@both
@pytest.mark.parametrize("number", [nan, inf, -inf])
@pytest.mark.parametrize(
    ("method", "arguments", "name"),
    [
        ("subscriptions.create", ("a.b", "https://shop.example/"), "base_delay_seconds"),
        ("subscriptions.create", ("a.b", "https://shop.example/"), "request_timeout_seconds"),
        ("subscriptions.update", (1,), "rate_limit_per_second"),
        ("subscriptions.rotate_secret", (1,), "overlap_seconds"),
        ("subscriptions.verify", (1,), "wait"),
    ],
)
async def test_a_setting_that_json_has_no_word_for_is_not_sent_as_null(
    kind: Any, method: str, arguments: tuple[Any, ...], name: str, number: float
) -> None:
    client = Either(kind(*NOWHERE, retry=ONCE))
    with pytest.raises(ValueError, match=f"{name} must be a finite number"):
        await client(method, *arguments, **{name: number})
    await client.close()


@both
async def test_waiting_for_a_delivery_has_an_end_or_is_said_to_have_none(kind: Any) -> None:
    client = Either(kind(*NOWHERE, retry=ONCE))
    with pytest.raises(ValueError, match="timeout must be a number of seconds"):
        await client("deliveries.wait_until_done", 1, timeout=nan)
    await client.close()
