"""What a call refuses before anything is sent, and what of a result must not get into a log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from surehook.client import calls
from surehook.client.calls import NewEvent
from surehook.client.results import Key, Page, RotatedSecret, Subscription

NOW = datetime.now(UTC)


@pytest.mark.parametrize("events", [[], [NewEvent("a", 1)] * 1001])
def test_a_batch_has_1_to_1000_events(events: list[NewEvent]) -> None:
    with pytest.raises(ValueError, match="1 to 1000 events"):
        calls.publish_batch(events)


def test_a_batch_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 8388608"):
        calls.publish_batch([NewEvent("a", "x" * 1024 * 1024)] * 9)


def test_an_answer_to_a_batch_has_one_result_per_event() -> None:
    batch = calls.publish_batch([NewEvent("a", 1)])
    with pytest.raises(msgspec.DecodeError, match="0 results for 1 events"):
        batch.read(b'{"results":[]}')


def test_a_time_without_a_zone_is_refused() -> None:
    naive = {"created_from": NOW.replace(tzinfo=None)}
    with pytest.raises(ValueError, match="must have a time zone"):
        calls.call("GET", "/v1/events", Page, query=naive)
    asked = calls.call("GET", "/v1/events", Page, query={"created_from": NOW, "limit": None})
    assert asked.target.startswith("/v1/events?created_from=") and asked.target.endswith("Z")


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines", "x" * 256])
def test_an_idempotency_key_fits_into_a_header(key: str) -> None:
    with pytest.raises(ValueError, match="idempotency_key"):
        calls.create_subscription({}, key)


def test_a_secret_that_is_given_is_the_one_that_is_sent() -> None:
    sent = calls.create_subscription({"secret": ""}).body
    assert msgspec.json.decode(sent) == {"secret": ""}  # and the server refuses it


SUBSCRIPTION: dict[str, Any] = {"id": 1, "created_at": NOW, "updated_at": NOW}


@pytest.mark.parametrize(
    "result",
    [
        Subscription(secret="whsec_hidden", **SUBSCRIPTION),
        RotatedSecret(secret="whsec_hidden"),
        Key(id=1, created_at=NOW, key="shk_hidden"),
    ],
    ids=lambda result: type(result).__name__,
)
def test_no_repr_shows_a_secret(result: object) -> None:
    assert "hidden" not in repr(result)
