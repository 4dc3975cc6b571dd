"""The secret that create() returns is one that the server has."""

from __future__ import annotations

import json

import pytest

from surehook.client.calls import create_subscription

STORED = {
    "id": 1,
    "tenant": "",
    "event_type": "order.paid",
    "callback_url": "https://receiver.example/",
    "pending_callback_url": None,
    "active": True,
    "verified": False,
    "eligible_from": None,
    "max_attempts": None,
    "base_delay_seconds": None,
    "request_timeout_seconds": None,
    "concurrency_cap": None,
    "rate_limit_per_second": None,
    "custom_header_names": None,
    "description": None,
    "created_at": "2026-11-15T20:55:01.123456Z",
    "updated_at": "2026-11-15T20:55:01.123456Z",
    "verification": None,
}


@pytest.mark.parametrize(("key", "known"), [(None, True), ("mine", False)])
def test_a_repeated_call_knows_its_secret_only_if_no_other_call_can_have_made_it(
    key: str | None, known: bool
) -> None:
    fields = {"event_type": "order.paid", "callback_url": "https://receiver.example/"}
    call = create_subscription(fields, idempotency_key=key)
    sent = json.loads(call.body or b"{}")["secret"]
    subscription = call.read(json.dumps(STORED).encode())
    assert subscription.secret == (sent if known else None)
