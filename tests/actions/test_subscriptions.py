"""Subscriptions: what owners create and change, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from support import OpenStore, servers
from surehook.actions.subscriptions import Subscriptions
from surehook.delivery.address import AddressGuard
from surehook.delivery.secrets import Sealer, SealingError, parse_keys
from surehook.errors import FieldRefused, NotFound, Stale
from surehook.model.ceilings import Ceilings
from surehook.model.records import HEADERS_CONTEXT, SIGNING_CONTEXT
from surehook.store import store_of
from surehook.store.subscriptions import SubscriptionStore

URL = "https://receiver.example/hook"
SEALER = Sealer(parse_keys(servers.ENCRYPTION_KEY))
CEILINGS = Ceilings(rate=1000, subscriptions=3)


@pytest.fixture
async def subscriptions(open_store: OpenStore) -> Subscriptions:
    store = store_of(SubscriptionStore, await open_store("subscriptions"))
    return Subscriptions(store, SEALER, AddressGuard(), CEILINGS)


def settings(**changes: Any) -> dict[str, Any]:
    return {"event_type": "order.paid", "callback_url": URL, **changes}


async def test_a_new_subscription_is_active_but_not_verified_and_shows_its_secret_once(
    subscriptions: Subscriptions, owner: Any
) -> None:
    made = await subscriptions.create(settings())
    assert made.created and made.subscription.active and not made.subscription.verified
    assert made.subscription.eligible_from is None
    assert made.secret is not None and made.secret.startswith("whsec_")
    sealed = await owner.fetchval("SELECT sealed FROM subscription_secrets")
    assert made.secret not in sealed
    assert SEALER.open(sealed, SIGNING_CONTEXT) == made.secret


async def test_the_same_idempotency_key_gives_the_first_subscription_without_its_secret(
    subscriptions: Subscriptions, owner: Any
) -> None:
    first = await subscriptions.create(settings(), idempotency_key="k")
    again = await subscriptions.create(settings(event_type="other"), idempotency_key="k")
    assert (again.created, again.secret) == (False, None)
    assert again.subscription == first.subscription
    other_tenant = await subscriptions.create(settings(), tenant="b", idempotency_key="k")
    assert other_tenant.created
    assert await owner.fetchval("SELECT count(*) FROM subscription_secrets") == 2


async def test_a_new_url_replaces_an_unverified_one_and_is_staged_beside_a_verified_one(
    subscriptions: Subscriptions, owner: Any
) -> None:
    made = (await subscriptions.create(settings())).subscription
    changed = await subscriptions.update(made.id, {"callback_url": f"{URL}/2"})
    assert (changed.callback_url, changed.pending_callback_url) == (f"{URL}/2", None)
    await owner.execute("UPDATE subscriptions SET verified = true")
    changed = await subscriptions.update(made.id, {"callback_url": f"{URL}/3"})
    assert changed.verified
    assert (changed.callback_url, changed.pending_callback_url) == (f"{URL}/2", f"{URL}/3")
    changed = await subscriptions.update(made.id, {"description": "kept"})
    assert changed.pending_callback_url == f"{URL}/3"
    changed = await subscriptions.update(made.id, {"callback_url": f"{URL}/2"})
    assert (changed.verified, changed.pending_callback_url) == (True, None)


async def test_an_update_leaves_what_it_does_not_name(subscriptions: Subscriptions) -> None:
    made = (await subscriptions.create(settings(max_attempts=3, concurrency_cap=7))).subscription
    changed = await subscriptions.update(made.id, {"max_attempts": None, "active": False})
    assert (changed.max_attempts, changed.concurrency_cap, changed.active) == (None, 7, False)


async def test_changes_of_different_settings_at_the_same_time_all_hold(
    subscriptions: Subscriptions, owner: Any
) -> None:
    made = (await subscriptions.create(settings())).subscription
    for number in range(1, 21):
        await asyncio.gather(
            subscriptions.update(made.id, {"active": number % 2 == 0}),
            subscriptions.update(made.id, {"max_attempts": number}),
            subscriptions.update(made.id, {"description": str(number)}),
            subscriptions.update(made.id, {}, custom_headers={"x-number": str(number)}),
        )
        now = await subscriptions.read(made.id)
        assert (now.active, now.max_attempts) == (number % 2 == 0, number)
        assert now.description == str(number)
        headers = SEALER.open(
            await owner.fetchval("SELECT custom_headers FROM subscriptions"), HEADERS_CONTEXT
        )
        assert msgspec.json.decode(headers) == [["x-number", str(number)]]


async def test_a_change_made_from_an_old_version_changes_nothing(
    subscriptions: Subscriptions, owner: Any
) -> None:
    made = (await subscriptions.create(settings())).subscription
    seen = await subscriptions.update(made.id, {"max_attempts": 3}, versions=[made.version])
    assert seen.version > made.version
    with pytest.raises(Stale, match=f"version {seen.version} now"):
        await subscriptions.update(
            made.id,
            {"max_attempts": 4},
            custom_headers={"x-a": "b"},
            versions=[made.version],
        )
    assert await subscriptions.read(made.id) == seen
    assert await owner.fetchval("SELECT custom_headers FROM subscriptions") is None
    await owner.execute("UPDATE subscriptions SET verified = true")  # anyone's change counts
    assert (await subscriptions.read(made.id)).version > seen.version


async def test_of_many_changes_made_from_the_same_version_one_is_taken(
    subscriptions: Subscriptions,
) -> None:
    made = (await subscriptions.create(settings())).subscription
    answers = await asyncio.gather(
        *(
            subscriptions.update(made.id, {"max_attempts": number}, versions=[made.version])
            for number in range(1, 9)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, Stale) for answer in answers) == len(answers) - 1


async def test_a_setting_that_would_be_refused_today_does_not_hinder_another_change(
    subscriptions: Subscriptions, owner: Any
) -> None:
    made = (await subscriptions.create(settings())).subscription
    await owner.execute("UPDATE subscriptions SET callback_url = 'https://127.0.0.1/'")
    assert not (await subscriptions.update(made.id, {"active": False})).active


async def test_rotation_keeps_the_old_secret_for_the_overlap_only(
    subscriptions: Subscriptions, owner: Any
) -> None:
    made = await subscriptions.create(settings())
    rotated = await subscriptions.rotate(made.subscription.id, overlap_seconds=3600)
    assert str(rotated.secret).startswith("whsec_") and rotated.secret != made.secret
    rows = await owner.fetch(
        "SELECT sealed, EXTRACT(EPOCH FROM expires_at - created_at)::float8 AS life "
        "FROM subscription_secrets ORDER BY id"
    )
    assert [SEALER.open(row[0], SIGNING_CONTEXT) for row in rows] == [made.secret, rotated.secret]
    assert rows[0][1] == pytest.approx(3600, abs=60) and rows[1][1] is None


async def test_an_ed25519_subscription_shows_its_public_key(subscriptions: Subscriptions) -> None:
    made = await subscriptions.create(settings(), schemes=("v1", "v1a"))
    assert made.public_key is not None and made.public_key.startswith("whpk_")
    rotated = await subscriptions.rotate(made.subscription.id, scheme="v1a")
    assert str(rotated.public_key).startswith("whpk_") and rotated.public_key != made.public_key
    assert rotated.secret is msgspec.UNSET


async def test_custom_headers_are_sealed(subscriptions: Subscriptions, owner: Any) -> None:
    await subscriptions.create(settings(), custom_headers={"authorization": "Bearer abc"})
    sealed = await owner.fetchval("SELECT custom_headers FROM subscriptions")
    assert "abc" not in sealed
    opened = SEALER.open(sealed, HEADERS_CONTEXT)
    assert msgspec.json.decode(opened) == [["authorization", "Bearer abc"]]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("event_type", {"event_type": "with space"}),
        ("event_type", {"event_type": ""}),
        ("event_type", {"event_type": "x" * 101}),
        ("callback_url", {"callback_url": "http://receiver.example/"}),
        ("callback_url", {"callback_url": "https://user@receiver.example/"}),
        ("callback_url", {"callback_url": "https://127.0.0.1/"}),
        ("callback_url", {"callback_url": "https://[::ffff:10.0.0.1]/"}),
        ("callback_url", {"callback_url": "https://2130706433/"}),
        ("callback_url", {"callback_url": "https://receiver.example/" + "x" * 500}),
        ("max_attempts", {"max_attempts": 0}),
        ("base_delay_seconds", {"base_delay_seconds": 0.0}),
        ("request_timeout_seconds", {"request_timeout_seconds": 25.1}),
        ("concurrency_cap", {"concurrency_cap": 0}),
        ("rate_limit_per_second", {"rate_limit_per_second": 0.0}),
        ("concurrency_cap", {"concurrency_cap": 257}),
        ("rate_limit_per_second", {"rate_limit_per_second": 1001.0}),
        ("description", {"description": "x" * 1001}),
    ],
)
async def test_a_wrong_value_is_refused_by_name_and_nothing_is_written(
    subscriptions: Subscriptions, owner: Any, field: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(FieldRefused) as refused:
        await subscriptions.create(settings(**changes))
    assert refused.value.field == field
    made = (await subscriptions.create(settings())).subscription
    with pytest.raises(FieldRefused):
        await subscriptions.update(made.id, changes)
    assert await subscriptions.read(made.id) == made
    assert await owner.fetchval("SELECT count(*) FROM subscriptions") == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"webhook-id": "x"},
        {"Host": "x"},
        {"content-length": "1"},
        {"bad name": "x"},
        {"x": "line\r\nbreak"},
        {"x": "ü"},
        {f"x-{number}": "1" for number in range(21)},
    ],
)
async def test_a_header_that_would_break_or_forge_a_delivery_is_refused(
    subscriptions: Subscriptions, headers: dict[str, str]
) -> None:
    with pytest.raises(FieldRefused) as refused:
        await subscriptions.create(settings(), custom_headers=headers)
    assert refused.value.field == "custom_headers"


async def test_another_tenants_subscription_is_not_there(subscriptions: Subscriptions) -> None:
    made = (await subscriptions.create(settings(), tenant="a")).subscription
    assert (await subscriptions.read(made.id, "a")).id == made.id
    with pytest.raises(NotFound):
        await subscriptions.read(made.id, "b")
    with pytest.raises(NotFound):
        await subscriptions.update(made.id, {"active": False}, tenant="b")
    with pytest.raises(NotFound):
        await subscriptions.rotate(made.id, tenant="b")


async def test_without_an_encryption_key_no_subscription_is_created(
    open_store: OpenStore, owner: Any
) -> None:
    store = store_of(SubscriptionStore, await open_store("subscriptions"))
    keyless = Subscriptions(store, Sealer(()), AddressGuard(), CEILINGS)
    with pytest.raises(SealingError, match="SUREHOOK_ENCRYPTION_KEY"):
        await keyless.create(settings())
    assert await owner.fetchval("SELECT count(*) FROM subscriptions") == 0


async def test_a_stored_value_above_a_ceiling_does_not_stand_in_the_way_of_other_changes(
    subscriptions: Subscriptions, owner: Any
) -> None:
    made = (await subscriptions.create(settings(concurrency_cap=100))).subscription
    await owner.execute("UPDATE subscriptions SET concurrency_cap = 5000")
    changed = await subscriptions.update(made.id, {"active": False})
    assert (changed.active, changed.concurrency_cap) == (False, 5000)


async def test_a_tenant_that_creates_by_itself_has_a_bounded_number_of_subscriptions(
    subscriptions: Subscriptions, owner: Any
) -> None:
    for _ in range(2):
        await subscriptions.create(settings(), tenant="t", by_tenant=True)
    kept = await subscriptions.create(
        settings(), tenant="t", by_tenant=True, idempotency_key="third"
    )
    with pytest.raises(FieldRefused, match=r"limits\.subscriptions"):
        await subscriptions.create(settings(), tenant="t", by_tenant=True)
    # What was created before is found, and the operator may create more.
    again = await subscriptions.create(
        settings(), tenant="t", by_tenant=True, idempotency_key="third"
    )
    assert (again.created, again.subscription.id) == (False, kept.subscription.id)
    assert (await subscriptions.create(settings(), tenant="t")).created
    assert (await subscriptions.create(settings(), tenant="u", by_tenant=True)).created
    assert await owner.fetchval("SELECT count(*) FROM subscriptions WHERE tenant = 't'") == 4
    assert await owner.fetchval("SELECT count(*) FROM subscription_secrets") == 5


async def test_subscriptions_that_a_tenant_creates_at_once_are_counted_too(
    subscriptions: Subscriptions, owner: Any
) -> None:
    await subscriptions.create(settings(), tenant="t", by_tenant=True)
    tries = (subscriptions.create(settings(), tenant="t", by_tenant=True) for _ in range(8))
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(one, FieldRefused) for one in outcomes) == 6
    assert await owner.fetchval("SELECT count(*) FROM subscriptions") == 3
