"""What a subscription's columns do by themselves: eligible_from, and losing `verified`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support import dialects
from support.clock import Clock
from support.dialects import as_role
from support.rows import a_subscription
from support.servers import Server

HOUR = timedelta(hours=1)
OLD = datetime(2000, 1, 1, tzinfo=UTC)


async def row(owner: Any) -> Any:
    return await owner.fetchrow("SELECT * FROM subscriptions")


# ── eligible_from ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("active", "verified"), [(True, True), (True, False), (False, True), (False, False)]
)
async def test_a_new_subscription_is_eligible_only_if_active_and_verified(
    owner: Any, clock: Clock, active: bool, verified: bool
) -> None:
    await clock.shift(3600)
    await a_subscription(owner, active=active, verified=verified)
    eligible = (await row(owner))["eligible_from"]
    if active and verified:
        assert abs(eligible - await clock.now()) < timedelta(seconds=30)
    else:
        assert eligible is None


@pytest.mark.parametrize("missing", ["active", "verified"])
async def test_becoming_active_and_verified_starts_eligibility_now(
    owner: Any, clock: Clock, missing: str
) -> None:
    await a_subscription(owner, active=missing != "active", verified=missing != "verified")
    await clock.shift(3600)
    await owner.execute(f"UPDATE subscriptions SET {missing} = true")
    assert abs((await row(owner))["eligible_from"] - await clock.now()) < timedelta(seconds=30)


@pytest.mark.parametrize("column", ["event_type", "tenant"])
async def test_another_type_or_tenant_starts_eligibility_anew(
    owner: Any, clock: Clock, column: str
) -> None:
    await a_subscription(owner)
    before = (await row(owner))["eligible_from"]
    await clock.shift(3600)
    await owner.execute(f"UPDATE subscriptions SET {column} = 'another'")
    assert (await row(owner))["eligible_from"] >= before + HOUR


async def test_being_enabled_again_does_not_bring_back_what_was_missed(
    owner: Any, clock: Clock
) -> None:
    await a_subscription(owner)
    first = (await row(owner))["eligible_from"]
    await owner.execute("UPDATE subscriptions SET active = false")
    await clock.shift(3600)
    await owner.execute("UPDATE subscriptions SET active = true")
    assert (await row(owner))["eligible_from"] >= first + HOUR


async def test_any_other_change_leaves_eligibility_alone(owner: Any, clock: Clock) -> None:
    await a_subscription(owner)
    before = await row(owner)
    await clock.shift(3600)
    await owner.execute(
        "UPDATE subscriptions SET description = 'x', max_attempts = 3, active = true, "
        "pending_callback_url = 'https://next.example/'"
    )
    after = await row(owner)
    assert after["eligible_from"] == before["eligible_from"]
    assert after["updated_at"] >= before["updated_at"] + HOUR


async def test_nobody_sets_eligibility_by_hand(owner: Any) -> None:
    await a_subscription(owner)
    before = (await row(owner))["eligible_from"]
    await owner.execute("UPDATE subscriptions SET eligible_from = $1", OLD)
    assert (await row(owner))["eligible_from"] == before


async def test_nobody_sets_eligibility_by_hand_when_inserting_either(owner: Any) -> None:
    for verified in (True, False):
        await owner.execute(
            "INSERT INTO subscriptions (event_type, callback_url, verified, eligible_from) "
            f"VALUES ('x', 'https://x', {verified}, $1)",
            OLD,
        )
    assert await owner.fetchval("SELECT count(*) FROM subscriptions WHERE verified") == 1
    query = "SELECT count(*) FROM subscriptions WHERE eligible_from = $1"
    assert await owner.fetchval(query, OLD) == 0


# ── verified ──────────────────────────────────────────────────────────────────────────────────


async def test_a_new_url_clears_verified(owner: Any, server: Server, database_url: str) -> None:
    await a_subscription(owner)
    async with as_role(server, database_url, "subscription_admin") as admin:
        await admin.execute("UPDATE subscriptions SET callback_url = 'https://other.example/'")
    assert (await row(owner))["verified"] is False


async def test_a_new_url_clears_verified_even_if_the_same_statement_sets_it(owner: Any) -> None:
    await a_subscription(owner)
    await owner.execute(
        "UPDATE subscriptions SET callback_url = 'https://other.example/', verified = true"
    )
    assert (await row(owner))["verified"] is False


async def test_the_same_url_again_clears_nothing(owner: Any) -> None:
    await a_subscription(owner)
    await owner.execute("UPDATE subscriptions SET callback_url = callback_url")
    assert (await row(owner))["verified"] is True


async def test_the_api_cannot_imitate_the_swap_of_the_verifier(
    owner: Any, server: Server, database_url: str
) -> None:
    await a_subscription(owner, pending_callback_url="https://next.example/")
    async with as_role(server, database_url, "subscription_admin") as admin:
        await admin.execute(
            "UPDATE subscriptions SET callback_url = pending_callback_url, "
            "pending_callback_url = NULL"
        )
    assert (await row(owner))["verified"] is False


async def test_the_swap_of_the_verifier_keeps_verified_and_eligibility(
    owner: Any, server: Server, database_url: str, clock: Clock
) -> None:
    await a_subscription(owner, pending_callback_url="https://next.example/")
    before = await row(owner)
    await clock.shift(3600)
    async with as_role(server, database_url, "subscription_verifier") as verifier:
        await verifier.execute(
            f"{dialects.SWAP_OF_URL[server.engine]} "
            "WHERE pending_callback_url = 'https://next.example/'"
        )
    after = await row(owner)
    assert after["callback_url"] == "https://next.example/"
    assert after["pending_callback_url"] is None
    assert after["verified"] is True and after["eligible_from"] == before["eligible_from"]


async def test_the_verifier_cannot_swap_in_a_url_that_was_not_staged(
    owner: Any, server: Server, database_url: str
) -> None:
    await a_subscription(owner, pending_callback_url="https://next.example/")
    async with as_role(server, database_url, "subscription_verifier") as verifier:
        await verifier.execute(
            "UPDATE subscriptions SET callback_url = 'https://evil.example/', "
            "pending_callback_url = NULL, verified = true"
        )
    assert (await row(owner))["verified"] is False


async def test_the_first_verification_makes_it_eligible_from_then(
    owner: Any, server: Server, database_url: str, clock: Clock
) -> None:
    await a_subscription(owner, verified=False)
    await clock.shift(3600)
    async with as_role(server, database_url, "subscription_verifier") as verifier:
        await verifier.execute("UPDATE subscriptions SET verified = true")
    assert abs((await row(owner))["eligible_from"] - await clock.now()) < timedelta(seconds=30)


@pytest.mark.parametrize("column", ["callback_url", "pending_callback_url"])
async def test_only_https_is_taken(owner: Any, column: str) -> None:
    await a_subscription(owner)
    with pytest.raises(dialects.CheckViolation):
        await owner.execute(f"UPDATE subscriptions SET {column} = 'http://plain.example/'")
